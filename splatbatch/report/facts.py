"""What is known of a batch in the morning: the pages are drawn from it, and report.json is it, field by field.

Version `SCHEMA` of report.json: fields are only ever added within it. Times are seconds since 1970, or a span in
seconds, and None (null) if unknown.
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
"""It rises when a field changes its meaning or goes."""
Outcome = Literal["trained", "made", "failed", "stopped"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Grade = Literal["even", "slight", "step", "unknown"]


@dataclass(frozen=True)
class NextStep:
    """What was decided after an attempt, and why."""

    decision: Literal["retry", "gave_up"]
    wait_s: float | None = None
    reason: str = ""
    """Until when it was given up, and why."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of the next attempt that differ from the config."""
    trained_in_between: tuple[str, ...] = ()
    """Patches that show that the GPU is not to blame."""


@dataclass(frozen=True)
class ReportedAttempt:
    """An attempt at a patch."""

    number: int
    outcome: Outcome | None = None
    """None while it runs."""
    slot: str = ""
    node: str = ""
    """The name of its host."""
    worker: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    setup_s: float | None = None
    """Before the first step."""
    seconds: float | None = None
    step: int | None = None
    phase: str = ""
    gate_s: float | None = None
    """For how long the slot was not fit before it."""
    gate: str = ""
    """Why it was not."""
    cause: str = ""
    advice: str = ""
    evidence: tuple[str, ...] = ()
    """Lines of the log."""
    warnings: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the config."""
    gpu_peak_mib: float | None = None
    """All that was in use on the card."""
    own_gpu_peak_mib: float | None = None
    """By this attempt, as NVML sees it."""
    torch_peak_mib: float | None = None
    """Of that, what torch had allocated."""
    psnr_covered: float | None = None
    """On the pixels of held-out photographs that training photographs see, in dB: the figure that decides."""
    psnr: float | None = None
    """On all their pixels."""
    ssim: float | None = None
    num_gaussians: int | None = None
    """Of its splat."""
    covered_set: str = ""
    """Hash of the covered pixels: of another set figures are not compared."""
    pace_s: float | None = None
    """Of a step, but for the first, which compiles kernels."""
    choice: str = ""
    """Which of two splats was kept, and why."""
    adopted: bool = False
    """By a later run."""
    is_kept: bool = False
    """Its splat is the product."""
    has_splat: bool = False
    """It is there still."""
    is_pictured: bool = False
    next: NextStep | None = None


@dataclass(frozen=True)
class SplatQuality:
    """What an inspection has found of a splat."""

    grade: str
    figures: tuple[QualityFigure, ...]
    cells: tuple[dict[str, float], ...]
    """Columns of the scene, as inspection.json has them."""
    holdout: dict[str, dict[str, float]]
    """Held-out photographs, with their PSNR and distance."""
    cameras: dict[str, dict[str, float]]
    """Where photographs were taken from."""
    psnr: float | None
    """In the mean over held-out photographs that were not taken side by side."""
    psnr_in_one_piece: float | None
    """Over those that were."""
    thumbnails: dict[str, str]
    """Names of pictures, by what is said below them."""
    pictures: str
    """The folder of all pictures."""
    dropped: str
    """What leaving photographs out has brought; empty if not measured."""
    seconds: float | None
    certificate: dict[str, Any]
    """As certificate.json has it; empty where there is none of this splat."""

    @property
    def exceeded(self) -> list[QualityFigure]:
        """Return the figures that exceed their limits."""
        return [one for one in self.figures if one.state in ("weak", "bad")]


@dataclass(frozen=True)
class ReportedPatch(PatchStatus):
    """A patch in a report: its status, and what only the report says of it."""

    outliers: tuple[str, ...] = ()
    """How it differs from the other patches."""
    gain_db: float | None = None
    """Of its PSNR, the covered one if both are of the same pixels, by the latest run; None where that has not replaced
    it."""
    attempts: tuple[ReportedAttempt, ...] = ()
    of_patch: str = ""
    variant: str = ""
    """Its parts in a sweep; else the patch, and nothing."""
    bytes: int | None = None
    """Of the splat file."""
    resolution: Resolution | None = None
    """Of the photographs that it was trained on."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of what trained it, as far as its files say."""
    quality: SplatQuality | None = None


@dataclass(frozen=True)
class SweepFigures:
    """What is compared in a sweep, of a patch or in the mean over the trained ones."""

    psnr_covered: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    num_gaussians: float | None = None
    bytes: float | None = None
    seconds: float | None = None

    def of(self, name: str) -> float | None:
        """Return a figure by its name."""
        found: float | None = getattr(self, name)
        return found


