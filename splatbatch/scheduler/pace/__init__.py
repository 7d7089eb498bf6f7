"""A batch with a deadline while it runs: how fast it really is, and what follows from that."""
