"""The figures of an inspection: their limits, what they mean, and what to do where one is beyond its limit.

The limits were chosen on splats of the quarry (p0, p1) and of 24 drone photographs (caliterra). These were trained on
the CPU for 300 to 1,500 steps of mcmc (seeds 1 to 3, 11, 12; after 81 to 84 the limit of veil was raised). The same
splats were measured with planted defects (planting seeds 1 to 4). The limits of floaters and of blur were raised after
four splats of caliterra at full size (3,000 steps of default on a GPU). The comment at each limit has the largest value
of sound splats, and the smallest of splats with that defect planted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from splatbatch.output.records.quality import QualityFigure


@dataclass(frozen=True)
class FigureLimit:
    """A figure of the inspection with its limit, its unit, and the texts of the report.

    The value of a sound splat is at most `limit`; `meaning` completes the value to a sentence.
    """

    name: str
    limit: float
    unit: str
    meaning: str
    advice: str


TABLE = (
    FigureLimit(  # 0.11, 0.51
        *("depth", 0.25, "share"),
        "of the model's points the surface is drawn elsewhere, by more than 5 % of the depth, or not at all",
        "Train longer, or with more Gaussians; if it stays, check the poses: splatbatch verify-dims --deep.",
    ),
    FigureLimit(  # 0.01, 0.20
        *("haze", 0.06, "opacity"),
        "stands before the scene in half of all pictures",
        "Photographs of changing exposure or weather make haze: set training.colors, or leave them out.",
    ),
    FigureLimit(  # 0.19, 0.94
        *("veil", 0.4, "opacity"),
        "stands before a single camera beyond what stands before the others",
        "Look at the named photographs: something close to the camera, or a wrong pose, made floaters there.",
    ),
    FigureLimit(  # 0.015 at full size on a GPU, 0.016
        *("floaters", 0.0155, "share"),
        "of the opaque mass floats before what the cameras see",
        "Merge with --clean, which leaves floaters out, or add photographs from the sides.",
    ),
    FigureLimit(  # 0.001, 0.03
        *("holes", 0.01, "share"),
        "of the points has no surface half a baseline beside the cameras",
        "Photograph from between the cameras as well, or raise training.cap_max.",
    ),
    FigureLimit(  # 0; after 20 steps of mcmc 0.5 (quarry, full size) and 5.3 (caliterra, a quarter)
        *("fidelity", 0, "dB"),
        "are held-out photographs shown worse than a blur of them, on the pixels that training photographs see",
        "Train longer, or with more Gaussians; if it stays, check the poses: splatbatch verify-dims --deep.",
    ),
    FigureLimit(  # 0.055, 0.092
        *("coverage", 0.075, "share"),
        "of the surface, its outermost tenth aside, is seen by fewer than three photographs",
        "Take photographs of the weak cells: the report's map shows them.",
    ),
    FigureLimit(  # 0.07 octaves
        *("blurred", 0, "photographs"),
        "have clearly less detail than others of the same points",
        "Leave the named photographs out, or take them again.",
    ),
    FigureLimit(  # 0.08 stops
        *("exposure", 0, "photographs"),
        "are clearly brighter or darker than others of the same points",
        "Let training.colors even them, or leave the named photographs out.",
    ),
    FigureLimit(  # 1.6 times
        *("misregistered", 0, "photographs"),
        "stand elsewhere than the model says",
        "Register the named photographs again, or leave them out.",
    ),
)
BLURRED_OCTAVES, EXPOSED_STOPS, ERROR_TIMES, SHIFTED = 0.4, 0.4, 3.0, 8.0
"""Limits above which a photograph is named as harmful.

Octaves less detail; stops of brightness; times the usual reprojection error; shift against its rendering, in 1/1000 of
the width. Sound photographs: 0.07 (0.56 at full size), 0.08, 1.6 and 0.
"""
BLURRED_SPREADS = 4.5
"""Least number of robust standard deviations by which a blurred photograph has less detail.

It is required beside `BLURRED_OCTAVES`, since at full size the detail of sound photographs differs more. Sound: 4.3;
blurred by 1.5 pixels, at full size: 6 and more.
"""
TO_DEVIATION = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
MOST_AT_FAULT = 1 / 3
"""Largest share of photographs that are named for a shift: where more are shifted, the splat is wrong, not they."""


@dataclass(frozen=True)
class FigureValue:
    """Measured value of a figure, and the photographs that it names."""

    value: float | None
    subjects: tuple[str, ...] = ()
    why: str = ""
    """Why there is no value; shown only where `value` is None."""


def figures(values: Mapping[str, FigureValue]) -> tuple[QualityFigure, ...]:
    """Return all figures of `TABLE` with their limits and texts; figures that are not in `values` have no value."""
    found = []
    for row in TABLE:
        one = values.get(row.name, FigureValue(None))
        known = None if one.value is None else round(one.value, 5)
        found.append(
            QualityFigure(
                row.name,
                known,
                row.limit,
                row.unit,
                one.subjects,
                row.meaning,
                row.advice,
                "" if known is not None else one.why,
            )
        )
    return tuple(found)


def limit_of(name: str) -> float:
    """Return the limit of a figure of `TABLE` by its name."""
    return next(row.limit for row in TABLE if row.name == name)


def named(values: Mapping[str, float], limit: float) -> tuple[str, ...]:
    """Return the photographs whose value exceeds a limit, the largest value first."""
    over = [name for name in values if values[name] > limit]
    return tuple(sorted(over, key=lambda name: (-values[name], name)))


def blur_limit(values: Iterable[float]) -> float:
    """Return how many octaves less detail a photograph must have to count as blurred, by the spread of all values."""
    known = [*values]
    if not known:
        return BLURRED_OCTAVES
    middle = median(known)
    return max(BLURRED_OCTAVES, BLURRED_SPREADS * TO_DEVIATION * median(abs(one - middle) for one in known))


def count(names: Sequence[str]) -> FigureValue:
    """Return the number of named photographs as a figure that names them."""
    return FigureValue(float(len(names)), tuple(names))
