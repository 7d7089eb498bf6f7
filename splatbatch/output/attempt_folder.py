"""An attempt and its folder: the only module that knows the names of its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from splatbatch.files import PRIVATE, last_line, names_in, read_json, read_lines, write_object
from splatbatch.output.records.attempt import (
    ExitFacts,
    Go,
    GpuSample,
    Heartbeat,
    JobSpec,
    ProgressLine,
    Start,
    WatchSettings,
)
from splatbatch.output.records.record import TypedRecord

if TYPE_CHECKING:  # else the supervisor of every attempt would load modules that it never uses
    from splatbatch.output.records.metrics import EvaluatedView, Metrics, TrainingSettings
    from splatbatch.output.records.result import Result

AttemptKind = TypeVar("AttemptKind", bound=TypedRecord)
ATTEMPT_PREFIX = "attempt-"
EXIT = "exit.json"
PICTURES = "inspection"


def attempt_number(name: str) -> int:
    """Return the number in a folder name: 1 for attempt-01; 0 if it names no attempt."""
    number = name.removeprefix(ATTEMPT_PREFIX)
    return int(number) if number != name and number.isdecimal() else 0


class FileIn:
    """Descriptor that returns the path of a file in a folder: `folder.job` is the path of job.json."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, kind: object = None) -> Path:
        return Path(folder.path, self._name)


