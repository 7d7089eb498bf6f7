"""`publish`: what came out, for everybody else."""
