"""Splat files: written, read, checked, merged, cleaned and exported."""

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
