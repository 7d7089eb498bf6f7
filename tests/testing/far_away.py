"""Copies of scenes somewhere else in the world, as georeferencing leaves them."""

from __future__ import annotations

from pathlib import Path

from splatbatch.scene.colmap.copies import write_shifted

UTM = (500_000.0, 4_500_000.0, 100.0)
"""Easting, northing and height in metres."""


def move(sparse: Path, by: tuple[float, float, float] = UTM) -> None:
    """Move the model of a folder, in place."""
    x, y, z = by
    write_shifted(sparse, (-x, -y, -z), sparse)
