"""The record of a finished reconstruction: reconstruction.json, also shown in the report and printed by `--json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.output.records.record import TypedRecord

OURS = "reconstruction.json"
"""Name of the file beside sparse/ and images/ that holds a ReconstructionRecord.

The file marks both folders as made by splatbatch, so that `reconstruct` may replace them.
"""
COPIES = "images"
"""Name of the folder of the undistorted photographs, beside sparse/."""
MOST_NAMED = 12
"""Most photographs or components (groups of photographs mapped together) that a message names."""
VERTICAL = "EXIF altitudes have no vertical datum, so that no scene.crs is written."


@dataclass(frozen=True)
class RegisteredImage(TypedRecord):
    """A registered photograph: the position of its camera in the model, and the errors of that position."""

    name: str = ""
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Centre of the camera x y z, in the model's coordinates."""
    error_px: float | None = None
    """Mean reprojection error of the points that the photograph observes, in pixels; None: it observes none."""
    gps_m: float | None = None
    """Horizontal distance of the camera from its GPS position, in metres.

    None if the photograph has no usable GPS position, or the model is not georeferenced.
    """


@dataclass(frozen=True)
class GpsFit(TypedRecord):
    """Georeference of the model, and how well the GPS positions of the photographs fit it."""

    photographs: int = 0
    """Number of registered photographs with a usable GPS position."""
    mean_m: float = 0.0
    """Mean horizontal distance of a camera from its GPS position, in metres."""
    median_m: float = 0.0
    """Median horizontal distance of a camera from its GPS position, in metres."""
    most_m: float = 0.0
    """Largest horizontal distance of a camera from its GPS position, in metres."""
    height_m: float = 0.0
    """Mean absolute difference in height between a camera and its GPS position, in metres."""
    scale: float = 1.0
    """Metres per unit of the model before the georeference."""
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Latitude and longitude in degrees, and EXIF altitude in metres, of the model's origin."""
    upright_by: str = ""
    """Source of the up direction: "gps", or if GPS is too inaccurate, the feature of the photographs that gave it."""
    vertical: str = VERTICAL
    """Sentence on the heights, for people."""


@dataclass(frozen=True)
class OtherComponent(TypedRecord):
    """A smaller component: photographs that were mapped together but do not connect to the model."""

    photographs: tuple[str, ...] = ()
    of_theirs: str = ""
    """Name of the component's photograph that has the most matches with a photograph of the model; else its first."""
    of_ours: str = ""
    """Name of the model's photograph that has the most matches with `of_theirs`; empty: no photograph has any."""
    matches: int = 0
    """Number of matches between `of_theirs` and `of_ours`; 0: no photograph of the component matches the model."""


@dataclass(frozen=True)
class ReconstructionRecord(TypedRecord):
    """Content of reconstruction.json: figures of the model, and which photographs have no pose and why.

    `pairing` and `mapper` are those of the plan, `why_pairing` and `why_mapper` the reasons in words. `pairs` is the
    number of matched pairs.
    """

    given: int = 0
    """Number of photographs in the folder, including files that could not be used."""
    registered: int = 0
    """Number of photographs in the model, whose poses were found."""
    components: tuple[int, ...] = ()
    """Number of photographs in each component (photographs mapped together), largest first; the first is the model."""
    others: tuple[OtherComponent, ...] = ()
    """The smaller components, largest first; empty: there are none."""
    points: int = 0
    reprojection_px: float = 0.0
    """Mean reprojection error of the model's points, in pixels."""
    track_length: float = 0.0
    """Mean number of photographs that observe a point of the model."""
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
    """Georeference of the model; None: GPS does not fix one, so that place, scale and up direction are arbitrary."""
    rig_baselines: tuple[float, ...] = ()
    """Distance of each camera of a rig from the rig's reference camera, in units of the model; empty: no rig.

    Cameras whose pose in the rig is unknown are left out.
    """
    placed: tuple[RegisteredImage, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    """Reason why a photograph has no pose in the model, by its name; empty: all were registered."""
    advice: tuple[str, ...] = ()
    key: str = ""
    """Hash of the plan that the model was made by; empty: another program wrote the file."""

    def in_words(self) -> list[str]:
        """Return the summary for people, as lines: figures, GPS, notes, at most MOST_NAMED missing ones, advice."""
        cut = f" in {len(self.components)} groups that could not be joined" if len(self.components) > 1 else ""
        lines = [
            f"{self.registered} of {self.given} photographs registered{cut}; {self.points:,} points, each seen by"
            f" {self.track_length:.1f} photographs on average; reprojection error {self.reprojection_px:.2f} px",
            f"{self.pairs:,} pairs matched, {self.why_pairing}; mapping {self.why_mapper}",
        ]
        if self.gps:
            fit = self.gps
            lines.append(
                f"GPS: cameras are on average {fit.mean_m:.2f} m from their GPS positions horizontally,"
                f" {fit.height_m:.2f} m in height. The model is in metres, x east, y north, z up; up"
                f" direction from {fit.upright_by}. {fit.vertical}"
            )
        lines += self.notes
        lines += [f"{name}: not registered: {why}" for name, why in [*self.missing.items()][:MOST_NAMED]]
        lines += (
            [f"and {len(self.missing) - MOST_NAMED} more photographs were not registered"]
            if len(self.missing) > MOST_NAMED
            else []
        )
        return [*lines, *self.advice]


def check_output_folder(out: Path) -> None:
    """Check that `reconstruct` may write sparse/ and images/ into the folder `out`.

    Neither exists, or an earlier reconstruction made them, so that they may be replaced.

    Raises:
        OutputError: sparse/ or images/ exists without reconstruction.json beside it.
    """
    for name in ("sparse", COPIES):
        if (out / name).exists() and not (out / OURS).exists():
            message = f"{out / name} exists and was not made by splatbatch reconstruct"
            raise OutputError(message, "Name another folder with --out.")
