"""Formats figures, times and states as text for people."""

from __future__ import annotations

import math

from splatbatch.files import MIB
from splatbatch.output.records.metrics import Resolution

SIGNS = {
    "trained": "✓", "done": "✓", "failed": "✕", "refused": "✕",
    "stopped": "■", "running": "…", "stale": "↻", "waiting": "·",
}  # fmt: skip
"""Signs of the states, so that a state is not told by colour alone."""


def figure(value: float, digits: int = 4) -> str:
    """Return a number with few digits: 0.0831, 26.54, 12.4k, 1.2M; `digits` holds below 10,000."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Return a time span: 12.3 s, 4:05 min, 2:10 h; empty for None."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def photographs(resolution: Resolution | None) -> str:
    """Return a resolution as "1/8, 618x411, images_8"; unknown parts and the usual folder "images" are left out."""
    if not resolution:
        return ""
    size = resolution.largest
    pixels = f"{size[0]:g}x{size[1]:g}" if size else ""
    folder = resolution.folder if resolution.folder != "images" else ""
    return ", ".join(filter(None, (resolution.used, pixels, folder)))


def amount(key: str, value: float | None) -> str:
    """Return a figure of a splat as text, formatted by the name of its field; bytes are in MiB; empty for None."""
    if value is None:
        return ""
    match key:
        case "psnr" | "psnr_covered":
            return f"{value:.2f}"
        case "ssim":
            return f"{value:.3f}"
        case "bytes":
            return f"{value / MIB:.1f}"
        case "seconds":
            return duration(value)
        case _:
            return f"{value:,.0f}"
