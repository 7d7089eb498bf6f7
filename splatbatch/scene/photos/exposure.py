"""The exposure of a photograph from its EXIF: time, aperture and sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatbatch.scene.photos.headers import opened_photograph

_EXIF, _TIME, _F_NUMBER, _ISO = 0x8769, 0x829A, 0x829D, 0x8827  # CIPA DC-008 (Exif 2.32), 4.6.5


@dataclass(frozen=True)
class Exposure:
    """Exposure settings of a photograph; 0 where its EXIF does not hold one."""

    time_s: float = 0.0
    f_number: float = 0.0
    iso: float = 0.0

    @property
    def logarithm(self) -> float:
        """Logarithm of the light on the sensor times its gain; NaN where time or sensitivity is unknown.

        An unknown aperture is taken as the same for all photographs of the lens.
        """
        if not (self.time_s and self.iso):
            return math.nan
        return math.log(self.time_s * self.iso) - 2 * math.log(self.f_number or 1.0)


UNKNOWN = Exposure()


def read_exposure(path: Path) -> Exposure:
    """Return the exposure of a photograph; unreadable files and broken EXIF give `UNKNOWN`, nothing raises."""
    try:
        with opened_photograph(path) as file:
            told = file.getexif().get_ifd(_EXIF)
        return Exposure(_positive(told.get(_TIME)), _positive(told.get(_F_NUMBER)), _positive(told.get(_ISO)))
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return UNKNOWN


def _positive(value: Any) -> float:
    """Return a number above 0; 0 for anything else, as a fraction over 0, an empty field, or text."""
    first = value[0] if isinstance(value, tuple) and value else value
    try:
        number = float(first)
    except (TypeError, ValueError, ArithmeticError):
        return 0.0
    return number if 0 < number < math.inf else 0.0
