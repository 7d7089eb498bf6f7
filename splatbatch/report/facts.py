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
"""How an attempt ended: with a splat ("trained"), with a product that is no splat ("made"), "failed" or "stopped"."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Grade = Literal["even", "slight", "step", "unknown"]
"""How well two patches meet at a seam: it is invisible ("even"), faint ("slight"), or a visible "step".

"unknown": colour offset or depth step was not measured.
"""


@dataclass(frozen=True)
class NextStep:
    """The decision after a failed attempt: to try the patch again, or to give it up, with the reason."""

    decision: Literal["retry", "gave_up"]
    wait_s: float | None = None
    """Seconds to wait before the next attempt; None: the patch was given up, or the ledger names no wait."""
    reason: str = ""
    """Why the patch was given up, and until when; empty if another attempt follows."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that change for the next attempt, by full name, and "slots" if fewer slots are used from then on.

    Changes for earlier attempts stay in force, but are not repeated. Empty: none change, or no attempt follows.
    """
    trained_in_between: tuple[str, ...] = ()
    """Patches trained between two failures of this patch, which shows that the GPU works; empty: none, or not recorded.
    """
    how: str = ""
    """How the next attempt differs but for its settings, as "on another GPU"; empty: in nothing."""


@dataclass(frozen=True)
class ReportedAttempt:
    """An attempt at a patch: times, outcome, cause, memory, quality, and the decision after it.

    A field is None or empty where it is unknown or does not apply.
    """

    number: int
    outcome: Outcome | None = None
    """How the attempt ended; None while it runs, or if no end was recorded.

    Without a recorded end, an attempt whose splat is the accepted one counts as trained.
    """
    slot: str = ""
    """Name of the GPU or CPU place that the attempt ran on, as "gpu0"; empty: unknown."""
    node: str = ""
    """Host name of the machine that the attempt ran on; empty: unknown."""
    worker: str = ""
    """Name of the worker; empty or "local" for `train` and `retry`, empty also if unknown."""
    started_at: float | None = None
    """Start of the attempt; of one that was prepared before its GPU was free, the order to train."""
    ended_at: float | None = None
    """End of the attempt or, while none is recorded, the time of its latest progress."""
    setup_s: float | None = None
    """Seconds from `started_at` to the first phase after set-up; None: no start or no such phase was recorded.

    0 if the attempt was prepared before its GPU was free.
    """
    seconds: float | None = None
    step: int | None = None
    phase: str = ""
    gate_s: float | None = None
    """Seconds that the attempt waited until its GPU was free and cool; None: it did not wait, or this is unknown.

    A wait beside other attempts on the GPU, or for `cooldown.floor_s`, does not count.
    """
    gate: str = ""
    """Last reason why the GPU was not ready; empty: the attempt did not wait, or this is unknown."""
    cause: str = ""
    advice: str = ""
    evidence: tuple[str, ...] = ()
    """Lines that show the cause of a failure, of the attempt's log or on the end of its process.

    Empty: it did not fail, or no line shows the cause.
    """
    warnings: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of the attempt that differ from the YAML, by full name; empty: none, or not recorded."""
    gpu_peak_mib: float | None = None
    """Most GPU memory in use by all processes while the attempt ran, in MiB; None: not measured, as on a CPU."""
    own_gpu_peak_mib: float | None = None
    """Most GPU memory that this attempt held by NVML, in MiB; None: not measured."""
    torch_peak_mib: float | None = None
    """Most GPU memory that torch had allocated in the attempt, in MiB; None: not recorded, as on a CPU."""
    psnr_covered: float | None = None
    """PSNR in dB on the covered pixels of held-out photographs, which ranks splats; None: not measured."""
    psnr: float | None = None
    """PSNR in dB on all pixels of held-out photographs; None: not measured."""
    ssim: float | None = None
    num_gaussians: int | None = None
    """Number of Gaussians in the attempt's splat; None: it has no splat, or none with a record."""
    covered_set: str = ""
    """Hash of the set of covered pixels; covered PSNRs are compared only if their hashes are equal. Empty: unknown."""
    pace_s: float | None = None
    """Mean seconds per step, without the first step, which compiles kernels.

    None: fewer than two timed steps, or the last is not above the first.
    """
    choice: str = ""
    """Sentence on which of two splats was kept, and why; empty if there was no choice."""
    adopted: bool = False
    """Whether a later run collected the attempt, since the run that started it had died."""
    is_kept: bool = False
    """Whether the splat of this attempt is the accepted one of its patch."""
    has_splat: bool = False
    """Whether the attempt's own folder still has its splat."""
    is_pictured: bool = False
    """Whether the attempt's folder lists pictures of its held-out views."""
    next: NextStep | None = None


