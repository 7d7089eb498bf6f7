"""How a photograph was exposed: exposure time, aperture and sensitivity, as its EXIF says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatbatch.scene.photos.headers import opened_photograph

_EXIF, _TIME, _F_NUMBER, _ISO = 0x8769, 0x829A, 0x829D, 0x8827  # CIPA DC-008 (Exif 2.32), 4.6.5


@dataclass(frozen=True)
class Exposure:
    """What a camera was set to, as far as it says; 0 where it does not."""

    time_s: float = 0.0
    f_number: float = 0.0
    iso: float = 0.0

    @property
    def logarithm(self) -> float:
        """The logarithm of the light that the sensor got, times its gain; NaN where time or sensitivity is unknown.

        A lens that tells no aperture has one for all its photographs, as far as anybody knows.
        """
        if not (self.time_s and self.iso):
            return math.nan
        return math.log(self.time_s * self.iso) - 2 * math.log(self.f_number or 1.0)


UNKNOWN = Exposure()


def read_exposure(path: Path) -> Exposure:
    """Return how a photograph was exposed; whatever its EXIF or the file holds, nothing is raised."""
    try:
        with opened_photograph(path) as file:
            told = file.getexif().get_ifd(_EXIF)
        return Exposure(_positive(told.get(_TIME)), _positive(told.get(_F_NUMBER)), _positive(told.get(_ISO)))
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return UNKNOWN


def _positive(value: Any) -> float:
    """Return a number above 0; 0 for anything else: a fraction over 0, an empty field, text."""
    first = value[0] if isinstance(value, tuple) and value else value
    try:
        number = float(first)
    except (TypeError, ValueError, ArithmeticError):
        return 0.0
    return number if 0 < number < math.inf else 0.0
