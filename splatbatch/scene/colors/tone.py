"""The tone of a photograph: how it renders the colours of the scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TILTED = 4
"""Numbers after the gain where there is a tilt."""


@dataclass(frozen=True)
class Tone:
    """How a photograph renders colours: photograph = scene x gain x falloff(r) x shading, per channel.

    In the encoded values of the file, 0 to 1.
    """

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """R, G, B; geometric mean over all photographs of a scene: 1."""
    vignetting: tuple[float, ...] = ()
    """None, or v1, v2: falloff(r) = exp(v1 r^2 + v2 r^4).

    r = distance from the principal point / half the diagonal of the photograph.
    """
    tilt: tuple[float, float] = (0.0, 0.0)
    """a, b: shading = exp(a x + b y), x to the right and y down from the principal point, in the unit of r.

    Light that varies over a photograph, as where the sun comes through clouds.
    """

    def values(self) -> list[float]:
        """Return it as files hold it: gain R, G, B; v1, v2 where it fades or is tilted; a, b where it is tilted."""
        if not any(self.tilt):
            return [*self.gain, *self.vignetting]
        return [*self.gain, *(*self.vignetting, 0.0, 0.0)[:2], *self.tilt]

    @classmethod
    def of(cls, values: Sequence[float]) -> Tone:
        """Return the tone that `values` wrote."""
        red, green, blue, *others = values
        if len(others) < TILTED:
            return cls((red, green, blue), tuple(others[:2]))
        return cls((red, green, blue), tuple(others[:2]) if any(others[:2]) else (), (others[2], others[3]))


NEUTRAL = Tone()
ToneOf = Callable[[str], Tone]
"""Returns the tone of a photograph, by its name."""


def neutral(_: str) -> Tone:
    """Return the tone of a photograph that is as it should be."""
    return NEUTRAL
