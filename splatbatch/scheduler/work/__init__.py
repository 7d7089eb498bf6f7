"""A worker besides its loop: claiming tasks, adopting what others have left, its remaining time."""