@dataclass(frozen=True)
class AttemptFolder:
    """The folder of one attempt, with the paths of its files and a reader for each.

    Every file has exactly one writer: the parent, which runs the loop; the supervisor; or the training process.
    """

    path: Path

    job = FileIn("job.json")
    """Key, argv, environment and limits for the supervisor; the parent writes them before the start."""
    ballast = FileIn(".ballast")
    """Placeholder that the parent writes; the supervisor removes it to have room for exit.json on a full disk."""
    settings = FileIn("settings.json")
    """Settings for the training process; the parent writes them before the start."""
    watch = FileIn("watch.json")
    """Settings by which the supervisor watches an external trainer; the parent writes them before the start."""
    measuring = FileIn("measuring.json")
    """Settings of our own evaluation of an external trainer's splat; the parent writes them before the start."""
    output = FileIn("output")
    """Folder for all files that an external trainer writes."""
    staging = FileIn("scene")
    """Folder of links to model and photographs, laid out as many programs want them; the parent makes it."""
    cancel = FileIn("cancel")
    """Request to stop; the parent writes it."""
    go = FileIn("go.json")
    """Order to a standby to start now, on the GPU named; the parent writes it."""
    ahead = FileIn("ahead.json")
    """Order to a standby to open its CUDA context on the GPU named, and to wait on; the parent writes it."""
    start = FileIn("start.json")
    """Identity of the supervisor, which it writes with O_EXCL: a second start in this folder fails."""
    heartbeat = FileIn("heartbeat.json")
    """Sequence number that the supervisor counts up while it lives."""
    gpu_samples = FileIn("gpu.jsonl")
    """NVML samples that the supervisor writes while the attempt runs."""
    log = FileIn("train.log")
    """Standard output and error of the training process; the supervisor writes them."""
    exit = FileIn(EXIT)
    """End of the process; the supervisor writes it last of all."""
    progress = FileIn("progress.jsonl")
    """Phase, step, loss and number of Gaussians; the training process writes them, or the supervisor from its log."""
    metrics = FileIn("metrics.json")
    """Hold-out metrics, per photograph and in the mean; the training process writes them."""
    covered = FileIn("covered.json")
    """Covered pixels of held-out photographs, and their hash; the training process writes them."""
    views = FileIn("renders/views.json")
    """Names of the rendered held-out views, by rank: worst, median, best; the training process writes them."""
    pictures = FileIn(PICTURES)
    """Folder of small pictures, one for each figure that has any; an inspection writes them."""
    tensorboard = FileIn("tb")
    """Folder of TensorBoard's event files, if they are requested; the training process writes them."""
    checkpoint = FileIn("checkpoint.pt")
    """Checkpoint of the training process: whole or absent."""
    splat = FileIn("splat.ply")
    """Splat, which the training process writes last of all; it stays until `retention` no longer keeps it."""
    result = FileIn("result.json")
    """Manifest, which the parent writes once the splat was found whole; if accepted, it is linked as a record."""
    brought = FileIn("brought.json")
    """Origin of an attempt that came home from a store: its worker and result; the parent writes it."""

    @property
    def number(self) -> int:
        """Return the number of the attempt: 1 for attempt-01; 0 if the folder is no attempt."""
        return attempt_number(self.path.name)

    @property
    def task(self) -> str:
        """Return the name of the task, as "p0@base": the name of the folder around this one."""
        return self.path.parent.name

    def earlier(self) -> tuple[AttemptFolder, ...]:
        """Return the attempts at the same patch before this one, in no order."""
        folders = (AttemptFolder(self.path.parent / name) for name in names_in(f"{self.path.parent}"))
        return tuple(folder for folder in folders if 0 < folder.number < self.number)

    def has_exited(self) -> bool:
        """Return whether the supervisor has written exit.json; False after the supervisor was killed."""
        return os.path.exists(f"{self.path}/{EXIT}")  # noqa: PTH110 - asked of thousands, and twice as fast as a Path

    def is_cancelled(self) -> bool:
        """Return whether the parent has requested this attempt to stop."""
        return os.path.exists(self.cancel)  # noqa: PTH110 - a folder that may not be read is no error

    def picture(self, rank: str, kind: str) -> Path:
        """Return the path of a JPEG that the training process writes of a held-out view: photo, render or error."""
        return self.path / "renders" / f"{rank}-{kind}.jpg"

    def read_job(self) -> JobSpec | None:
        """Return job.json; None if there is none, or no JSON object."""
        return self.read(self.job, JobSpec)

    def read_watch(self) -> WatchSettings | None:
        """Return watch.json; None for our own trainer."""
        return self.read(self.watch, WatchSettings)

    def read_go(self) -> Go | None:
        """Return go.json; None while the attempt stands by, and for an attempt that started without standing by."""
        return self.read(self.go, Go)

    def forget_environments(self) -> None:
        """Remove the environment variables from job.json, watch.json and go.json before the folder is sent away."""
        for path in (self.job, self.watch, self.go):
            if (record := read_json(path)) and record.get("env"):
                write_object(path, record | {"env": {}}, PRIVATE)

    def place_model(self, sparse: Path) -> None:
        """Set the path of the model on this machine in settings.json, if that file names one."""
        if (record := read_json(self.settings)) and "sparse" in record:
            write_object(self.settings, record | {"sparse": str(sparse)})

    def read_start(self) -> Start:
        """Return start.json; blank before the start, and for a moment after it."""
        return self.read(self.start, Start) or Start()

    def read_heartbeat(self) -> Heartbeat:
        """Return heartbeat.json; blank before the first beat."""
        return self.read(self.heartbeat, Heartbeat) or Heartbeat()

    def read_exit(self) -> ExitFacts | None:
        """Return exit.json; None while the attempt runs, and if its supervisor was killed."""
        return self.read(self.exit, ExitFacts)

    def read_settings(self) -> TrainingSettings:
        """Return settings.json; blank if there is none."""
        from splatbatch.output.records.metrics import TrainingSettings

        return self.read(self.settings, TrainingSettings) or TrainingSettings()

    def read_metrics(self) -> Metrics | None:
        """Return metrics.json; None before the last evaluation, and without held-out photographs."""
        from splatbatch.output.records.metrics import Metrics

        return self.read(self.metrics, Metrics)

    def read_views(self) -> dict[str, EvaluatedView]:
        """Return the rendered held-out views, by rank, the worst first."""
        from splatbatch.output.records.metrics import RANKS, EvaluatedView

        found = read_json(self.views) or {}
        return {rank: EvaluatedView.from_record(found[rank]) for rank in RANKS if isinstance(found.get(rank), dict)}

    def read_result(self) -> Result | None:
        """Return the manifest of the attempt's splat; None if there is none."""
        from splatbatch.output.records.result import Result

        return self.read(self.result, Result)

    def read_progress(self) -> Sequence[ProgressLine]:
        """Return all lines of progress.jsonl."""
        return self._read_lines(self.progress, ProgressLine)

    def last_progress(self) -> ProgressLine:
        """Return the latest line of progress.jsonl; blank before the first. Only the file's end is read."""
        return ProgressLine.from_record(last_line(self.progress))

    def last_gpu_sample(self) -> GpuSample:
        """Return the latest line of gpu.jsonl; blank on the CPU. Only the file's end is read."""
        return GpuSample.from_record(last_line(self.gpu_samples))

    def read_gpu_samples(self) -> Sequence[GpuSample]:
        """Return all lines of gpu.jsonl; none on the CPU."""
        return self._read_lines(self.gpu_samples, GpuSample)

    def read(self, path: Path, kind: type[AttemptKind]) -> AttemptKind | None:
        """Return a file of the folder as a record; None if there is no such file, or it is no JSON object."""
        if (record := read_json(path)) is None:
            return None
        record.pop("format", None)  # not trusted: an external program may have written the file
        return kind.from_record(record)

    def _read_lines(self, path: Path, kind: type[AttemptKind]) -> Sequence[AttemptKind]:
        return [kind.from_record(record) for record in read_lines(path)]


@dataclass(frozen=True)
class CachedAttemptDir(AttemptFolder):
    """The folder of an attempt that has ended: its records no longer change, so each is read once and kept."""

    _known: dict[Path, Any] = field(default_factory=dict, compare=False, repr=False)

    def read(self, path: Path, kind: type[AttemptKind]) -> AttemptKind | None:
        """Return a file of the folder as a record, read at the first call; None if there is none."""
        if path not in self._known:
            self._known[path] = super().read(path, kind)
        known: AttemptKind | None = self._known[path]
        return known

    def _read_lines(self, path: Path, kind: type[AttemptKind]) -> Sequence[AttemptKind]:
        if path not in self._known:
            self._known[path] = super()._read_lines(path, kind)
        known: Sequence[AttemptKind] = self._known[path]
        return known

    def last_progress(self) -> ProgressLine:
        """Return the latest line of progress.jsonl; blank if there is none."""
        return [ProgressLine(), *self.read_progress()][-1]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task: its folder, and the content of its job.json, which may not be written yet."""

    patch: str
    folder: AttemptFolder
    job: JobSpec
