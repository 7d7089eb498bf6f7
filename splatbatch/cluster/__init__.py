"""WHERE workers run: they are started here or by Slurm; no task, log or result passes through it."""