@dataclass(frozen=True)
class SplatQuality:
    """Result of the inspection of a splat, as the report shows it."""

    grade: str
    figures: tuple[QualityFigure, ...]
    cells: tuple[dict[str, float], ...]
    """Vertical columns of the scene, each with its position and the number of photographs that see it.

    The keys are those of inspection.json; empty: the inspection measured no columns.
    """
    holdout: dict[str, dict[str, float]]
    """Figures of each held-out photograph, by its name: psnr in dB, distance, camera position x, y, z.

    Further keys are those of inspection.json. The distance is to the nearest trained photograph, in baselines: median
    distances of neighbouring trained photographs. Figures that were not measured are absent; empty: no held-out
    photograph was measured.
    """
    cameras: dict[str, dict[str, float]]
    """Camera position of each photograph, by its name: x, y, z in the splat's coordinates, as far as known."""
    psnr: float | None
    """Mean PSNR in dB over held-out photographs whose neighbours were trained on; None: there are none."""
    psnr_in_one_piece: float | None
    """Mean PSNR in dB over held-out photographs whose neighbours are held out, too; None: there are none."""
    thumbnails: dict[str, str]
    """Names of picture files in the folder `pictures`, by the photograph that each shows."""
    pictures: str
    """Path of the folder with the pictures of the inspection; the folder may be absent."""
    seconds: float | None
    """Duration of the inspection in seconds; None: not recorded."""
    certificate: dict[str, Any]
    """Content of certificate.json; empty if this splat has no readable certificate."""

    @property
    def exceeded(self) -> list[QualityFigure]:
        """Return the figures above their limit (state weak or bad), in the order of `figures`."""
        return [one for one in self.figures if one.state in ("weak", "bad")]


@dataclass(frozen=True)
class ReportedPatch(PatchStatus):
    """A patch in a report: its status, and further facts that only the report has."""

    outliers: tuple[str, ...] = ()
    """Messages on how far PSNR, Gaussians or time of the patch are from the median patch's; empty: not far.

    Also empty if the patch is not trained, or fewer than four patches are. In a sweep, patches are compared within
    their variant.
    """
    gain_db: float | None = None
    """Gain in PSNR, in dB, if the latest run replaced the accepted splat; None if it did not, or PSNR is unknown.

    PSNR is of covered pixels if both splats were measured on the same ones, else of all pixels.
    """
    attempts: tuple[ReportedAttempt, ...] = ()
    of_patch: str = ""
    """Name of the patch without the variant."""
    variant: str = ""
    """Name of the variant in a sweep; empty otherwise."""
    bytes: int | None = None
    """Size of the accepted splat's file in bytes; None: there is no accepted splat, or its size was not recorded."""
    resolution: Resolution | None = None
    """Resolution of the photographs that the accepted splat was trained on; None: not recorded."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the programs that trained the accepted splat, by program, as far as recorded.

    "on" is the name of the GPU, or "CPU".
    """
    quality: SplatQuality | None = None
    """Inspection of the accepted splat; None: this splat was not inspected, or the inspection cannot be read."""


@dataclass(frozen=True)
class SweepFigures:
    """Figures that a sweep compares, of one patch or as means over trained patches: PSNR in dB, time in seconds.

    None: unknown; a mean is None also if the figure of one of its patches is unknown.
    """

    psnr_covered: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    num_gaussians: float | None = None
    bytes: float | None = None
    seconds: float | None = None

    def of(self, name: str) -> float | None:
        """Return the figure of the field `name`, such as "psnr"; None if it is unknown.

        Raises:
            AttributeError: there is no such field.
        """
        found: float | None = getattr(self, name)
        return found


@dataclass(frozen=True)
class VariantPatch(SweepFigures):
    """Figures and state of a patch under a variant; unless it is trained, all figures are None."""

    state: State = "waiting"
    """State of the patch; "waiting" also if the report has no such task."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of the splat changed by `--set`, or by a retry after a failure, by full name.

    Empty: none, so the variant's own hold, or there is no splat.
    """


@dataclass(frozen=True)
class VariantRow:
    """A variant of a sweep: its settings, its mean figures, and those of each patch."""

    variant: str
    settings: dict[str, bool | int | float | str]
    """Values of the settings that the sweep compares, by full name, such as "training.strategy".

    An empty text: the setting has no value (None), as it does not apply.
    """
    trained: int
    """Number of patches trained under this variant."""
    of: int
    """Number of patches to train under this variant: all patches of the sweep in the report."""
    mean: SweepFigures
    patches: dict[str, VariantPatch]
    label: str = ""
    """Name of the variant for people: the name in the YAML, or if that is generated the values of `settings`."""
    is_comparable: bool = False
    """Whether the means may be compared: the variant's trained patches are the largest set that any variant has."""


