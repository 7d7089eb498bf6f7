"""Engines that start workers: this machine, or Slurm. Tasks, logs and results do not pass through an engine."""
