"""Facts about the colour correction of photographs: the solution of each scene, and the largest outliers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.colors import Colors, SceneColors, times_in_words
from splatbatch.report.facts import OutlierPhotograph, ReportedColors
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.tasks.shared_decisions.colors import in_words

MOST_SHOWN = 24
"""Most photographs that the report lists, over all scenes."""
LEAST_SEEN = 1.03
"""Least factor between a photograph's gain in a channel and the mean, up or down, at which the photograph is listed.

A smaller difference is hardly visible; outliers are listed at any factor.
"""


def colors_of(output: OutputFolder) -> tuple[ReportedColors, ...]:
    """Return the facts about the colour correction of each scene; empty if no photographs were examined.

    Also empty if colors.json cannot be read.

    The scene of the name "" stands for all patches together. At most MOST_SHOWN photographs are listed over all
    scenes: outliers first, then those farthest from the mean.

    Raises:
        LaterFormatError: a later version of splatbatch wrote colors.json.
    """
    solved = Colors.read(output.colors)
    scenes = {"": solved.together, **solved.scenes} if solved else {}
    told = {name: one for name, one in scenes.items() if one.tones or one.problem}
    chosen = sorted((each for name, one in told.items() for each in _unlike(name, one)), reverse=True)[:MOST_SHOWN]
    return tuple(
        _scene(name, one, [photo for _, _, scene, photo in chosen if scene == name]) for name, one in told.items()
    )


def _unlike(scene: str, solved: SceneColors) -> Iterator[tuple[bool, float, str, str]]:
    """Yield the photographs that differ visibly: whether from neighbours, log of the factor, scene, name."""
    times = _times(solved)
    for name, tone in solved.tones.items():
        far = abs(math.log(times[name])) if name in times else max(abs(math.log(one)) for one in tone.gain)
        if name in times or far >= math.log(LEAST_SEEN):
            yield name in times, far, scene, name


def _times(solved: SceneColors) -> Mapping[str, float]:
    return {one.name: one.times for one in solved.outliers if one.times and one.times > 0 and one.name in solved.tones}


def _scene(name: str, solved: SceneColors, photos: list[str]) -> ReportedColors:
    times = _times(solved)
    return ReportedColors(
        scene=name,
        is_even=solved.is_even,
        residual_before=solved.residual_before,
        residual_after=solved.residual_after,
        words=tuple(in_words(solved)),
        photographs=tuple(_photograph(photo, solved.tones[photo], times.get(photo)) for photo in photos),
    )


def _photograph(name: str, tone: ColorCorrection, times: float | None) -> OutlierPhotograph:
    beside = math.prod(tone.gain) ** (1 / 3)
    if times is not None:
        words = f"{times_in_words(times)} than its neighbours"
    elif abs(math.log(beside)) < math.log(LEAST_SEEN):
        words = "as bright as the mean photograph, with another tint"
    else:
        words = f"{times_in_words(beside)} than the mean photograph"
    return OutlierPhotograph(name, tone.gain, tuple(tone.values()), words)
