"""The tone of a photograph: how it renders the colours of the scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

NODES = 9
"""Of a field, along each side of the square that reaches half a diagonal from the principal point."""
_GAIN, _VIGNETTING, _TILT, _TINT = 3, 2, 2, 3


@dataclass(frozen=True)
class ColorCorrection:
    """How a photograph renders colours: photograph = scene x gain x falloff(r) x shading, per channel.

    In the encoded values of the file, 0 to 1.
    """

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """R, G, B; geometric mean over all photographs of a scene: 1."""
    vignetting: tuple[float, ...] = ()
    """None, or v1, v2: falloff(r) = exp(v1 r^2 + v2 r^4).

    r = distance from the principal point / half the diagonal of the photograph.
    """
    shading_gradient: tuple[float, float] = (0.0, 0.0)
    """a, b: shading = exp(a x + b y), x to the right and y down from the principal point, in the unit of r.

    The sun's side of a photograph, where all of them share that light.
    """
    shading_grid: tuple[float, ...] = ()
    """None, or NODES^2 logarithms, row by row from the upper left, -1 to 1 in x and y; bilinear between them.

    Light of this photograph alone, as where the sun comes through clouds: shading = exp(tint x field).
    """
    shading_color: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """By how much R, G and B follow the field."""

    def values(self) -> list[float]:
        """Return it as files hold it: gain R, G, B; v1, v2; tilt a, b; tint R, G, B and field; what is last may lack.

        What comes before something that is there is 0 where there is none of it.
        """
        if self.shading_grid:
            return [
                *self.gain,
                *(*self.vignetting, 0.0, 0.0)[:_VIGNETTING],
                *self.shading_gradient,
                *self.shading_color,
                *self.shading_grid,
            ]
        if not any(self.shading_gradient):
            return [*self.gain, *self.vignetting]
        return [*self.gain, *(*self.vignetting, 0.0, 0.0)[:_VIGNETTING], *self.shading_gradient]

    @classmethod
    def of(cls, values: Sequence[float]) -> ColorCorrection:
        """Return the tone that `values` wrote."""
        (red, green, blue), others = values[:_GAIN], values[_GAIN:]
        if len(others) < _VIGNETTING + _TILT:
            return cls((red, green, blue), tuple(others[:_VIGNETTING]))
        vignetting, (a, b), light = tuple(others[:2]), others[2:4], others[_VIGNETTING + _TILT :]
        tone = cls((red, green, blue), vignetting if any(vignetting) else (), (a, b))
        if len(light) < _TINT + NODES * NODES:
            return tone
        (r, g, b), field = light[:_TINT], light[_TINT : _TINT + NODES * NODES]
        return cls(tone.gain, tone.vignetting, tone.shading_gradient, tuple(field), (r, g, b))


NEUTRAL = ColorCorrection()
ToneOf = Callable[[str], ColorCorrection]
"""Returns the tone of a photograph, by its name."""


def neutral(_: str) -> ColorCorrection:
    """Return the tone of a photograph that is as it should be."""
    return NEUTRAL
