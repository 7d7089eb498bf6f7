"""Processes about the whole scene, supervised like a training."""
