"""The colour correction of a photograph: how the photograph renders the colours of the scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

NODES = 9
"""Number of nodes of a shading grid along each side, from -1 to 1 half diagonals about the principal point."""
_GAIN, _VIGNETTING, _TILT, _TINT = 3, 2, 2, 3


@dataclass(frozen=True)
class ColorCorrection:
    """Colour correction of one photograph: photograph = scene x gain x falloff(r) x shading, per channel.

    The correction acts on the encoded values of the file, 0 to 1.
    """

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Gain of R, G and B; the geometric mean over all photographs that are linked by shared points is 1."""
    vignetting: tuple[float, ...] = ()
    """Vignetting v1, v2, empty if there is none: falloff(r) = exp(v1 r^2 + v2 r^4).

    r = distance from the principal point / half the diagonal of the photograph.
    """
    shading_gradient: tuple[float, float] = (0.0, 0.0)
    """Shading gradient a, b: shading = exp(a x + b y), x right and y down from the principal point, in units of r.

    (a, b) points to the brighter side of the photograph, where all photographs share the sun's light; (0, 0): none.
    """
    shading_grid: tuple[float, ...] = ()
    """Light of this photograph alone, as where the sun comes through clouds: shading = exp(tint x grid); empty: none.

    The values are logarithms at NODES^2 nodes, row by row from the upper left, -1 to 1 in x and y, bilinear between.
    """
    shading_color: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Tint: factors by which R, G and B follow the shading grid; without a grid they have no effect."""

    def values(self) -> list[float]:
        """Return the correction as a list of numbers, as files hold it; `of` reads the list back.

        The numbers are gain R, G, B; v1, v2; gradient a, b; tint R, G, B; grid. Missing parts at the end are left out;
        a missing part before a present one is 0.
        """
        if not any(self.shading_gradient) and not self.shading_grid:
            return [*self.gain, *self.vignetting]
        light = [*self.shading_color, *self.shading_grid] if self.shading_grid else []
        return [*self.gain, *(*self.vignetting, 0.0, 0.0)[:_VIGNETTING], *self.shading_gradient, *light]

    @classmethod
    def of(cls, values: Sequence[float]) -> ColorCorrection:
        """Return the correction from numbers that `values` returned; missing parts have their defaults.

        Raises:
            ValueError: there are fewer than three numbers.
        """
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
"""Returns the colour correction of a photograph by its name."""


def neutral(_: str) -> ColorCorrection:
    """Return the correction that changes nothing, for any name: the `ToneOf` of scenes without colour correction."""
    return NEUTRAL
