"""Held-out views drawn: where they were taken from, and their PSNR by how far away the nearest trained one is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from splatbatch.plain_text import counted
from splatbatch.report.page.html import Html, join, tag

SIZE_PX, MARGIN_PX = 220, 16
POOREST, BEST = 0.25, 1.0
"""Opacity of a held-out view's dot, of the poorest and of the best."""
MOST_DOTS = 1500


def falloff_curve(held_out: Mapping[str, Mapping[str, float]]) -> Html | None:
    """Return the PSNR of held-out views over their distance in baselines; None for fewer than three."""
    known = {name: one for name, one in held_out.items() if {"psnr", "distance"} <= one.keys()}
    if len(known) < 3:
        return None
    far, good = ([one[key] for one in known.values()] for key in ("distance", "psnr"))
    low, high, most = min(good), max(good), max(far) or 1.0
    dots = []
    for name, one in list(known.items())[:MOST_DOTS]:
        x = MARGIN_PX + SIZE_PX * one["distance"] / most
        y = MARGIN_PX + SIZE_PX / 2 * (high - one["psnr"]) / ((high - low) or 1.0)
        words = f"{name}: {one['psnr']:.2f} dB, {one['distance']:.2f} baselines away"
        dots.append(_dot((x, y), words, {"fill": "#c33" if one.get("piece") else "currentColor"}))
    axis = tag("path", d=f"M{MARGIN_PX} {MARGIN_PX}V{MARGIN_PX + SIZE_PX // 2}H{MARGIN_PX + SIZE_PX}", **LINE)
    words = f"PSNR {low:.1f} to {high:.1f} dB of held-out views over their distance, 0 to {most:.1f} baselines"
    return _drawing([axis, *dots], (SIZE_PX, SIZE_PX // 2), words)


def holdout_map(cameras: Mapping[str, Mapping[str, float]], held_out: Mapping[str, Mapping[str, float]]) -> Html | None:
    """Return from where photographs were taken, seen from above: held-out ones the stronger the better they are."""
    places = {name: (one["x"], one["y"]) for name, one in {**cameras, **held_out}.items() if {"x", "y"} <= one.keys()}
    if len(places) < 2:
        return None
    left, top = min(x for x, _ in places.values()), max(y for _, y in places.values())
    right, bottom = max(x for x, _ in places.values()), min(y for _, y in places.values())
    scale = SIZE_PX / (max(right - left, top - bottom) or 1.0)
    psnrs = [one["psnr"] for one in held_out.values() if "psnr" in one] or [0.0]
    low, span = min(psnrs), (max(psnrs) - min(psnrs)) or 1.0
    dots = []
    for name, (x, y) in list(places.items())[:MOST_DOTS]:
        at, one = (MARGIN_PX + scale * (x - left), MARGIN_PX + scale * (top - y)), held_out.get(name, {})
        if "psnr" not in one:
            dots.append(_dot(at, name, LINE, 2))
            continue
        opacity = POOREST + (BEST - POOREST) * (one["psnr"] - low) / span
        look = {"fill": "#c33" if one.get("piece") else "#27c", "opacity": f"{opacity:.2f}"}
        dots.append(_dot(at, f"{name}: {one['psnr']:.2f} dB", look, 5))
    words = f"{counted(len(places), 'photograph')} from above, {len(held_out)} of them held out"
    return _drawing(dots, (scale * (right - left), scale * (top - bottom)), words)


LINE = {"fill": "none", "stroke": "currentColor"}


def _dot(at: tuple[float, float], words: str, look: Mapping[str, str], radius: int = 3) -> Html:
    return tag("circle", tag("title", words), cx=f"{at[0]:.1f}", cy=f"{at[1]:.1f}", r=radius, **look)


def _drawing(parts: Iterable[Html], size: tuple[float, float], words: str) -> Html:
    width, height = (round(side + 2 * MARGIN_PX) for side in size)
    drawn = tag("svg", join(parts), viewBox=f"0 0 {width} {height}", width=width, height=height, role="img")
    return tag("figure", drawn, tag("figcaption", f"{words}.", class_="quiet"))
