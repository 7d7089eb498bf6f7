"""The record of a finished reconstruction: reconstruction.json, also shown in the report and printed by `--json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.output.records.record import TypedRecord

OURS = "reconstruction.json"
"""File beside sparse/ and images/ that holds a ReconstructionRecord and marks these folders as ours."""
COPIES = "images"
"""Folder of the undistorted photographs."""
MOST_NAMED = 12
"""Most photographs or components that a message names."""
VERTICAL = "EXIF altitudes have no vertical datum, so that no scene.crs is written."


@dataclass(frozen=True)
class RegisteredImage(TypedRecord):
    """A registered photograph: the position of its camera in the model, and the errors of that position."""

    name: str = ""
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Centre of the camera, in the model's coordinates."""
    error_px: float | None = None
    """Mean reprojection error of its points, in pixels; None if it has no points."""
    gps_m: float | None = None
    """Horizontal distance from its GPS position in metres; None if it has no GPS or the model is not georeferenced."""


@dataclass(frozen=True)
class GpsFit(TypedRecord):
    """Georeference of the model, and how well the GPS positions of the photographs fit it."""

    photographs: int = 0
    """Registered photographs with a GPS position."""
    mean_m: float = 0.0
    """Mean horizontal distance of a camera from its GPS position, in metres."""
    median_m: float = 0.0
    """Median of these horizontal distances, in metres."""
    most_m: float = 0.0
    """Largest of these horizontal distances, in metres."""
    height_m: float = 0.0
    """Mean absolute difference in height, in metres."""
    scale: float = 1.0
    """Metres per unit of the mapping."""
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Latitude, longitude and EXIF altitude of the model's origin."""
    upright_by: str = ""
    """Source of the up direction: "gps", or where GPS is too inaccurate, what in the photographs gave it."""
    vertical: str = VERTICAL


@dataclass(frozen=True)
class OtherComponent(TypedRecord):
    """A smaller component: photographs that were mapped together but do not connect to the model."""

    photographs: tuple[str, ...] = ()
    of_theirs: str = ""
    """Photograph of the component that has the most matches with the model."""
    of_ours: str = ""
    """Photograph of the model that these matches are with; empty if there is no match."""
    matches: int = 0
    """Number of matches between the two."""


@dataclass(frozen=True)
class ReconstructionRecord(TypedRecord):
    """Content of reconstruction.json: figures of the model, and which photographs have no pose and why."""

    given: int = 0
    """Photographs in the folder, including files that could not be used."""
    registered: int = 0
    """Photographs of the model."""
    components: tuple[int, ...] = ()
    """Number of photographs in each component, largest first; the first component is the model."""
    others: tuple[OtherComponent, ...] = ()
    points: int = 0
    reprojection_px: float = 0.0
    """Mean reprojection error in pixels."""
    track_length: float = 0.0
    """Mean number of photographs that observe a point."""
    observations: float = 0.0
    """Mean number of points that a registered photograph observes."""
    cameras: tuple[str, ...] = ()
    mapper: str = ""
    why_mapper: str = ""
    pairing: str = ""
    why_pairing: str = ""
    pairs: int = 0
    notes: tuple[str, ...] = ()
    gps: GpsFit | None = None
    rig_baselines: tuple[float, ...] = ()
    """Distance of each camera of a rig from the reference camera, in units of the model."""
    placed: tuple[RegisteredImage, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    """Photographs that did not register, and the reason for each."""
    advice: tuple[str, ...] = ()
    key: str = ""
    """Key of the plan that the model was made by."""

    def in_words(self) -> list[str]:
        """Return the summary for people, as lines."""
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
    """Check that sparse/ and images/ in the folder `out` do not exist, or were made by an earlier reconstruction.

    Raises:
        OutputError: one of them exists without reconstruction.json beside it.
    """
    for name in ("sparse", COPIES):
        if (out / name).exists() and not (out / OURS).exists():
            message = f"{out / name} exists and was not made by splatbatch reconstruct"
            raise OutputError(message, "Name another folder with --out.")
