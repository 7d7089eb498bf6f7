"""What the supervisor does besides for an external trainer: its progress, and whether it is done."""
