"""Displacement fields: how photographs show points elsewhere than the model says (zoom, offset, turn, lens).

Squares of a pair of photographs (see `ncc_patches`) are shifted by the difference of the two photographs' fields. The
shift is linear in the six numbers of a field, so that least squares give the numbers. What no pair can tell (an offset
common to cameras that look in one direction) stays 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.image_match.ncc_patches import MatchView, Places, shifts
from splatbatch.scene.image_match.pairs import ImagePair

_FOUND = 0.6  # correlation of a square that was found again
_PRIOR = np.array([0.1, 0.05, 0.05, 0.05, 0.05, 0.3])  # how large each number usually is at most
_COMMON = np.array([0.1, 0.05, 0.002, 0.002, 0.002, 0.3])  # where cameras look alike, no pair tells these three
_NOISE = 0.3  # steps: of a shift
_ROUNDS = 6
LEAST_SQUARES = 12
"""Fewest squares found in both photographs of a pair, of all pairs together, from which a field is computed."""


@dataclass(frozen=True)
class DisplacementField:
    """Displacement of a photograph against the model: six numbers about the middle of the photograph; 0: none."""

    zoom: float = 0.0
    """Enlargement about the middle: 0.01 for 1 %."""
    stretch: float = 0.0
    """Further enlargement in x, and equal reduction in y: 0.01 for 1 % each."""
    right: float = 0.0
    down: float = 0.0
    """Offset to the right and downwards, in focal lengths."""
    turn: float = 0.0
    """Turn clockwise, in radians."""
    lens: float = 0.0
    """Radial distortion k1: displacement by k1 r^3, where r is the distance from the middle in focal lengths."""

    @property
    def numbers(self) -> Floats:
        """All six numbers in order of declaration (zoom, stretch, right, down, turn, lens), [6]."""
        return np.array([self.zoom, self.stretch, self.right, self.down, self.turn, self.lens])

    def __add__(self, other: DisplacementField) -> DisplacementField:
        return DisplacementField(*(float(value) for value in self.numbers + other.numbers))

    def place(self, view: MatchView) -> Places:
        """Return the map from places in the camera's image to places in the displaced photograph.

        Places are shares of the sides, [N, 2]. The map contains the view's own map, if there is one.
        """
        height, width = view.picture.shape
        focal, size, before = view.focal, np.array([width, height]), view.place

        def placed(shares: Floats) -> Floats:
            known = before(shares) if before else shares
            away = (known - 0.5) * size / focal
            return known + _terms(away) @ self.numbers * focal / size

        return placed

    def parts(self, places: Floats) -> dict[str, float]:
        """Return how far each number displaces places of the photograph: root mean squares, in focal lengths.

        The keys are zoom, stretch, right, down, turn and lens. The places [N, 2] are in focal lengths from the middle.
        """
        moved = np.sqrt(((_terms(places) * self.numbers) ** 2).sum(axis=1).mean(axis=0))
        return dict(zip(("zoom", "stretch", "right", "down", "turn", "lens"), map(float, moved), strict=True))

    def size(self, places: Floats) -> float:
        """Return how far the field displaces places of the photograph, root mean square, in focal lengths.

        The places [N, 2] are in focal lengths from the middle. Beyond those that a field was computed from its size
        means little: a lens grows with the cube of the distance.
        """
        return float(np.sqrt(((_terms(places) @ self.numbers) ** 2).sum(axis=1).mean()))


def _terms(away: Floats) -> Floats:
    """Return the displacement per unit of each number at `away` [N, 2], in focal lengths from the middle: [N, 2, 6]."""
    x, y = away.T
    zero, one, square = np.zeros(len(away)), np.ones(len(away)), x**2 + y**2
    return np.stack([np.stack([x, x, one, zero, -y, x * square], 1), np.stack([y, -y, zero, one, x, y * square], 1)], 1)


@dataclass(frozen=True, eq=False)
class DisplacementEquations:
    """Linear equations for the fields of a pair's two pictures, two for each of m squares.

    steps = other @ (numbers of the other picture's field) - one @ (numbers of the first picture's field).
    """

    one: Floats  # [m, 2, 6]
    other: Floats  # [m, 2, 6]
    steps: Floats  # [m, 2]


def equations(pair: ImagePair, one: MatchView, other: MatchView) -> DisplacementEquations:
    """Return the equations from how far the squares of a pair are shifted from one picture to the other.

    Left out are squares that are not found in the other picture with a correlation above 0.6, or are seen edge-on.
    """
    squares, peak, steps = shifts(pair, one, other)
    slopes = [squares.slopes(view) for view in (one, other)]
    pixels = [view.pixels(pair.xyz) for view in (one, other)]
    usable = np.nan_to_num(peak, nan=-1.0) > _FOUND
    usable &= np.logical_and.reduce([np.isfinite(each).all(axis=(1, 2)) for each in slopes])
    usable &= np.logical_and.reduce([np.abs(np.linalg.det(np.nan_to_num(each))) > 1e-3 for each in slopes])
    sides = []
    for view, slope, places in zip((one, other), slopes, pixels, strict=True):
        away = (places[usable] - np.array(view.picture.shape[::-1]) / 2) / view.focal
        sides.append(np.asarray(np.linalg.solve(slope[usable], _terms(away) * view.focal), np.float64))
    return DisplacementEquations(sides[0], sides[1], steps[usable])


def solved(parts: Sequence[tuple[Floats, Floats]], *, is_common: bool = False) -> DisplacementField | None:
    """Return the field that fits equations best in robust least squares; None: fewer than 12 squares (`LEAST_SQUARES`).

    Equations that miss by more than most count less.

    Args:
        parts: for each pair, terms [m, 2, 6] and steps [m, 2]: terms @ (numbers of the field) should equal the steps.
        is_common: whether both pictures of each pair have the field; offset and turn are then believed small.
    """
    if sum(len(steps) for _, steps in parts) < LEAST_SQUARES:
        return None
    left = np.concatenate([terms.reshape(-1, 6) for terms, _ in parts])
    right = np.concatenate([steps.ravel() for _, steps in parts])
    weights, numbers, missed = np.ones(len(right)), np.zeros(6), np.abs(right)
    for _ in range(_ROUNDS):
        square = (left * weights[:, None]).T @ left + np.diag((_NOISE / (_COMMON if is_common else _PRIOR)) ** 2)
        numbers = np.linalg.solve(square, (left * weights[:, None]).T @ right)
        missed = np.abs(right - left @ numbers)
        weights = 1 / np.maximum(1.0, missed / max(0.1, 1.5 * float(np.median(missed)))) ** 2
    return DisplacementField(*map(float, numbers))


def shrunk(view: MatchView, times: int) -> MatchView:
    """Return a copy of the view with a smaller picture: each pixel the mean of `times` x `times` pixels.

    Rows and columns left over at the right and lower edge are cut off; for `times` 1 the view itself is returned.
    """
    if times == 1:
        return view
    height, width = (side // times * times for side in view.picture.shape)
    small = view.picture[:height, :width].reshape(height // times, times, width // times, times).mean(axis=(1, 3))
    return replace(view, picture=small.astype(np.uint8))
