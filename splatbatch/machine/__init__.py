"""THIS machine: its GPUs, slots, readiness, host memory, supervisors started and orphans ended."""
