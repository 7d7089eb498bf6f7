"""evaluation.json: how good the merged scene is; and settings.json of the attempt that measures it."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.output.records.metrics import CoveredSet, QualityFigures, TrainingSettings
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class SceneMeasurement(QualityFigures):
    """The merged scene on some photographs, beside the splats of the patches on the same ones."""

    num_photos: int = 0
    own_psnr: float | None = None
    """In the mean over those that a patch has measured: what the patch's own splat reached."""
    own_ssim: float | None = None
    answered_psnr: float | None = None
    """Of the merged scene on the pixels that `own_psnr` is of."""
    gain_db: float | None = None
    """`answered_psnr` less `own_psnr`, on the photographs that both have."""


@dataclass(frozen=True)
class PhotoMeasurement(QualityFigures):
    """The merged scene on one photograph."""

    home: str = ""
    """The patch whose core it sees most of; empty: it sees none."""
    own_psnr: float | None = None
    """Of the splat of that patch, on the pixels that it answers for."""
    answered: dict[str, float] = field(default_factory=dict)
    """PSNR of the merged scene on the pixels that each patch has measured itself on."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of the points that it sees, by core."""


@dataclass(frozen=True)
class SeamMeasurement(TypedRecord):
    """Where two patches meet: the merged scene on photographs that look across, and the patches' splats compared."""

    one: str = ""
    other: str = ""
    across: SceneMeasurement = SceneMeasurement()
    """The merged scene on the held-out photographs that look across."""
    num_views: int = 0
    """Cameras from which both sides were rendered."""
    share: float | None = None
    """Of the pixels of these, how many show what both patches were trained on, and were compared."""
    psnr_between: float | None = None
    """Of the rendering of one patch against that of the other, in dB."""
    color_offset: float | None = None
    """In 1/255: of the channel that differs most, how much brighter the one is, in the median."""
    color_offsets: tuple[float, ...] = ()
    """R, G, B, with their signs: one less other."""
    depth_step: float | None = None
    """How much farther away the one is, in the median, as a share of the depth."""
    density_ratio: float | None = None
    """Gaussians of the one where both were trained, for each of the other."""
    problem: str = ""
    """Why it was not measured; empty if it was."""

    @property
    def name(self) -> str:
        """Its name in messages: "p0|p1"."""
        return f"{self.one}|{self.other}"


@dataclass(frozen=True)
class SceneEvaluation(TypedRecord):
    """How good a merged scene is."""

    splat: str = ""
    """Its file."""
    splat_sha256: str = ""
    """Of that file; empty: an earlier version measured it."""
    num_gaussians: int | None = None
    inputs: str = ""
    """Hash of what it was measured from; the same again gives the same."""
    covered: CoveredSet = field(default_factory=CoveredSet)
    """Which pixels covered figures are of: those that photographs of any patch see which were trained on."""
    total: SceneMeasurement = SceneMeasurement()
    """On all photographs that no patch was trained on."""
    across: SceneMeasurement = SceneMeasurement()
    """On those of `total` that look across some seam."""
    within: SceneMeasurement = SceneMeasurement()
    """On the others."""
    patches: dict[str, SceneMeasurement] = field(default_factory=dict)
    """On the photographs that each patch has measured itself on."""
    seams: tuple[SeamMeasurement, ...] = ()
    photos: dict[str, PhotoMeasurement] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    """Patches whose seams could not be measured, and why."""
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    peak: dict[str, float] = field(default_factory=dict)
    """The most memory in use, in MiB."""
    made_with: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationSettings(TrainingSettings):
    """settings.json of an attempt that measures a scene: what its process is to do, on the model that was cut."""

    splat: str = ""
    splat_sha256: str = ""
    partition: str = ""
    splats: dict[str, str] = field(default_factory=dict)
    """Of the patches that have one."""
    lacking: dict[str, str] = field(default_factory=dict)
    """Why the other patches have none that counts."""
    own: dict[str, dict[str, QualityFigures]] = field(default_factory=dict)
    """By patch, what its splat reached on its held-out photographs."""
    inputs: str = ""
    notes: tuple[str, ...] = ()
    """On its hold-out."""
    before_backdrop: tuple[str, ...] = ()
    """Patches that were trained with the backdrop behind them which is there now."""
    held_share: float = 0.3
    """Of the free memory, for Gaussians that wait to be drawn; drawing takes of the rest."""


@dataclass(frozen=True)
class ComparisonSettings(TrainingSettings):
    """What a process is to compare: splats of one scene, the first by name being the original, on photographs."""

    splats: dict[str, str] = field(default_factory=dict)
    """By name; "" is the original."""
    most_views: int = 8
    """Of the held-out photographs, spread over all; where none is held out, of all."""


@dataclass(frozen=True)
class Comparison(TypedRecord):
    """What comparing splats has found."""

    num_photos: int = 0
    splats: dict[str, dict[str, float]] = field(default_factory=dict)
    """By name, in dB: psnr against photographs, and between it and the original."""


@dataclass(frozen=True)
class FilmSettings(TrainingSettings):
    """What flight through a splat a process is to draw."""

    splat: str = ""
    num_frames: int = 0
    width: int = 0
    height: int = 0
