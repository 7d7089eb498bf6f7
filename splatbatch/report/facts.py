"""The facts of a report: report.json holds them field by field, report.html and report.md are made from them.

Within version `SCHEMA` of report.json fields are only ever added. Times are seconds since 1970, spans are seconds;
None (null) means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from splatbatch.output.records.deadline import DeadlineDecision
from splatbatch.output.records.evaluation import SceneEvaluation, SeamMeasurement
from splatbatch.output.records.frame import Frame
from splatbatch.output.records.metrics import Resolution
from splatbatch.output.records.quality import QualityFigure
from splatbatch.output.records.run import FollowUpResult, TodoItem
from splatbatch.reconstruction.facts import ReconstructionRecord
from splatbatch.tasks.status import PatchStatus, State

SCHEMA = 1
"""Version of report.json; it rises when a field changes its meaning or is removed."""
Outcome = Literal["trained", "made", "failed", "stopped"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Grade = Literal["even", "slight", "step", "unknown"]


@dataclass(frozen=True)
class NextStep:
    """The decision after an attempt: another try, or giving up; and why."""

    decision: Literal["retry", "gave_up"]
    wait_s: float | None = None
    """Seconds to wait before the next attempt."""
    reason: str = ""
    """Why the patch was given up, and until when."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of the next attempt that differ from the YAML."""
    trained_in_between: tuple[str, ...] = ()
    """Patches that were trained in between, which shows that the GPU works."""


@dataclass(frozen=True)
class ReportedAttempt:
    """An attempt at a patch: times, outcome, cause, memory, quality, and the decision after it."""

    number: int
    outcome: Outcome | None = None
    """How it ended; None while it runs."""
    slot: str = ""
    node: str = ""
    """Name of its host."""
    worker: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    setup_s: float | None = None
    """Time from its start to the first step."""
    seconds: float | None = None
    step: int | None = None
    phase: str = ""
    gate_s: float | None = None
    """Seconds that the slot was not ready before the attempt."""
    gate: str = ""
    """Why the slot was not ready."""
    cause: str = ""
    advice: str = ""
    evidence: tuple[str, ...] = ()
    """Lines of the log that show the cause."""
    warnings: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the YAML."""
    gpu_peak_mib: float | None = None
    """Peak of all memory in use on the GPU."""
    own_gpu_peak_mib: float | None = None
    """Peak of this attempt's GPU memory by NVML."""
    torch_peak_mib: float | None = None
    """Peak of the memory that torch had allocated."""
    psnr_covered: float | None = None
    """PSNR in dB on the covered pixels of held-out photographs; splats are compared by this figure."""
    psnr: float | None = None
    """PSNR in dB on all pixels of held-out photographs."""
    ssim: float | None = None
    num_gaussians: int | None = None
    """Number of Gaussians in its splat."""
    covered_set: str = ""
    """Hash of the set of covered pixels; covered PSNRs are compared only if their sets are equal."""
    pace_s: float | None = None
    """Mean seconds per step, without the first, which compiles kernels."""
    choice: str = ""
    """Which of two splats was kept, and why; empty if there was no choice."""
    adopted: bool = False
    """Whether a later run took it over."""
    is_kept: bool = False
    """Whether its splat is the accepted one."""
    has_splat: bool = False
    """Whether its splat still exists in its folder."""
    is_pictured: bool = False
    """Whether pictures of its held-out views exist."""
    next: NextStep | None = None


@dataclass(frozen=True)
class SplatQuality:
    """Result of the inspection of a splat, as the report shows it."""

    grade: str
    figures: tuple[QualityFigure, ...]
    cells: tuple[dict[str, float], ...]
    """Vertical columns of the scene with their coverage, as in inspection.json."""
    holdout: dict[str, dict[str, float]]
    """PSNR, distance and position of each held-out photograph."""
    cameras: dict[str, dict[str, float]]
    """Camera position x, y, z of each photograph."""
    psnr: float | None
    """Mean PSNR over held-out photographs whose neighbours were trained on."""
    psnr_in_one_piece: float | None
    """Mean PSNR over held-out photographs whose neighbours are held out, too."""
    thumbnails: dict[str, str]
    """File names of pictures, by caption."""
    pictures: str
    """Folder of all pictures."""
    seconds: float | None
    certificate: dict[str, Any]
    """Content of certificate.json; empty if this splat has no certificate."""

    @property
    def exceeded(self) -> list[QualityFigure]:
        """Return the figures whose state is weak or bad."""
        return [one for one in self.figures if one.state in ("weak", "bad")]


