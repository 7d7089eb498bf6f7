"""Check of a splat file, as whether the file is complete, not empty, finite, and from the last training step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from splatbatch.outcome import Rejected, Splat
from splatbatch.splats.blocks import read_rows
from splatbatch.splats.ply import (
    HIGHEST_DEGREE,
    LARGEST_COORDINATE,
    SplatHeader,
    degree_of,
    names_at,
    read_header,
)

QUATS = tuple(f"rot_{i}" for i in range(4))
MEANS = ("x", "y", "z")
SCALES = tuple(f"scale_{i}" for i in range(3))
LARGEST_LOG_SCALE = float(np.log(np.finfo(np.float32).max))
"""Largest logarithm of a scale whose exp() is finite in float32; a Gaussian with a larger scale cannot be rendered."""


@dataclass(frozen=True)
class Flaws:
    """Numbers of Gaussians of a splat file that cannot be rendered, by reason; a Gaussian may count for several."""

    not_finite: int = 0
    """Gaussians with a rendered parameter that is NaN or infinite, or with a scale above `LARGEST_LOG_SCALE`."""
    unturned: int = 0
    """Gaussians with the rotation 0, 0, 0, 0, which mark rows that were never written.

    A program that gives a file its size before its content leaves such rows if it is killed. Trained rotations have any
    length but 0.
    """
    out_of_reach: int = 0
    """Gaussians with a finite coordinate whose absolute value exceeds `splats.ply.LARGEST_COORDINATE` (1e18)."""

    def __add__(self, more: Flaws) -> Flaws:
        """Return the sum of two counts, reason by reason."""
        not_finite, unturned = self.not_finite + more.not_finite, self.unturned + more.unturned
        return Flaws(not_finite, unturned, self.out_of_reach + more.out_of_reach)


def check_splat(path: Path, last_step: int | None = None) -> Splat | Rejected:
    """Check a splat file; return the splat, or a `Rejected` with the reason as text.

    The `step` of the splat is 0 where the header names none.

    Raises nothing: a file that is missing, cannot be read or is no PLY is rejected. Unless its size
    or header is at fault, the file is read whole.

    Args:
        path: a 3DGS PLY.
        last_step: number of planned steps that the header must name, also after early stopping; None: not checked.
    """
    try:
        size = path.stat().st_size
        header = read_header(path)
        if reason := _why_rejected(size, header, last_step):
            return Rejected(reason)
        # read, not mapped: a mapped file that is truncated meanwhile ends the process; a splat may exceed the memory
        flaws = sum((flaws_of(rows, header) for _, rows in read_rows(path, header)), Flaws())
    except FileNotFoundError:
        return Rejected("missing")
    except (OSError, ValueError) as error:
        return Rejected(f"unreadable: {error}")
    if flaws.not_finite:
        return Rejected(f"not finite: {flaws.not_finite} of {header.num_gaussians} Gaussians have NaN or infinity")
    if flaws.unturned:
        return Rejected(f"unfilled: {flaws.unturned} of {header.num_gaussians} Gaussians were never written")
    if flaws.out_of_reach:
        num = f"{flaws.out_of_reach} of {header.num_gaussians} Gaussians"
        return Rejected(f"out of reach: {num} have coordinates beyond {LARGEST_COORDINATE:g}")
    return Splat(path, header.num_gaussians, header.sh_degree, header.step or 0)


def _why_rejected(size: int, header: SplatHeader, last_step: int | None) -> str:
    try:
        degree_of(header)
    except ValueError as error:
        return f"no splat: {error}"
    if size != header.file_bytes:
        return f"cut: {size} of {header.file_bytes} bytes"
    if header.num_gaussians == 0:
        return "empty: 0 Gaussians"
    if last_step is not None and header.planned != last_step:
        return f"from step {header.step}, not from the last step {last_step}"
    return ""


def flaws_of(rows: npt.NDArray[np.float32], header: SplatHeader) -> Flaws:
    """Count the Gaussians that cannot be rendered among rows, [N, properties], of a splat with this header.

    Properties that are not rendered, as normals, may have any value.

    Raises:
        ValueError: the header lacks a property of position, scale or rotation.
    """
    means, scales, quats = (rows[:, [header.properties.index(name) for name in of]] for of in (MEANS, SCALES, QUATS))
    finite, huge, turned = np.isfinite(rows), scales > LARGEST_LOG_SCALE, quats != 0
    if not finite.all():  # properties that are not rendered, as normals, may have any value
        finite = finite[:, np.isin(header.properties, names_at(HIGHEST_DEGREE))]
    not_finite = 0 if finite.all() and not huge.any() else int((~finite.all(axis=1) | huge.any(axis=1)).sum())
    beyond = (np.abs(means) > np.float32(LARGEST_COORDINATE)) & np.isfinite(means)
    return Flaws(not_finite, int((~turned.any(axis=1)).sum()), int(beyond.any(axis=1).sum()))
