"""Rendering of Gaussians from one camera, on CUDA or the CPU."""
