"""Colour corrections of all photographs of a scene: colours are sampled, photographs linked, and corrections solved.

Photographs without a correction are reported with the reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.processes import num_cores
from splatbatch.scene.colmap.types import Floats, Ints, triple
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import middle
from splatbatch.scene.colors.observations import (
    LEAST,
    SCALE,
    LinkedObservations,
    Samples,
    TrackedPhoto,
    link,
    neighbours_median,
    read_samples,
    shots_of,
)
from splatbatch.scene.colors.solve import ColorObservations, Solution, solve
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.headers import Exposure, read_exposure
from splatbatch.text import plural

PAYS = 0.2
"""Share by which the residual (spread of a track's colours) must fall for `colors: auto` to correct photographs."""
LEAST_BEFORE = 0.005
"""Residual (a share of the colour) above which `colors: auto` corrects; less is rounding and noise."""
LEAST_SHARING = 4
"""Fewest photographs per lens, in the mean, from which each lens gets its own vignetting."""
FIELD_DIGITS = 3
"""Decimal digits of a stored shading grid; the grid is right within some percent, so that more would be noise."""
_COUNTING = "that others see, too, and that are not dark, clipped or masked"
OUTLIER = 1.2
"""A photograph this many times brighter or darker than its neighbours is reported as an outlier."""


@dataclass(frozen=True)
class SceneCorrections:
    """Colour corrections of a scene's photographs (`tones`), by image name; if nothing could be solved, a `problem`.

    `problem` is empty after a solution. `notes` are sentences for people about groups and light.
    """

    tones: Mapping[str, ColorCorrection] = field(default_factory=dict)
    vignetting: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Vignetting coefficients v1, v2 by camera id, or by id and aperture ("1 at f/8") where any camera has several.

    An aperture that EXIF lacks is "f/0". Cameras without vignetting are left out.
    """
    before: float = 0.0
    """Standard deviation of the colours of a track without correction, as a share; `after`: with correction.

    Both are 0 if there is a `problem`.
    """
    after: float = 0.0
    num_observations: int = 0
    """Number of observations that the solution fits; 0 if there is a `problem`."""
    outliers: Mapping[str, float] = field(default_factory=dict)
    """How many times brighter than its neighbours a photograph is, by name, the largest deviation first.

    Photographs within a factor of `OUTLIER` (1.2) are left out.
    """
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """Names of photographs without a correction, with the reason.

    With a `problem`, photographs that could have been used are left out; all are if no model can be read.
    """
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_even(self) -> bool:
        """Whether `training.colors: auto` applies the corrections.

        They must lower the residual by a fifth (`PAYS`), from more than 0.005 (`LEAST_BEFORE`).
        """
        return bool(self.tones) and self.before > LEAST_BEFORE and self.after <= (1 - PAYS) * self.before


def solve_tones(patches: Iterable[Patch], cache: Path | None = None) -> SceneCorrections:
    """Return the colour corrections of the photographs of one scene.

    The result names the problem if no model can be read, fewer than two photographs can be used, or the system cannot
    be solved.

    Args:
        patches: the source reconstruction alone, or all patches together.
        cache: file that keeps the sampled colours between runs, read and written; None: no cache.
    """
    try:
        shots = shots_of(patches)
    except SceneError as error:
        return SceneCorrections(problem=error.message)
    few = {
        name: shot.problem or _too_few(len(shot.points), "that others see, too")
        for name, shot in shots.items()
        if shot.problem or len(shot.points) < LEAST
    }
    usable = [shot for name, shot in shots.items() if name not in few]
    if len(usable) < 2:
        return SceneCorrections(left_alone=few, problem=_why_none(shots))
    colors, unread = read_samples(usable, cache)
    usable = [shot for shot in usable if shot.name in colors]
    alone = few | unread
    if len(usable) < 2:
        return SceneCorrections(left_alone=alone, problem=": ".join(next(iter(unread.items()))))
    try:
        return _solved(usable, colors, alone)
    # numpy's LinAlgError is a ValueError; scipy raises RuntimeError
    except (ArithmeticError, ValueError, MemoryError, RuntimeError) as error:
        return SceneCorrections(left_alone=alone, problem=f"the system of equations cannot be solved ({error})")


def _too_few(number: int, of_what: str) -> str:
    return f"{plural(number, 'point')} {of_what}; {LEAST} are needed"


def _why_none(shots: Mapping[str, TrackedPhoto]) -> str:
    most = max((len(shot.points) for shot in shots.values()), default=0)
    if not most:
        return "the model has no tracks: no two photographs are known to see the same point"
    return f"no two photographs have {LEAST} points that others see, too (the most: {most})"


def _solved(shots: list[TrackedPhoto], colors: Mapping[str, Samples], alone: dict[str, str]) -> SceneCorrections:
    with ThreadPoolExecutor(num_cores()) as pool:
        exposures = list(pool.map(read_exposure, [shot.path for shot in shots]))
    lenses, lens_names = _lenses(shots, exposures)
    everything = _observations(shots, colors, lenses, np.array([one.logarithm for one in exposures]))
    linked = link(everything)
    is_in = linked.group >= 0
    if is_in.sum() < 2:
        most = int(np.bincount(everything.photo).max(initial=0))
        problem = f"no two photographs have {LEAST} points {_COUNTING} (the most: {most})"
        return SceneCorrections(left_alone=alone | _unusable(shots, everything, is_in), problem=problem)
    found = solve(linked.seen, linked.group)  # of all groups at once; then each group's gains are shifted to mean 0
    gains = np.where(is_in[:, None], found.gains, 0.0)
    for group in range(int(linked.group.max()) + 1):
        members = linked.group == group
        gains[members] -= gains[members].mean(axis=0)
    found = replace(found, gains=gains)
    names = [shot.name for shot in shots]
    alone |= _unusable(shots, everything, is_in)
    tones = {
        name: _tone(found, number, everything.camera[number]) for number, name in enumerate(names) if is_in[number]
    }
    brightness = found.gains.mean(axis=1)
    differs = brightness - neighbours_median(brightness, linked.shared, is_in)
    return SceneCorrections(
        tones=tones,
        vignetting={
            name: _coefficients(found.vignetting[lens])
            for name, lens in zip(lens_names, lenses, strict=True)
            if found.vignetting[lens].any()
        },
        before=found.before,
        after=found.after,
        num_observations=len(linked.seen.photo),
        outliers={
            names[one]: float(np.exp(differs[one]))
            for one in np.argsort(-np.abs(np.nan_to_num(differs)))
            if abs(differs[one]) >= np.log(OUTLIER)
        },
        left_alone=alone,
        notes=(*_groups(linked), *_drift(found), *_own_light(names, tones)),
    )


def _observations(
    shots: list[TrackedPhoto], colors: Mapping[str, Samples], lenses: Ints, exposures: Floats
) -> ColorObservations:
    """Return the observations of the photographs, numbered by their place in `shots`."""
    parts = [_part(number, shot, colors[shot.name]) for number, shot in enumerate(shots)]
    photo, point, color, place = (np.concatenate(column) for column in zip(*parts, strict=True))
    point = np.unique(point, return_inverse=True)[1].astype(np.int64)
    radius, (axes, slopes) = (place**2).sum(axis=1), _directions(shots)
    return ColorObservations(photo, point, color, place, radius, lenses, axes, slopes, exposures)


def _directions(shots: list[TrackedPhoto]) -> tuple[Floats, Floats]:
    """Return axes [N, 3] and slopes [N, 2, 3] of photographs; all 0 if any lacks a pose or a focal length."""
    rotations = np.array([shot.rotation for shot in shots])
    half = [np.hypot(*shot.camera.size) / 2 for shot in shots]
    # a panorama has none
    focal = np.array([shot.camera.pinhole[:2] if shot.camera.has_center else (0.0, 0.0) for shot in shots])
    if not (np.isfinite(rotations).all() and (focal > 0).all()):
        return np.zeros((len(shots), 3)), np.zeros((len(shots), 2, 3))
    return rotations[:, 2], rotations[:, :2] * (np.array(half)[:, None] / focal)[:, :, None]


def _lenses(shots: list[TrackedPhoto], exposures: list[Exposure]) -> tuple[Ints, list[str]]:
    """Return the lens number of each photograph, and its name: camera and aperture.

    With fewer than `LEAST_SHARING` photographs per lens in the mean the aperture is ignored. If there are still fewer,
    all cameras of one size count as one lens.
    """
    cameras = [shot.camera for shot in shots]
    at = [(shot.camera, exposure.f_number) for shot, exposure in zip(shots, exposures, strict=True)]
    choices: list[list[Hashable]] = [[*at], [*cameras], [camera.size for camera in cameras]]
    keys = next((one for one in choices if len(set(one)) * LEAST_SHARING <= len(shots)), choices[-1])
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    has_several = keys == at and len(set(at)) > len(set(cameras))
    names = [f"{camera.id} at f/{f_number:g}" if has_several else str(camera.id) for camera, f_number in at]
    return np.array([numbers[key] for key in keys], np.int64), names


def _part(number: int, shot: TrackedPhoto, samples: Samples) -> tuple[Ints, Ints, Floats, Floats]:
    counts = samples[:, 0] > 0
    center, half = middle(shot.camera), np.hypot(*shot.camera.size) / 2
    color = np.log(samples[counts] / (255.0 * SCALE))
    return np.full(int(counts.sum()), number), shot.points[counts], color, (shot.xy[counts] - center) / half


def _tone(found: Solution, number: int, camera: int) -> ColorCorrection:
    right, down = map(float, found.tilts[number])
    tone = ColorCorrection(triple(np.exp(found.gains[number])), _coefficients(found.vignetting[camera]), (right, down))
    if not found.fields[number].any():
        return tone
    own, tint = ([round(float(one), FIELD_DIGITS) for one in row[number]] for row in (found.fields, found.tints))
    return replace(tone, shading_grid=tuple(own), shading_color=triple(tint))


def _coefficients(values: Floats) -> tuple[float, ...]:
    return tuple(float(one) for one in values) if values.any() else ()


def _unusable(shots: list[TrackedPhoto], seen: ColorObservations, is_in: NDArray[np.bool_]) -> dict[str, str]:
    counts = np.bincount(seen.photo, minlength=len(shots))
    why = "shares too few points with the other photographs"
    return {
        shot.name: _too_few(int(count), _COUNTING) if count < LEAST else why
        for shot, count, has_tone in zip(shots, counts, is_in, strict=True)
        if not has_tone
    }


def _groups(linked: LinkedObservations) -> Iterable[str]:
    sizes = np.bincount(linked.group[linked.group >= 0])
    if len(sizes) > 1:
        told = ", ".join(map(str, sorted(sizes.tolist(), reverse=True)))
        yield f"the photographs form {len(sizes)} groups that share no points ({told}): each is corrected by itself"


def _own_light(names: list[str], tones: Mapping[str, ColorCorrection]) -> Iterable[str]:
    """Yield a note on photographs with a shading grid of their own, if there are any."""
    lit = [name for name in names if name in tones and tones[name].shading_grid]
    if lit:
        num = plural(len(lit), "photograph")
        yield f"light that others do not have, as where the sun breaks in, is corrected in {num}, for example {lit[0]}"


def _drift(found: Solution) -> Iterable[str]:
    """Yield a note on how the gains drift over the scene, and whether the drift is corrected."""
    if found.drift is None:
        return
    size = f"{100 * np.expm1(found.drift.drift):.0f} %"
    if not found.tilts.any():
        why = "not in EXIF" if found.drift.has_exposures else "EXIF is missing"
        yield f"brightness drifts by {size} over the scene, {why}: corrected; training.colors: as_is keeps the drift"
    elif found.drift.has_exposures:
        yield f"all photographs are brighter on one side: corrected as sunlight, not as a drift of exposures by {size}"
    else:
        yield (
            f"brightness drifts by {size} over the scene, and without EXIF it may be the sun or the exposures: "
            "the drift is left as photographed"
        )
