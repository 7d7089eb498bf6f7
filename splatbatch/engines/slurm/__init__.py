"""Slurm, by its own command line."""
