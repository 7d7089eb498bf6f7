"""Splat files (3DGS PLY): reading, writing, checking, merging, cleaning and exporting them; no torch is imported."""

from splatbatch.splats.check import check_splat
from splatbatch.splats.ply import (
    Gaussians,
    SplatHeader,
    mode_comments,
    offset_comments,
    read_header,
    read_splat,
    write_splat,
)

__all__ = [
    "Gaussians",
    "SplatHeader",
    "check_splat",
    "mode_comments",
    "offset_comments",
    "read_header",
    "read_splat",
    "write_splat",
]
