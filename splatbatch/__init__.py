"""Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended."""

__version__ = "0.3.0.dev0"