@dataclass(frozen=True)
class SweepFacts:
    """The variants of a sweep, in the order of the YAML."""

    settings: tuple[str, ...]
    """Full names of the settings that the sweep compares, such as "training.strategy"."""
    patches: tuple[str, ...]
    variants: tuple[VariantRow, ...]
    best: dict[str, str | None]
    """Name of the variant with the best mean, by figure; None: fewer than two comparable variants differ in it."""
    best_of_patch: dict[str, str | None]
    """Name of the variant with the best PSNR, by patch; None: fewer than two of its variants differ.

    PSNR is of covered pixels if every measured variant of the patch has it.
    """


@dataclass(frozen=True)
class ReportedRun:
    """One run of `train`, `retry` or a worker."""

    started_at: float | None
    """Start of the run in seconds since 1970; None: the ledger does not have it."""
    ended_at: float | None
    """End of the run in seconds since 1970; None: the run goes on, or was killed before it wrote its end."""
    slots: tuple[str, ...]
    """Names of the GPU and CPU places of the run, as "gpu0"."""
    changes: dict[str, Any]
    """Settings changed by `--set`, by full name; empty: none."""
    worker: str
    """Name of the worker; empty for `train` and `retry`."""


@dataclass(frozen=True)
class ReportedWorker:
    """A worker that made attempts or is running."""

    worker: str
    """Name of the worker; "local" for `train` and `retry`."""
    node: str
    """Host name of the worker's machine; empty: unknown."""
    job: str
    """Job of the engine, such as Slurm, that runs the worker; empty: no engine runs it."""
    since: str
    """Local time at which the worker started, as "2026-01-31 22:15:00"; empty: unknown."""
    attempts: int
    trained: int
    """Number of the worker's attempts that trained a splat."""
    seconds: float
    """Sum of the durations of the worker's attempts, in seconds; attempts of unknown duration count 0."""
    patches: tuple[str, ...]
    """Names of the patches that the worker trained, each once."""
    running: tuple[str, ...]
    """Names of the patches of the worker's attempts without a recorded end; empty if the worker has ended."""
    has_ended: bool
    """Whether the worker has ended: by its heartbeat file, or since its process here is gone or silent for 180 s.

    True without a readable file. False for a worker killed on another host, boot or container: the report cannot tell.
    """


@dataclass(frozen=True)
class ReportedFrame(Frame):
    """The offset to add to the splats' coordinates to get those of the reconstruction, with a note in words."""

    note: str = ""
    """Sentence that names the offset; empty: there is none to add."""


@dataclass(frozen=True)
class OutlierPhotograph:
    """A photograph whose colours differ from the others': gain of R, G and B, colour correction, and a description."""

    name: str
    gain: tuple[float, ...]
    tone: tuple[float, ...]
    """Numbers of the photograph's colour correction, as `ColorCorrection.values` returns them.

    Gain R, G, B comes first, then vignetting and shading; without these, only the gain is listed.
    """
    words: str


@dataclass(frozen=True)
class ReportedColors:
    """Colour correction of a scene; residuals are in percent: how far photographs differ in the colour of a point.

    None as a residual: unknown, as where no correction was solved.
    """

    scene: str
    """Name of the scene; empty for all patches together."""
    is_even: bool
    """Whether the correction helps enough that `training.colors: auto` applies it."""
    residual_before: float | None
    residual_after: float | None
    words: tuple[str, ...]
    photographs: tuple[OutlierPhotograph, ...]


@dataclass(frozen=True)
class CoreBox:
    """The core of a patch from above, as two opposite corners x, y in the units of the scene.

    If `splatbatch split` did not make the patches, the box around most of a patch's cameras stands for its core.
    """

    patch: str
    lower: tuple[float, float]
    upper: tuple[float, float]


@dataclass(frozen=True)
class CameraPosition:
    """Position x, y of a photograph's camera from above, in the units of the scene; if held out also name and PSNR.

    The name is empty for photographs that are trained on, and for all while no hold-out is recorded. PSNR is in dB, of
    covered pixels if known; None: unknown.
    """

    at: tuple[float, float]
    name: str = ""
    psnr: float | None = None


