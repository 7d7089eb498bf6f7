"""Relates the size of a photograph to the size of its camera. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

Size = tuple[int, int]
"""Width and height in pixels."""
FEW_PX = 4
"""Largest difference in pixels that may be rounding or a crop; the sizes alone do not tell which."""
_FEW_SHARE = 0.1  # of the side: 4 px of a thumbnail are not few
_WORDS = {2: "a half", 3: "a third", 4: "a quarter", 8: "an eighth", 16: "a sixteenth"}


@dataclass(frozen=True)
class SameSize:
    """The photograph has the size of its camera."""


@dataclass(frozen=True)
class ScaledSize:
    """Both sides of the photograph are `factor` times as long as the camera's, to the pixel."""

    factor: float


@dataclass(frozen=True)
class NearSize:
    """After scaling by `factor` up to 4 px are missing or too many on an axis; `off` holds the difference in pixels."""

    factor: float
    off: Size


@dataclass(frozen=True)
class TransposedSize:
    """Width and height are exchanged, and then scaled by `factor`."""

    factor: float


@dataclass(frozen=True)
class ShapeMismatch:
    """The photograph has another shape: cropped, padded, stretched or another camera's."""


Relation = SameSize | ScaledSize | NearSize | TransposedSize | ShapeMismatch


def relate(camera: Size, photo: Size) -> Relation:
    """Return how the size of a photograph relates to that of its camera; all sides must be positive."""
    turned = (camera[1], camera[0])
    if photo == camera:
        return SameSize()
    if photo == turned:
        return TransposedSize(1.0)
    if _is_few(camera, photo):
        return NearSize(1.0, (photo[0] - camera[0], photo[1] - camera[1]))
    if (factor := uniform_factor(camera, photo)) is not None:
        return ScaledSize(factor)
    if (factor := uniform_factor(turned, photo)) is not None:
        return TransposedSize(factor)
    return _scaled_and_few(camera, photo)


def uniform_factor(camera: Size, photo: Size) -> float | None:
    """Return one factor that explains both sides, each rounded up or down to a pixel; None if none does."""
    low = max((photo[axis] - 1) / camera[axis] for axis in (0, 1))
    high = min((photo[axis] + 1) / camera[axis] for axis in (0, 1))
    if low >= high:
        return None
    for divisor in _WORDS:
        if low < 1 / divisor < high:
            return 1 / divisor
    return (photo[0] / camera[0] + photo[1] / camera[1]) / 2


def spell_factor(factor: float) -> str:
    """Return the scale in words: "images_4, a quarter", "2 times as large" or "37.5 % of the size"."""
    divisor = round(1 / factor)
    if divisor > 1 and abs(1 / factor - divisor) < 1e-9:
        return f"images_{divisor}, {_WORDS.get(divisor, f'1/{divisor}')}"
    if factor > 1:
        return f"{factor:.4g} times as large"
    return f"{100 * factor:.4g} % of the size"


def size_text(size: Size) -> str:
    """Return the size as text: "1548x1357"."""
    return f"{size[0]}x{size[1]}"


def _is_few(expected: tuple[float, float], photo: Size) -> bool:
    return all(abs(photo[axis] - expected[axis]) <= min(FEW_PX, _FEW_SHARE * expected[axis]) for axis in (0, 1))


def _scaled_and_few(camera: Size, photo: Size) -> Relation:
    for axis in (0, 1):
        divisor = round(camera[axis] / photo[axis])
        factor = (
            1 / divisor if divisor and abs(camera[axis] / divisor - photo[axis]) < 1 else photo[axis] / camera[axis]
        )
        expected = (camera[0] * factor, camera[1] * factor)
        if _is_few(expected, photo):
            return NearSize(factor, (round(photo[0] - expected[0]), round(photo[1] - expected[1])))
    return ShapeMismatch()