@dataclass(frozen=True)
class ReportedPatch(PatchStatus):
    """A patch in a report: its status, and further facts that only the report has."""

    outliers: tuple[str, ...] = ()
    """How it differs from the other patches, as messages."""
    gain_db: float | None = None
    """Gain in dB if the latest run replaced the accepted splat, by covered PSNR if both have the same covered pixels.

    None if it did not.
    """
    attempts: tuple[ReportedAttempt, ...] = ()
    of_patch: str = ""
    """Name of the patch without the variant."""
    variant: str = ""
    """Name of the variant in a sweep; empty otherwise."""
    bytes: int | None = None
    """Size of the splat file."""
    resolution: Resolution | None = None
    """Resolution of the photographs that it was trained on."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the programs that trained it, as far as they are recorded."""
    quality: SplatQuality | None = None


@dataclass(frozen=True)
class SweepFigures:
    """Figures that a sweep compares, of one patch or as means over trained patches."""

    psnr_covered: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    num_gaussians: float | None = None
    bytes: float | None = None
    seconds: float | None = None

    def of(self, name: str) -> float | None:
        """Return the figure with this field name."""
        found: float | None = getattr(self, name)
        return found


@dataclass(frozen=True)
class VariantPatch(SweepFigures):
    """Figures and state of a patch under a variant."""

    state: State = "waiting"
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that a retry changed after a failure."""


@dataclass(frozen=True)
class VariantRow:
    """A variant of a sweep: its settings, its mean figures, and those of each patch."""

    variant: str
    settings: dict[str, bool | int | float | str]
    """Compared settings, by their full names."""
    trained: int
    """Number of its trained patches."""
    of: int
    """Number of all its patches."""
    mean: SweepFigures
    patches: dict[str, VariantPatch]
    label: str = ""
    """Name for people: its own name, or if that is generated the compared values."""
    is_comparable: bool = False
    """Whether its means may be compared: its trained patches are the largest set that any variant has."""


@dataclass(frozen=True)
class SweepFacts:
    """The variants of a sweep, in the order of the YAML."""

    settings: tuple[str, ...]
    """Full names of the compared settings."""
    patches: tuple[str, ...]
    variants: tuple[VariantRow, ...]
    best: dict[str, str | None]
    """Best variant by the mean of each figure; None if there is no best one."""
    best_of_patch: dict[str, str | None]
    """Best variant of each patch by its PSNR; the covered PSNR if every measured variant has it."""


@dataclass(frozen=True)
class ReportedRun:
    """One run of `train`, `retry` or a worker."""

    started_at: float | None
    """Seconds since 1970."""
    ended_at: float | None
    """The same; None: it runs, or was killed before it wrote its end."""
    slots: tuple[str, ...]
    changes: dict[str, Any]
    """Settings changed by `--set`."""
    worker: str
    """Name of the worker; empty for `train` and `retry`."""


@dataclass(frozen=True)
class ReportedWorker:
    """A worker that made attempts or is running."""

    worker: str
    """Name of the worker."""
    node: str
    """Name of its host."""
    job: str
    """Job of the cluster engine that runs it; empty without one."""
    since: str
    attempts: int
    trained: int
    """Number of its attempts that trained a splat."""
    seconds: float
    """Time that its attempts took."""
    patches: tuple[str, ...]
    """Patches that it trained."""
    running: tuple[str, ...]
    """Patches that it is training."""
    has_ended: bool


@dataclass(frozen=True)
class ReportedFrame(Frame):
    """The offset to add to the splats' coordinates to get those of the reconstruction, with a note."""

    note: str = ""


@dataclass(frozen=True)
class OutlierPhotograph:
    """A photograph whose colours differ from the others': factors per channel, correction, and a description."""

    name: str
    gain: tuple[float, ...]
    tone: tuple[float, ...]
    """Parameters of its colour correction, as in colors.json."""
    words: str


