"""Decisions made once, before training, for the whole batch: offset, hold-out, colour correction, step budget."""
