"""Rendering of Gaussians on the CPU: pure PyTorch, deterministic, by the rules of gsplat's CUDA kernels."""

from splatbatch.training.cpu.projection import Ellipsoids, PinholeCameras, ProjectedGaussians, project, view_colors
from splatbatch.training.cpu.raster import raster

__all__ = ["Ellipsoids", "PinholeCameras", "ProjectedGaussians", "project", "raster", "view_colors"]
