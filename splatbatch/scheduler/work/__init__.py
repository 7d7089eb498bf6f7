"""Parts of a worker outside its loop: claiming tasks, adopting attempts of dead workers, its remaining time."""
