"""The figures of an inspection: their limits, what they mean, and what to do where one is beyond its limit.

The limits were chosen on splats of the quarry (p0, p1) and of 24 drone photographs (caliterra). These were trained on
the CPU for 300 to 1,500 steps of mcmc (seeds 1 to 3, 11, 12; after 81 to 84 the limit of veil was raised). The same
splats were measured with planted defects (planting seeds 1 to 4). The limits of floaters and of blur were raised after
four splats of caliterra at full size (3,000 steps of default on a GPU). The comment at each limit has the largest value
of sound splats, and the smallest of splats with that defect planted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from splatbatch.output.records.quality import QualityFigure

VEIL = 0.4
"""Limit of the opacity before a single camera; also names the photographs."""
TABLE = (
    QualityFigure(  # 0.11, 0.51
        *("depth", None, 0.25, "share", ()),
        "of the model's points the surface is drawn elsewhere, by more than 5 % of the depth, or not at all",
        "Train longer, or with more Gaussians; if it stays, check the poses: splatbatch verify-dims --deep.",
    ),
    QualityFigure(  # 0.01, 0.20
        *("haze", None, 0.06, "opacity", ()),
        "stands before the scene in half of all pictures",
        "Photographs of changing exposure or weather make haze: set training.colors, or leave them out.",
    ),
    QualityFigure(  # 0.19, 0.94
        *("veil", None, VEIL, "opacity", ()),
        "stands before a single camera beyond what stands before the others",
        "Look at the named photographs: something close to the camera, or a wrong pose, made floaters there.",
    ),
    QualityFigure(  # 0.015 at full size on a GPU, 0.016
        *("floaters", None, 0.0155, "share", ()),
        "of the opaque mass floats before what the cameras see",
        "Merge with --clean, which leaves floaters out, or add photographs from the sides.",
    ),
    QualityFigure(  # 0.001, 0.03
        *("holes", None, 0.01, "share", ()),
        "of the points has no surface half a baseline beside the cameras",
        "Photograph from between the cameras as well, or raise training.cap_max.",
    ),
    QualityFigure(  # 0; after 20 steps of mcmc 0.5 (quarry, full size) and 5.3 (caliterra, a quarter)
        *("fidelity", None, 0, "dB", ()),
        "are held-out photographs shown worse than a blur of them, on the pixels that training photographs see",
        "Train longer, or with more Gaussians; if it stays, check the poses: splatbatch verify-dims --deep.",
    ),
    QualityFigure(  # 0.055, 0.092
        *("coverage", None, 0.075, "share", ()),
        "of the surface, its outermost tenth aside, is seen by fewer than three photographs",
        "Take photographs of the weak cells: the report's map shows them.",
    ),
    QualityFigure(  # 0.07 octaves
        *("blurred", None, 0, "photographs", ()),
        "have clearly less detail than others of the same points",
        "Leave the named photographs out, or take them again.",
    ),
    QualityFigure(  # 0.08 stops
        *("exposure", None, 0, "photographs", ()),
        "are clearly brighter or darker than others of the same points",
        "Let training.colors even them, or leave the named photographs out.",
    ),
    QualityFigure(  # 1.6 times
        *("misregistered", None, 0, "photographs", ()),
        "stand elsewhere than the model says",
        "Register the named photographs again, or leave them out.",
    ),
)
"""The figures in the order of reports; `meaning` completes a value to a sentence."""


def figure(name: str, value: float | None, subjects: Sequence[str] = (), why: str = "") -> QualityFigure:
    """Return a figure of `TABLE` with its value, the photographs that it concerns, and why it has no value if so."""
    row = next(row for row in TABLE if row.name == name)
    if value is None:
        return replace(row, subjects=tuple(subjects), why=why)
    return replace(row, value=round(value, 5), subjects=tuple(subjects))


def over(values: Mapping[str, float], limit: float) -> tuple[str, ...]:
    """Return the photographs whose value exceeds a limit, the largest value first."""
    found = [name for name in values if values[name] > limit]
    return tuple(sorted(found, key=lambda name: (-values[name], name)))