@dataclass(frozen=True)
class VariantPatch(SweepFigures):
    """A patch under a variant."""

    state: State = "waiting"
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that a failure made it change."""


@dataclass(frozen=True)
class VariantRow:
    """A variant of a sweep."""

    variant: str
    settings: dict[str, bool | int | float | str]
    """That are compared, by their full names."""
    trained: int
    of: int
    """How many of its patches are trained, of how many."""
    mean: SweepFigures
    patches: dict[str, VariantPatch]
    label: str = ""
    """What people call it: its own name, else the values that are compared."""
    is_comparable: bool = False
    """Means over different patches say nothing: it has trained the largest set of patches that any variant has."""


@dataclass(frozen=True)
class SweepFacts:
    """The variants of a sweep, in the order of the YAML."""

    settings: tuple[str, ...]
    """Full names of those that are compared."""
    patches: tuple[str, ...]
    variants: tuple[VariantRow, ...]
    best: dict[str, str | None]
    """Variant by figure."""
    best_of_patch: dict[str, str | None]
    """Variant by patch, after its PSNR; the covered one where every variant has one."""


@dataclass(frozen=True)
class ReportedRun:
    """One `train`, `retry` or worker."""

    started_at: float | None
    ended_at: float | None
    slots: tuple[str, ...]
    changes: dict[str, Any]
    """Settings changed by --set."""
    worker: str


@dataclass(frozen=True)
class ReportedWorker:
    """Who has made attempts, or is at work."""

    worker: str
    """Its name."""
    node: str
    """The name of its host."""
    job: str
    """Of the engine that runs it."""
    since: str
    attempts: int
    trained: int
    """Of its attempts."""
    seconds: float
    """In training processes."""
    patches: tuple[str, ...]
    """What it has trained."""
    running: tuple[str, ...]
    """What it trains."""
    has_ended: bool


@dataclass(frozen=True)
class ReportedFrame(Frame):
    """What to add to the splats' coordinates for the models'."""

    note: str = ""


@dataclass(frozen=True)
class OutlierPhotograph:
    """A photograph that is among those that differ most."""

    name: str
    gain: tuple[float, ...]
    tone: tuple[float, ...]
    """As in colors.json."""
    words: str


@dataclass(frozen=True)
class ReportedColors:
    """A scene whose photographs were looked at; residuals in percent."""

    scene: str
    """Empty: all patches together."""
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
    """Where a photograph was taken from, from above; of one that is held out its name, and what it shows."""

    at: tuple[float, float]
    name: str = ""
    psnr: float | None = None


@dataclass(frozen=True)
class ReportedSeam(SeamMeasurement):
    """A seam, and the line that it is from above."""

    told: ClassVar = ("name",)
    line: tuple[tuple[float, float], tuple[float, float]] | None = None
    """None where it lies level."""
    grade: Grade = "unknown"
    """How well the two patches meet."""


@dataclass(frozen=True)
class SceneMap:
    """Patches and cameras from above."""

    cores: tuple[CoreBox, ...] = ()
    cameras: tuple[CameraPosition, ...] = ()
    seams: tuple[ReportedSeam, ...] = ()
    lacking: tuple[str, ...] = ()
    """Patches whose models cannot be read, where no partition says where they lie."""


@dataclass(frozen=True)
class ReportedPartition(SceneMap):
    """A scene that was cut into patches: its partition from above, and how well the patches meet."""

    problem: str = ""
    """Why nothing else is told."""
    evaluation: SceneEvaluation | None = None
    """Without photographs and seams."""
    is_stale: bool = False
    """It was merged again since it was measured."""
    splat: str = ""
    """The merged splat; empty as long as there is none."""
    behind: str = ""
    """Why the merged scene has nothing of its backdrop; empty where it has, or nothing was merged."""
    quality: SplatQuality | None = None


@dataclass(frozen=True)
class ReportedDeadline(DeadlineDecision):
    """What was chosen for a deadline, and when the last attempt at its patches ended."""

    words: tuple[str, ...] = ()
    ended_at: float | None = None


@dataclass(frozen=True)
class Report:
    """All of it."""

    output: str = ""
    """The folder."""
    summary: str = ""
    """One line."""
    counts: Mapping[State, int] = field(default_factory=dict)
    """Of patches, by their state."""
    patches: tuple[ReportedPatch, ...] = ()
    """In natural order."""
    sweep: SweepFacts | None = None
    runs: tuple[ReportedRun, ...] = ()
    workers: tuple[ReportedWorker, ...] = ()
    """In the order of their nodes."""
    settled: tuple[str, ...] = ()
    """What is settled for the batch besides its frame, its colours and its deadline, in words."""
    frame: ReportedFrame | None = None
    colors: tuple[ReportedColors, ...] = ()
    scene: ReportedPartition | None = None
    map: SceneMap | None = None
    """Where no partition says where patches lie."""
    reconstruction: ReconstructionRecord | None = None
    """The result of a reconstruction, in its report."""
    deadline: ReportedDeadline | None = None
    afterwards: tuple[FollowUpResult, ...] = ()
    """What followed the training, or was left out."""
    audit: dict[str, Any] | None = None
    """The latest, as the ledger has it, with every patch that is refused now: verified, refused, warnings."""
    config: str = ""
    """batch.yaml, the resolved settings of the latest run."""
    config_file: str = ""
    """The YAML; empty where it is not known."""
    events: tuple[dict[str, Any], ...] = ()
    """The lines of the ledgers; `worker` says whose ledger it is, if it is not that of `train`."""
    todo: tuple[TodoItem, ...] = ()
    version: str = ""
    """Of the splatbatch that wrote it."""
    python: str = ""
    written_at: str = ""
    """Local time with its zone."""
    schema: int = SCHEMA
