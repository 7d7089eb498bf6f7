"""The tone of a photograph: how it renders the colours of the scene."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tone:
    """How a photograph renders colours: photograph = scene x gain x falloff(r), per channel.

    In the encoded values of the file, 0 to 1.
    """

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """R, G, B; geometric mean over all photographs of a scene: 1."""
    vignetting: tuple[float, ...] = ()
    """v1, v2, ...: falloff(r) = exp(v1 r^2 + v2 r^4 + ...).

    r = distance from the principal point / half the diagonal of the photograph.
    """


NEUTRAL = Tone()