@dataclass(frozen=True)
class ReportedSeam(SeamMeasurement):
    """Measurement of a seam, the border of two cores, with its line seen from above and its grade."""

    told: ClassVar = ("name",)
    line: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Both ends x, y of the seam from above, in the units of the scene; None if horizontal or of no length."""
    grade: Grade = "unknown"
    """How well the two patches meet, by colour offset and depth step; "unknown": not measured."""


@dataclass(frozen=True)
class SceneMap:
    """Data of a map from above: cores of patches, cameras and seams; all empty if there is nothing to draw."""

    cores: tuple[CoreBox, ...] = ()
    cameras: tuple[CameraPosition, ...] = ()
    seams: tuple[ReportedSeam, ...] = ()
    lacking: tuple[str, ...] = ()
    """Names of patches that are not on the map because their COLMAP models have no readable cameras; empty: all are."""


@dataclass(frozen=True)
class ReportedPartition(SceneMap):
    """A scene that was cut into patches: its map, its evaluation, and the quality of the merged splat."""

    problem: str = ""
    """Why partition.json or the merged splat cannot be used, so that all other fields are empty; empty: both can."""
    evaluation: SceneEvaluation | None = None
    """Evaluation of the merged scene, without figures by photograph and by seam.

    None if the scene was not measured, or evaluation.json cannot be read.
    """
    is_stale: bool = False
    """Whether the scene was merged again after it was measured."""
    splat: str = ""
    """Path of the merged splat; empty if the scene is not merged, or merge.json is of another splat or unreadable."""
    behind: str = ""
    """Sentence on why no Gaussian of the backdrop is in the merged scene; empty if some are, or there is nothing to
    say: not merged, or no backdrop."""
    quality: SplatQuality | None = None
    """Inspection of the merged splat; None: this splat was not inspected, or the inspection cannot be read."""


@dataclass(frozen=True)
class ReportedDeadline(DeadlineDecision):
    """Reduction of steps and photographs chosen for a deadline, in figures and words, with the end of the last attempt.

    `ended_at` is in seconds since 1970; None: no attempt has ended since the choice.
    """

    words: tuple[str, ...] = ()
    ended_at: float | None = None


@dataclass(frozen=True)
class Report:
    """All facts of a batch: the content of report.json."""

    output: str = ""
    """Path of the output folder: absolute, unless a program passed a relative one."""
    summary: str = ""
    """The outcome in one line, as "7 of 8 patches trained; failed: p5"."""
    counts: Mapping[State, int] = field(default_factory=dict)
    """Number of patches in each state, without the backdrop unless it is alone; states without patches are 0."""
    patches: tuple[ReportedPatch, ...] = ()
    """All patches, in natural order: p2 before p10."""
    sweep: SweepFacts | None = None
    """Comparison of the variants; None: the batch is no sweep."""
    runs: tuple[ReportedRun, ...] = ()
    workers: tuple[ReportedWorker, ...] = ()
    """All workers that made attempts or are running, in order of host and name; "local" stands for `train`."""
    settled: tuple[str, ...] = ()
    """Sentences on the hold-out of frames, photographs that a rig took at one moment.

    Empty without frames, without the YAML, or if no model can be read.
    """
    frame: ReportedFrame | None = None
    """Offset of the splats; None: none was decided, or its record cannot be read."""
    colors: tuple[ReportedColors, ...] = ()
    """Colour correction of each scene; empty: no photographs were examined, or colors.json cannot be read."""
    scene: ReportedPartition | None = None
    """The scene that `splatbatch split` cut into patches; None: it cut none, or the YAML is not known."""
    map: SceneMap | None = None
    """Map of the patches by their cameras; None for a scene cut into patches, a list of scenes, or unreadable models.

    A scene cut into patches has its map in `scene`. Also None with too many patches or images, or without the YAML.
    """
    reconstruction: ReconstructionRecord | None = None
    """Result of a reconstruction; None in reports of training, or while there is no readable record of one."""
    deadline: ReportedDeadline | None = None
    """What was chosen for the deadline; None: nothing was, or its record cannot be read."""
    afterwards: tuple[FollowUpResult, ...] = ()
    """Results of the follow-ups, also of those that were left out; empty: no readable result is recorded."""
    audit: dict[str, Any] | None = None
    """The latest audit that a ledger records; None: no audit is recorded.

    "verified" tells whether patches were checked, false if the audit was switched off. "refused" has the reason for
    each patch that is refused at present, by patch. "warnings" is a list of messages.
    """
    config: str = ""
    """Content of batch.yaml, the settings of the latest run, of a long file only its end; empty: no readable file."""
    config_file: str = ""
    """Absolute path of the YAML; empty if it is not known."""
    events: tuple[dict[str, Any], ...] = ()
    """Lines of all ledgers in order of time, as JSON objects; "worker" is absent in lines of `train` and `retry`."""
    todo: tuple[TodoItem, ...] = ()
    version: str = ""
    """Version of the splatbatch that wrote the report."""
    python: str = ""
    written_at: str = ""
    """Local time of writing with its UTC offset, as "2026-05-01T08:30:00+0200"."""
    schema: int = SCHEMA
