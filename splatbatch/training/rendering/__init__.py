"""Gaussians drawn as one camera sees them, on CUDA or CPU."""
