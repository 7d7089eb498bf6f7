"""evaluation.json: figures of the merged scene; and settings.json of the attempt that measures them."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.output.records.metrics import CoveredSet, QualityFigures, TrainingSettings
from splatbatch.output.records.record import TypedRecord


@dataclass(frozen=True)
class SceneMeasurement(QualityFigures):
    """Figures of the merged scene on some photographs, beside those of the patches' own splats on the same photographs.

    None in a field: not measured.
    """

    num_photos: int = 0
    own_psnr: float | None = None
    """Mean PSNR of the patches' own splats in dB, over the photographs that a patch has measured."""
    own_ssim: float | None = None
    """Mean SSIM of a patch's own splat, over the same photographs; None but in `SceneEvaluation.patches`."""
    answered_psnr: float | None = None
    """Mean PSNR of the merged scene in dB, on the pixels of `own_psnr`."""
    gain_db: float | None = None
    """`answered_psnr` less `own_psnr` in dB, over the photographs that have both; positive: the merged scene is
    better."""


@dataclass(frozen=True)
class PhotoMeasurement(QualityFigures):
    """Figures of the merged scene on one photograph; None in a field: not measured."""

    home: str = ""
    """Name of the patch whose core the photograph sees most of; empty: it sees no core."""
    own_psnr: float | None = None
    """PSNR in dB of the splat of the patch `home`, on the pixels that this patch answers for."""
    answered: dict[str, float] = field(default_factory=dict)
    """PSNR of the merged scene in dB, by patch, on the pixels on which that patch was measured."""
    shares: dict[str, float] = field(default_factory=dict)
    """Share of the points seen in the photograph, from 0 to 1, by the patch in whose core they lie."""


@dataclass(frozen=True)
class SeamMeasurement(TypedRecord):
    """Figures of a seam, the border between two patches: the merged scene across it, and both splats compared there.

    `one` and `other` are the names of the patches. None in a field: not measured.
    """

    one: str = ""
    other: str = ""
    across: SceneMeasurement = SceneMeasurement()
    """Figures of the merged scene on the held-out photographs that look across the seam."""
    num_views: int = 0
    """Number of cameras from which both patches were rendered."""
    share: float | None = None
    """Share, from 0 to 1, of the pixels of these renderings that both patches were trained on, and that were
    compared."""
    psnr_between: float | None = None
    """PSNR of the rendering of one patch against that of the other, in dB."""
    color_offset: float | None = None
    """Median difference in brightness in the channel that differs most, without sign, in 1/255 of full brightness."""
    color_offsets: tuple[float, ...] = ()
    """Median difference in brightness in R, G, B, `one` less `other`, in 1/255 of full brightness; empty: not
    measured."""
    depth_step: float | None = None
    """Median by which `one` is farther away than `other`, as a share of the depth."""
    density_ratio: float | None = None
    """Number of Gaussians of `one` for each Gaussian of `other`, where both patches were trained; None also if `other`
    has none there."""
    problem: str = ""
    """Reason why the seam was not measured; empty: it was measured."""

    @property
    def name(self) -> str:
        """Name of the seam in messages: "p0|p1"."""
        return f"{self.one}|{self.other}"


@dataclass(frozen=True)
class SceneEvaluation(TypedRecord):
    """Figures of a merged scene: as a whole, by patch, by seam and by photograph."""

    splat: str = ""
    """Path of the measured splat, as it was given."""
    splat_sha256: str = ""
    """SHA-256 of the splat file; empty: an earlier version measured it."""
    num_gaussians: int | None = None
    inputs: str = ""
    """Hash of all inputs of the evaluation; with the same hash the evaluation is not repeated."""
    covered: CoveredSet = field(default_factory=CoveredSet)
    """Covered pixels of the figures: those that training photographs of any patch see."""
    total: SceneMeasurement = SceneMeasurement()
    """Figures on all photographs that no patch was trained on."""
    across: SceneMeasurement = SceneMeasurement()
    """Figures on those photographs of `total` that look across some seam, a border between two patches."""
    within: SceneMeasurement = SceneMeasurement()
    """Figures on those photographs of `total` that look across no seam."""
    patches: dict[str, SceneMeasurement] = field(default_factory=dict)
    """Figures by patch, on the photographs on which that patch was measured."""
    seams: tuple[SeamMeasurement, ...] = ()
    photos: dict[str, PhotoMeasurement] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    """Reason why the seams of a patch could not be measured, by patch; empty: all were measured."""
    notes: tuple[str, ...] = ()
    """Notes for the user on the hold-out of the scene; empty: none."""
    seconds: float | None = None
    """Duration of the evaluation in seconds; None: not recorded."""
    peak: dict[str, float] = field(default_factory=dict)
    """Most memory in use, in MiB, by the kind of memory; empty: not recorded."""
    made_with: dict[str, str] = field(default_factory=dict)
    """Versions of programs, and under "on" the name of the GPU, or CPU; empty if not recorded."""


@dataclass(frozen=True)
class EvaluationSettings(TrainingSettings):
    """settings.json of an attempt that measures a merged scene, on the model of the whole scene.

    Its `backdrop` is a path even if no backdrop was trained; then `before_backdrop` is empty.
    """

    splat: str = ""
    """Path of the merged splat."""
    splat_sha256: str = ""
    partition: str = ""
    """Path of partition.json, the file that says how the scene was cut."""
    splats: dict[str, str] = field(default_factory=dict)
    """Path of the accepted splat of each patch that has one."""
    lacking: dict[str, str] = field(default_factory=dict)
    """Reason why a patch has no usable splat, by patch; empty: all have one."""
    own: dict[str, dict[str, QualityFigures]] = field(default_factory=dict)
    """Figures of each patch's splat on its held-out photographs, by patch and photograph."""
    inputs: str = ""
    """Hash of all inputs of the evaluation."""
    notes: tuple[str, ...] = ()
    """Notes for the user on the hold-out of the scene; empty: none."""
    before_backdrop: tuple[str, ...] = ()
    """Names of the patches that were trained with the present backdrop drawn behind them."""
    held_share: float = 0.3
    """Share of the free memory, from 0 to 1, for Gaussians that wait to be drawn; rendering uses the rest."""


@dataclass(frozen=True)
class ComparisonSettings(TrainingSettings):
    """Settings of a process that compares splats of one scene with the original, on photographs."""

    splats: dict[str, str] = field(default_factory=dict)
    """Paths of the splats by name; the name "" is the original's."""
    most_views: int = 8
    """Most photographs to use, spread evenly over the held-out ones or, without hold-out, over all."""


@dataclass(frozen=True)
class Comparison(TypedRecord):
    """Result of comparing splats with the original, on `num_photos` photographs; 0: no result could be read."""

    num_photos: int = 0
    splats: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures in dB by name of the splat: `psnr` against photographs, `between` the PSNR against the original."""


@dataclass(frozen=True)
class FilmSettings(TrainingSettings):
    """Settings of a process that renders a flight through a splat: its path, number of frames, and size in pixels."""

    splat: str = ""
    num_frames: int = 0
    width: int = 0
    height: int = 0
