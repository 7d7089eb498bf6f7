"""What is said of a reconstruction: reconstruction.json, its section of the report, and what `--json` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.output.records.record import TypedRecord

OURS = "reconstruction.json"
"""Beside sparse/ and images/: what was made, and by which plan."""
COPIES = "images"
"""Where the photographs lie without distortion."""
MOST_NAMED = 12
VERTICAL = "EXIF altitudes have no vertical datum, so that no scene.crs is written."


@dataclass(frozen=True)
class RegisteredImage(TypedRecord):
    """A photograph that registered: where it stands in the model, and what speaks against that."""

    name: str = ""
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    error_px: float | None = None
    """Mean reprojection error of its points."""
    gps_m: float | None = None
    """From its GPS position, in the plane."""


@dataclass(frozen=True)
class GpsFit(TypedRecord):
    """How well the GPS positions of the photographs fit the model."""

    photographs: int = 0
    mean_m: float = 0.0
    median_m: float = 0.0
    most_m: float = 0.0
    """In the plane, over all photographs that have a position."""
    height_m: float = 0.0
    """In height, in the mean."""
    scale: float = 1.0
    """Metres per unit of the mapping."""
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Latitude, longitude and EXIF altitude of the model's origin."""
    upright_by: str = ""
    """What says where up is: gps, or the photographs where positions are too rough."""
    vertical: str = VERTICAL


@dataclass(frozen=True)
class OtherComponent(TypedRecord):
    """Photographs that fit together, and not to the model."""

    photographs: tuple[str, ...] = ()
    of_theirs: str = ""
    of_ours: str = ""
    """The two photographs that fit together best."""
    matches: int = 0


@dataclass(frozen=True)
class ReconstructionRecord(TypedRecord):
    """reconstruction.json: the model that photographs gave, and which of them have no pose."""

    given: int = 0
    registered: int = 0
    components: tuple[int, ...] = ()
    """Photographs of each component, the largest first, which is the model."""
    others: tuple[OtherComponent, ...] = ()
    points: int = 0
    reprojection_px: float = 0.0
    track_length: float = 0.0
    observations: float = 0.0
    """Of a photograph, in the mean."""
    cameras: tuple[str, ...] = ()
    mapper: str = ""
    why_mapper: str = ""
    pairing: str = ""
    why_pairing: str = ""
    pairs: int = 0
    notes: tuple[str, ...] = ()
    gps: GpsFit | None = None
    rig_baselines: tuple[float, ...] = ()
    """Of each camera of a rig from its reference."""
    placed: tuple[RegisteredImage, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    """Photographs that did not register, and why."""
    advice: tuple[str, ...] = ()
    key: str = ""
    """Of the plan."""

    def in_words(self) -> list[str]:
        """Return what to tell of it, line by line."""
        cut = f" in {len(self.components)} components" if len(self.components) > 1 else ""
        lines = [
            f"{self.registered} of {self.given} photographs registered{cut}; {self.points:,} points, tracks of"
            f" {self.track_length:.1f}, reprojection {self.reprojection_px:.2f} px",
            f"pairs: {self.why_pairing} ({self.pairs:,}); mapping: {self.why_mapper}",
        ]
        if self.gps:
            fit = self.gps
            lines.append(
                f"GPS: {fit.mean_m:.2f} m off in the plane in the mean, {fit.height_m:.2f} m in height; the model is in"
                f" metres, x east, y north, z up; upright by {fit.upright_by}. {fit.vertical}"
            )
        lines += self.notes
        lines += [f"{name}: not registered: {why}" for name, why in [*self.missing.items()][:MOST_NAMED]]
        lines += [f"and {len(self.missing) - MOST_NAMED} more did not"] if len(self.missing) > MOST_NAMED else []
        return [*lines, *self.advice]


def check_output_folder(out: Path) -> None:
    """Check that no file of another program stands where the model goes.

    Raises:
        OutputError: something does.
    """
    for name in ("sparse", COPIES):
        if (out / name).exists() and not (out / OURS).exists():
            message = f"{out / name} exists and was not made by splatbatch reconstruct"
            raise OutputError(message, "Name another folder with --out.")
