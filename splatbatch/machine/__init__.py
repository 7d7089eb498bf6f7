"""This machine: its GPUs and slots, their readiness, host memory, and the start and end of supervisors."""
