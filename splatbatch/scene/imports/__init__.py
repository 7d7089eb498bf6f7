"""Reconstructions of other programs, brought into a COLMAP model: nothing is copied, nothing is guessed silently."""
