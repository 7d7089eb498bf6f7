"""Whether a splat file counts: whole, finite, not empty, from the last step. Exit codes are not asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatbatch.outcome import Splat, Unfit
from splatbatch.splats.ply import SplatHeader, property_names, read_header, read_table

ROWS_AT_ONCE = 1 << 16


def check_splat(path: Path, last_step: int | None = None) -> Splat | Unfit:
    """Return the splat in a file, or why the file does not count.

    Args:
        path: a 3DGS PLY.
        last_step: the step it must be from, or was meant for when it stopped early by its own rules; None: any.
    """
    try:
        size = path.stat().st_size
        header = read_header(path)
    except FileNotFoundError:
        return Unfit("missing")
    except (OSError, ValueError) as error:
        return Unfit(f"unreadable: {error}")
    if size != header.file_bytes:
        return Unfit(f"cut: {size} of {header.file_bytes} bytes")
    if missing := set(property_names(0)) - set(header.properties):
        return Unfit(f"no splat: property {min(missing)} is missing")
    if header.num_gaussians == 0:
        return Unfit("empty: 0 Gaussians")
    if last_step is not None and header.planned != last_step:
        return Unfit(f"from step {header.step}, not from the last step {last_step}")
    if bad := _rows_not_finite(path, header):
        return Unfit(f"not finite: {bad} of {header.num_gaussians} Gaussians")
    return Splat(path, header.num_gaussians, header.sh_degree, header.step or 0)


def _rows_not_finite(path: Path, header: SplatHeader) -> int:
    """Count rows with NaN or infinity, a few thousand at a time: a splat may be larger than memory."""
    table = read_table(path, header)
    chunks = (table[start : start + ROWS_AT_ONCE] for start in range(0, len(table), ROWS_AT_ONCE))
    return sum(int((~np.isfinite(chunk).all(axis=1)).sum()) for chunk in chunks)
