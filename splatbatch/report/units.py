"""Formats figures, times and states as text for people."""

from __future__ import annotations

import math

from splatbatch.files import MIB
from splatbatch.output.records.metrics import Resolution

SIGNS = {
    "trained": "✓", "done": "✓", "failed": "✕", "refused": "✕",
    "stopped": "■", "running": "…", "stale": "↻", "waiting": "·",
}  # fmt: skip
"""Sign of each state of a patch or stage, shown beside its colour for people who do not see colours."""


def figure(value: float, digits: int = 4) -> str:
    """Return a number with few digits: 0.0831, 26.54, 12.4k, 1.2M.

    Below 10,000 there are up to `digits` significant digits, or as many as the whole number has if these are more.
    From there on there are up to three, with k (10^3), M (10^6) or G (10^9).
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Return a time span in seconds as text: "12.3 s", "4:05 min", "2:10 h"; empty if None or not finite."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def photographs(resolution: Resolution | None) -> str:
    """Return the resolution of photographs as text: "1/8, 618x411, images_8".

    The parts are the share of the full resolution, width x height of the largest photograph in pixels, and the folder.
    Unknown parts and the usual folder "images" are left out; empty for None.
    """
    if not resolution:
        return ""
    size = resolution.largest
    pixels = f"{size[0]:g}x{size[1]:g}" if size else ""
    folder = resolution.folder if resolution.folder != "images" else ""
    return ", ".join(filter(None, (resolution.used, pixels, folder)))


def amount(key: str, value: float | None) -> str:
    """Return a figure of a splat as text; empty for None.

    Args:
        key: name of the figure, which decides the format: psnr, psnr_covered, ssim, bytes, seconds; else whole numbers.
        value: the figure; bytes are shown in MiB, seconds as a time span, PSNR without its unit dB.
    """
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
