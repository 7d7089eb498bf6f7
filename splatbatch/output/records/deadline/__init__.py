"""What is written down of a deadline."""
