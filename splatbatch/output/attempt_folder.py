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
    """Return the number in the name of an attempt's folder: 1 for attempt-01; 0 if the name is no attempt's."""
    number = name.removeprefix(ATTEMPT_PREFIX)
    return int(number) if number != name and number.isdecimal() else 0


class FileIn:
    """Descriptor for the path of a file in a folder: `folder.job` is the path `folder.path`/job.json.

    The file may be absent.
    """

    def __init__(self, name: str) -> None:
        """Keep the name of the file, relative to the folder."""
        self._name = name

    def __get__(self, folder: Any, kind: object = None) -> Path:
        return Path(folder.path, self._name)


@dataclass(frozen=True)
class AttemptFolder:
    """The folder of one attempt, with the paths of its files and a reader for each.

    While the attempt runs, every file has one writer: its worker, the supervisor, or the training process. All paths
    begin with `path`; a file is absent until its writer makes it.
    """

    path: Path

    job = FileIn("job.json")
    """Key, command, environment and limits for the supervisor; the worker writes them before the start."""
    ballast = FileIn(".ballast")
    """Placeholder that the worker writes; the supervisor removes it to have room for exit.json on a full disk."""
    settings = FileIn("settings.json")
    """Settings for the training process; the worker writes them before the start."""
    watch = FileIn("watch.json")
    """Settings by which the supervisor watches an external trainer; the worker writes them before the start."""
    measuring = FileIn("measuring.json")
    """Settings by which splatbatch measures the splat of an external trainer; the worker writes them before the
    start."""
    output = FileIn("output")
    """Folder for all files that an external trainer writes."""
    staging = FileIn("scene")
    """Folder of links to model and photographs, laid out as many programs want them; the worker makes it."""
    cancel = FileIn("cancel")
    """Request to stop the attempt; the worker writes it."""
    go = FileIn("go.json")
    """Order to an attempt that stands by (started early, it waits for a GPU) to train on the GPU named. The worker
    writes it."""
    ahead = FileIn("ahead.json")
    """Order to an attempt that stands by to open its CUDA context on the GPU named, and to wait on; the worker writes
    it."""
    start = FileIn("start.json")
    """Identity of the supervisor, which writes the file with O_EXCL: a second start in this folder fails."""
    heartbeat = FileIn("heartbeat.json")
    """Number that the supervisor counts up while it lives, and the processes below it."""
    gpu_samples = FileIn("gpu.jsonl")
    """Samples of the GPU's memory and load (NVML) that the supervisor writes while the attempt runs."""
    log = FileIn("train.log")
    """Standard output and error of the training process; the supervisor writes them."""
    exit = FileIn(EXIT)
    """How the training process ended; the supervisor writes this file last of all."""
    progress = FileIn("progress.jsonl")
    """Phase, step, loss and number of Gaussians; the training process writes them, or the supervisor from the log."""
    metrics = FileIn("metrics.json")
    """Figures on held-out photographs, for each and in the mean; the training process writes them."""
    covered = FileIn("covered.json")
    """Covered pixels of held-out photographs, and their hash; the training process writes them."""
    views = FileIn("renders/views.json")
    """Names of the rendered held-out photographs, by rank: worst, median, best; the training process writes them."""
    pictures = FileIn(PICTURES)
    """Folder of small pictures for the figures of an inspection, which writes them; not every figure has one."""
    tensorboard = FileIn("tb")
    """Folder of TensorBoard's event files, if the settings request them; the training process writes them."""
    checkpoint = FileIn("checkpoint.pt")
    """Checkpoint of the training process: whole or absent."""
    splat = FileIn("splat.ply")
    """Splat, which the training process writes last of all, or the worker links from the files of an external trainer.

    It stays until `retention` lets it be removed."""
    result = FileIn("result.json")
    """Manifest of the splat, which the worker writes once the splat was found whole."""
    brought = FileIn("brought.json")
    """Origin of an attempt that came home from a store: its worker and result; home writes the file."""

    @property
    def number(self) -> int:
        """Number of the attempt: 1 for attempt-01; 0 if the folder is no attempt's."""
        return attempt_number(self.path.name)

    @property
    def task(self) -> str:
        """Name of the task, as "p0@base": the name of the folder around this one."""
        return self.path.parent.name

    def earlier(self) -> tuple[AttemptFolder, ...]:
        """Return the folders of the attempts at the same task before this one, in no order; empty if there are none."""
        folders = (AttemptFolder(self.path.parent / name) for name in names_in(f"{self.path.parent}"))
        return tuple(folder for folder in folders if 0 < folder.number < self.number)

    def has_exited(self) -> bool:
        """Return whether the supervisor has written exit.json; a supervisor that was killed writes none."""
        return os.path.exists(f"{self.path}/{EXIT}")  # noqa: PTH110 - asked of thousands, and twice as fast as a Path

    def is_cancelled(self) -> bool:
        """Return whether the worker has requested this attempt to stop."""
        return os.path.exists(self.cancel)  # noqa: PTH110 - a folder that may not be read is no error

    def picture(self, rank: str, kind: str) -> Path:
        """Return the path of a JPEG that the training process writes of a rendered held-out photograph.

        Args:
            rank: which of the photographs: worst, median or best.
            kind: which picture of it: photo, render or error.
        """
        return self.path / "renders" / f"{rank}-{kind}.jpg"

    def read_job(self) -> JobSpec | None:
        """Return job.json; None if there is no such file, or it cannot be read as a JSON object."""
        return self.read(self.job, JobSpec)

    def read_watch(self) -> WatchSettings | None:
        """Return watch.json; None if there is none, as for the builtin trainer, or it cannot be read as JSON."""
        return self.read(self.watch, WatchSettings)

    def read_go(self) -> Go | None:
        """Return go.json.

        None while the attempt stands by (waits for a GPU), and for an attempt that never stood by. Also None if the
        file cannot be read as JSON.
        """
        return self.read(self.go, Go)

    def forget_environments(self) -> None:
        """Remove the environment variables from job.json, watch.json and go.json, before the folder is sent away.

        Raises:
            OSError: a file cannot be written.
        """
        for path in (self.job, self.watch, self.go):
            if (record := read_json(path)) and record.get("env"):
                write_object(path, record | {"env": {}}, PRIVATE)

    def place_model(self, sparse: Path) -> None:
        """Set the path of the model on this machine in settings.json, if that file names a model.

        Args:
            sparse: folder of the model.

        Raises:
            OSError: the file cannot be written.
        """
        if (record := read_json(self.settings)) and "sparse" in record:
            write_object(self.settings, record | {"sparse": str(sparse)})

    def read_start(self) -> Start:
        """Return start.json; a blank record before the start and, until the file is whole, for a moment after it."""
        return self.read(self.start, Start) or Start()

    def read_heartbeat(self) -> Heartbeat:
        """Return heartbeat.json; a blank record before the first heartbeat, or if it cannot be read as JSON."""
        return self.read(self.heartbeat, Heartbeat) or Heartbeat()

    def read_exit(self) -> ExitFacts | None:
        """Return exit.json; None while the attempt runs, if its supervisor was killed, or if the file is unreadable."""
        return self.read(self.exit, ExitFacts)

    def read_settings(self) -> TrainingSettings:
        """Return settings.json; a blank record if there is none, or it cannot be read as JSON."""
        from splatbatch.output.records.metrics import TrainingSettings

        return self.read(self.settings, TrainingSettings) or TrainingSettings()

    def read_metrics(self) -> Metrics | None:
        """Return metrics.json; None if it cannot be read as JSON, or does not exist.

        It does not exist before the last evaluation, and for an external trainer whose splat is not measured.
        """
        from splatbatch.output.records.metrics import Metrics

        return self.read(self.metrics, Metrics)

    def read_views(self) -> dict[str, EvaluatedView]:
        """Return the rendered held-out photographs by rank, the worst first.

        Empty if none were rendered, or views.json cannot be read.
        """
        from splatbatch.output.records.metrics import RANKS, EvaluatedView

        found = read_json(self.views) or {}
        return {rank: EvaluatedView.from_record(found[rank]) for rank in RANKS if isinstance(found.get(rank), dict)}

    def read_result(self) -> Result | None:
        """Return the manifest of the attempt's splat; None if there is none, or it cannot be read as JSON."""
        from splatbatch.output.records.result import Result

        return self.read(self.result, Result)

    def read_progress(self) -> Sequence[ProgressLine]:
        """Return all lines of progress.jsonl, the oldest first; empty if there is no readable file."""
        return self._read_lines(self.progress, ProgressLine)

    def last_progress(self) -> ProgressLine:
        """Return the latest line of progress.jsonl; a blank record before the first. Only the file's end is read."""
        return ProgressLine.from_record(last_line(self.progress))

    def last_gpu_sample(self) -> GpuSample:
        """Return the latest line of gpu.jsonl; a blank record if there is none, as on the CPU.

        Only the file's end is read.
        """
        return GpuSample.from_record(last_line(self.gpu_samples))

    def read_gpu_samples(self) -> Sequence[GpuSample]:
        """Return all lines of gpu.jsonl, the oldest first; empty if there is no readable file, as on the CPU."""
        return self._read_lines(self.gpu_samples, GpuSample)

    def read(self, path: Path, kind: type[AttemptKind]) -> AttemptKind | None:
        """Return a JSON file of the folder as a record of the class `kind`.

        None if there is no readable file, or it is no JSON object. Invalid fields get their defaults.
        """
        if (record := read_json(path)) is None:
            return None
        record.pop("format", None)  # not trusted: an external program may have written the file
        return kind.from_record(record)

    def _read_lines(self, path: Path, kind: type[AttemptKind]) -> Sequence[AttemptKind]:
        return [kind.from_record(record) for record in read_lines(path)]


@dataclass(frozen=True)
class CachedAttemptDir(AttemptFolder):
    """The folder of an attempt that has ended: its records no longer change, so most are read only once."""

    _known: dict[Path, Any] = field(default_factory=dict, compare=False, repr=False)

    def read(self, path: Path, kind: type[AttemptKind]) -> AttemptKind | None:
        """Return a JSON file of the folder as a record of the class `kind`, read at the first call only.

        None if there is no readable file, or it is no JSON object.
        """
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
        """Return the last line of progress.jsonl; a blank record if there is none."""
        return [ProgressLine(), *self.read_progress()][-1]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task: the name of the task, its folder, and its job.json, which may not be written yet."""

    patch: str
    folder: AttemptFolder
    job: JobSpec
