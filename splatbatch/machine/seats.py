"""How many patches to train on one GPU at once: more while all together get faster, fewer as soon as they do not.

Pure: what was measured in, a number out. With time slicing kernels of different processes never overlap, and the gain
is in the gaps between them: a trainer without gaps gains nothing, and then one at a time it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

GAIN = 1.05
"""One more must make all together faster by this, or it is not tried again."""
LOSS = 1.02
"""One fewer if all together are not faster by this than one fewer were: packing costs memory, and must pay."""
FEWEST_LOOKS = 3
MOST_LOOKS = 30
"""Later looks count, earlier ones are forgotten: Gaussians become more, and steps slower."""


@dataclass(frozen=True)
class Throughput:
    """What was measured while the number of patches in training did not change."""

    at_once: int
    steps_per_s: float
    """Of all together on one GPU."""


def how_many(now: int, looks: Sequence[Throughput], most: int, *, is_tight: bool = False) -> int:
    """Return how many patches are to train on a GPU at once.

    Not more than `most`, whatever was measured; where memory is tight one fewer than now.
    """
    if is_tight or now > most:
        return max(1, min(most, now - 1))
    paces = _paces(looks)
    here, fewer, more = paces.get(now), paces.get(now - 1), paces.get(now + 1)
    if here is None:
        return now
    if fewer is not None and here < LOSS * fewer:
        return now - 1
    if now < most and (more is None or more > GAIN * here):
        return now + 1
    return now


def _paces(looks: Iterable[Throughput]) -> Mapping[int, float]:
    """Return the median throughput by number at once, where enough was measured."""
    by_number: dict[int, list[float]] = {}
    for look in looks:
        by_number.setdefault(look.at_once, []).append(look.steps_per_s)
    return {
        number: statistics.median(paces[-MOST_LOOKS:])
        for number, paces in by_number.items()
        if len(paces) >= FEWEST_LOOKS
    }