@dataclass(frozen=True)
class ReportedColors:
    """Colour correction of a scene; residuals are in percent."""

    scene: str
    """Name of the scene; empty for all patches together."""
    is_even: bool
    residual_before: float | None
    residual_after: float | None
    words: tuple[str, ...]
    photographs: tuple[OutlierPhotograph, ...]


@dataclass(frozen=True)
class CoreBox:
    """The core of a patch from above, in the axes of the partition."""

    patch: str
    lower: tuple[float, float]
    upper: tuple[float, float]


@dataclass(frozen=True)
class CameraPosition:
    """Position of a photograph's camera from above; for a held-out photograph also its name and PSNR."""

    at: tuple[float, float]
    name: str = ""
    psnr: float | None = None


@dataclass(frozen=True)
class ReportedSeam(SeamMeasurement):
    """Measurement of a seam, with its line seen from above and its grade."""

    told: ClassVar = ("name",)
    line: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Both ends of the seam from above; None for a horizontal seam."""
    grade: Grade = "unknown"
    """How well the two patches meet, by colour offset and depth step."""


@dataclass(frozen=True)
class SceneMap:
    """Data of a map from above: cores of patches, cameras and seams."""

    cores: tuple[CoreBox, ...] = ()
    cameras: tuple[CameraPosition, ...] = ()
    seams: tuple[ReportedSeam, ...] = ()
    lacking: tuple[str, ...] = ()
    """Patches that are missing on the map because their models cannot be read."""


@dataclass(frozen=True)
class ReportedPartition(SceneMap):
    """A scene that was cut into patches: its map, its evaluation, and the quality of the merged splat."""

    problem: str = ""
    """Why the other fields are empty; empty if all is well."""
    evaluation: SceneEvaluation | None = None
    """Evaluation of the merged scene, without photographs and seams; None if it was not measured."""
    is_stale: bool = False
    """Whether the scene was merged again after it was measured."""
    splat: str = ""
    """Path of the merged splat; empty if the scene is not merged."""
    behind: str = ""
    """Why the merged scene has no backdrop; empty if it has one or is not merged."""
    quality: SplatQuality | None = None


@dataclass(frozen=True)
class ReportedDeadline(DeadlineDecision):
    """Step budget chosen for a deadline, and when the last attempt at its patches ended."""

    words: tuple[str, ...] = ()
    ended_at: float | None = None


@dataclass(frozen=True)
class Report:
    """All facts of a batch: the content of report.json."""

    output: str = ""
    """The output folder."""
    summary: str = ""
    """The outcome in one line."""
    counts: Mapping[State, int] = field(default_factory=dict)
    """Number of patches in each state."""
    patches: tuple[ReportedPatch, ...] = ()
    """All patches, in natural order."""
    sweep: SweepFacts | None = None
    runs: tuple[ReportedRun, ...] = ()
    workers: tuple[ReportedWorker, ...] = ()
    """All workers, in order of their hosts."""
    settled: tuple[str, ...] = ()
    """Hold-out of photographs that were taken together, as text; empty without such frames."""
    frame: ReportedFrame | None = None
    colors: tuple[ReportedColors, ...] = ()
    scene: ReportedPartition | None = None
    map: SceneMap | None = None
    """Map of the patches if the scene has no partition."""
    reconstruction: ReconstructionRecord | None = None
    """Result of a reconstruction; None in reports of training."""
    deadline: ReportedDeadline | None = None
    afterwards: tuple[FollowUpResult, ...] = ()
    """Results of the follow-ups, also of those that were left out."""
    audit: dict[str, Any] | None = None
    """The latest audit in the ledger, with all patches that are refused now: "verified", "refused", "warnings"."""
    config: str = ""
    """Content of batch.yaml, the resolved settings of the latest run."""
    config_file: str = ""
    """Path of the YAML; empty if it is not known."""
    events: tuple[dict[str, Any], ...] = ()
    """Lines of all ledgers; `worker` names the worker, except in the ledger of `train`."""
    todo: tuple[TodoItem, ...] = ()
    version: str = ""
    """Version of the splatbatch that wrote the report."""
    python: str = ""
    written_at: str = ""
    """Local time with the UTC offset."""
    schema: int = SCHEMA
