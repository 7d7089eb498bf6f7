"""certificate.json: what a splat is, how good it was found to be, and from what it was made; sealed by its own hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from splatbatch.files import read_json
from splatbatch.store.records.fingerprint import ORIGIN, Place
from splatbatch.store.records.quality.inspection import QualityFigure
from splatbatch.store.records.record import TypedRecord


@dataclass(frozen=True)
class Certificate(TypedRecord):
    """What is said of a splat to whoever is given it."""

    patch: str = ""
    grade: str = ""
    figures: tuple[QualityFigure, ...] = ()
    splat: str = ""
    """SHA-256 of the product."""
    num_gaussians: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """That decided what was computed."""
    settings_hash: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file that it was made from."""
    holdout: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of each photograph that it was not trained on: psnr in dB; x, y, z, where it was taken from, in the splat's
    coordinates; distance to the nearest trained one in baselines; piece: 1 where those around it are held out, too."""
    offset: Place = ORIGIN
    """Was taken off the coordinates of the model."""
    made_with: dict[str, str] = field(default_factory=dict)
    seal: str = ""
    """SHA-256 of all of the above."""

    def to_record(self) -> dict[str, Any]:
        """Return it as certificate.json holds it: what limits mean for a figure is not sealed with it."""
        figures = [{key: value for key, value in one.to_record().items() if key != "state"} for one in self.figures]
        return super().to_record() | {"figures": figures}

    def sealed(self) -> Certificate:
        """Return it with its seal."""
        return replace(self, seal=seal_of(self.to_record()))


def read_certificate(file: Path) -> dict[str, Any] | None:
    """Return what a file holds, as it is: whoever checks it needs all of it; None if that is no JSON object."""
    return read_json(file)


def seal_of(record: dict[str, Any]) -> str:
    """Return the seal of a certificate as its file holds it; what is not of a certificate is sealed as well."""
    told = {name: value for name, value in record.items() if name != "seal"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def lacks(record: dict[str, Any]) -> list[str]:
    """Return the keys of a certificate that a file has not."""
    return [one.name for one in fields(Certificate) if one.name not in record]
