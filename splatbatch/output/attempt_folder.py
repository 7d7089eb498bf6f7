"""An attempt and its folder: the one place where the names of its files are written down."""

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

if TYPE_CHECKING:  # every attempt's supervisor would wait for what it never reads
    from splatbatch.output.records.metrics import EvaluatedView, Metrics, TrainingSettings
    from splatbatch.output.records.result import Result

AttemptKind = TypeVar("AttemptKind", bound=TypedRecord)
ATTEMPT_PREFIX = "attempt-"
EXIT = "exit.json"
PICTURES = "inspection"


def attempt_number(name: str) -> int:
    """Return 1 for attempt-01; 0 for what is no attempt."""
    number = name.removeprefix(ATTEMPT_PREFIX)
    return int(number) if number != name and number.isdecimal() else 0


class FileIn:
    """A file by its name in a folder: `folder.job` is where it lies."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, kind: object = None) -> Path:
        return Path(folder.path, self._name)


@dataclass(frozen=True)
class AttemptFolder:
    """The one place where the file names of an attempt are written down. Every file has exactly one writer."""

    path: Path

    job = FileIn("job.json")
    """Parent, before the start: key, argv, environment and limits for the supervisor."""
    ballast = FileIn(".ballast")
    """Parent, before the start: room that the supervisor frees when it writes down the end on a full disk."""
    settings = FileIn("settings.json")
    """Parent, before the start: what the training process is to do."""
    watch = FileIn("watch.json")
    """Parent, before the start: how an external trainer is watched, for the supervisor."""
    measuring = FileIn("measuring.json")
    """Parent, before the start of an external trainer: what our own evaluation of its splat is told."""
    output = FileIn("output")
    """Training process, if it is an external trainer: all that it writes."""
    staging = FileIn("scene")
    """Parent, before the start: links to model and photographs, side by side as many programs want them."""
    cancel = FileIn("cancel")
    """Parent: please stop."""
    go = FileIn("go.json")
    """Parent, for an attempt that stands by: start now, on this GPU."""
    ahead = FileIn("ahead.json")
    """Parent, for an attempt that stands by: open the CUDA context now, on this GPU, and wait on."""
    start = FileIn("start.json")
    """Supervisor, O_EXCL: the fence. A second start in this folder loses."""
    heartbeat = FileIn("heartbeat.json")
    """Supervisor: a sequence number that moves while it lives."""
    gpu_samples = FileIn("gpu.jsonl")
    """Supervisor: what NVML says while the attempt runs."""
    log = FileIn("train.log")
    """Supervisor: stdout and stderr of the training process."""
    exit = FileIn(EXIT)
    """Supervisor, last of all: how the process ended."""
    progress = FileIn("progress.jsonl")
    """Training process, or the supervisor from its log: phase, step, loss, number of Gaussians."""
    metrics = FileIn("metrics.json")
    """Training process: hold-out metrics, per photograph and in the mean."""
    covered = FileIn("covered.json")
    """Training process: which pixels of held-out photographs training photographs see, and their hash."""
    views = FileIn("renders/views.json")
    """Training process: which held-out views are pictured, by rank: worst, median, best."""
    pictures = FileIn(PICTURES)
    """Inspecting process: a folder of small pictures, one for each figure that has any."""
    tensorboard = FileIn("tb")
    """Training process: folder of TensorBoard's event files, if they are wanted."""
    checkpoint = FileIn("checkpoint.pt")
    """Training process: whole or absent."""
    splat = FileIn("splat.ply")
    """Training process, last of all: the product; kept while it is accepted, and after that for a while."""
    result = FileIn("result.json")
    """Parent, once the splat was found whole: its manifest; result.json of the patch if it is accepted."""
    brought = FileIn("brought.json")
    """Parent, of an attempt that came home from a store: as what result of which worker."""

    @property
    def number(self) -> int:
        """Return 1 for attempt-01; 0 for what is no attempt."""
        return attempt_number(self.path.name)

    @property
    def task(self) -> str:
        """Return the name of its task, "p0@base": that of the folder it lies in."""
        return self.path.parent.name

    def earlier(self) -> tuple[AttemptFolder, ...]:
        """Return the attempts at the same patch before this one, in no order."""
        folders = (AttemptFolder(self.path.parent / name) for name in names_in(f"{self.path.parent}"))
        return tuple(folder for folder in folders if 0 < folder.number < self.number)

    def has_exited(self) -> bool:
        """Return whether its supervisor has told how it ended."""
        return os.path.exists(f"{self.path}/{EXIT}")  # noqa: PTH110 - asked of thousands, and twice as fast as a Path

    def is_cancelled(self) -> bool:
        """Return whether its parent has asked it to stop."""
        return os.path.exists(self.cancel)  # noqa: PTH110 - a folder that may not be read is no error

    def picture(self, rank: str, kind: str) -> Path:
        """Training process: photo, render or error of a held-out view, as JPEG."""
        return self.path / "renders" / f"{rank}-{kind}.jpg"

    def read_job(self) -> JobSpec | None:
        """Return job.json; None if there is none, or no JSON object."""
        return self.read(self.job, JobSpec)

    def read_watch(self) -> WatchSettings | None:
        """Return watch.json; None for our own trainer."""
        return self.read(self.watch, WatchSettings)

    def read_go(self) -> Go | None:
        """Return go.json; None as long as it stands by, and if it never did."""
        return self.read(self.go, Go)

    def forget_environments(self) -> None:
        """Write its orders anew without values of environment variables: they are of this machine alone."""
        for path in (self.job, self.watch, self.go):
            if (record := read_json(path)) and record.get("env"):
                write_object(path, record | {"env": {}}, PRIVATE)

    def place_model(self, sparse: Path) -> None:
        """Write into settings.json where the model lies on this machine, if it says where at all."""
        if (record := read_json(self.settings)) and "sparse" in record:
            write_object(self.settings, record | {"sparse": str(sparse)})

    def read_start(self) -> Start:
        """Return start.json; blank before the start, and for a moment after it."""
        return self.read(self.start, Start) or Start()

    def read_heartbeat(self) -> Heartbeat:
        """Return heartbeat.json; blank before the first beat."""
        return self.read(self.heartbeat, Heartbeat) or Heartbeat()

    def read_exit(self) -> ExitFacts | None:
        """Return exit.json; None while it runs, and if its supervisor was killed."""
        return self.read(self.exit, ExitFacts)

    def read_settings(self) -> TrainingSettings:
        """Return what is asked of settings.json; blank without it."""
        from splatbatch.output.records.metrics import TrainingSettings

        return self.read(self.settings, TrainingSettings) or TrainingSettings()

    def read_metrics(self) -> Metrics | None:
        """Return metrics.json; None before the last evaluation, and without held-out photographs."""
        from splatbatch.output.records.metrics import Metrics

        return self.read(self.metrics, Metrics)

    def read_views(self) -> dict[str, EvaluatedView]:
        """Return the held-out views that are pictured, by rank, the worst first."""
        from splatbatch.output.records.metrics import RANKS, EvaluatedView

        found = read_json(self.views) or {}
        return {rank: EvaluatedView.from_record(found[rank]) for rank in RANKS if isinstance(found.get(rank), dict)}

    def read_result(self) -> Result | None:
        """Return the manifest of its splat; None if it left none."""
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
        """Return what a file of the folder holds; None if there is none, or no JSON object."""
        if (record := read_json(path)) is None:
            return None
        record.pop("format", None)  # whatever it is: the program that ran there may have written the file
        return kind.from_record(record)

    def _read_lines(self, path: Path, kind: type[AttemptKind]) -> Sequence[AttemptKind]:
        return [kind.from_record(record) for record in read_lines(path)]


@dataclass(frozen=True)
class CachedAttemptDir(AttemptFolder):
    """The folder of an attempt that has ended: its records change no more, and each is read once."""

    _known: dict[Path, Any] = field(default_factory=dict, compare=False, repr=False)

    def read(self, path: Path, kind: type[AttemptKind]) -> AttemptKind | None:
        """Return what a file of the folder holds, read once."""
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
        """Return the latest line of progress.jsonl; blank if it never began."""
        return [ProgressLine(), *self.read_progress()][-1]


@dataclass(frozen=True)
class Attempt:
    """One try at one patch: its folder, and what is, or will be, in its job.json."""

    patch: str
    folder: AttemptFolder
    job: JobSpec
