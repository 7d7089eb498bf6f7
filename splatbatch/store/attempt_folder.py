"""An attempt and its folder: the one place where the names of its files are written down."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ATTEMPT_PREFIX = "attempt-"
EXIT = "exit.json"


@dataclass(frozen=True)
class AttemptFolder:
    """The one place where the file names of an attempt are written down. Every file has exactly one writer."""

    path: Path

    @property
    def number(self) -> int:
        """Return 1 for attempt-01."""
        return int(self.path.name.removeprefix(ATTEMPT_PREFIX))

    def earlier(self) -> tuple[AttemptFolder, ...]:
        """Return the attempts at the same patch before this one, in no order."""
        names = (path for path in self.path.parent.glob(f"{ATTEMPT_PREFIX}*") if path.name != self.path.name)
        folders = (AttemptFolder(path) for path in names if path.name.removeprefix(ATTEMPT_PREFIX).isdecimal())
        return tuple(folder for folder in folders if folder.number < self.number)

    @property
    def job(self) -> Path:
        """Parent, before the start: key, argv, environment and limits for the supervisor."""
        return self.path / "job.json"

    @property
    def ballast(self) -> Path:
        """Parent, before the start: room that the supervisor frees when it writes down the end on a full disk."""
        return self.path / ".ballast"

    @property
    def settings(self) -> Path:
        """Parent, before the start: what the training process is to do."""
        return self.path / "settings.json"

    @property
    def watch(self) -> Path:
        """Parent, before the start: how a program of somebody else is watched, for the supervisor."""
        return self.path / "watch.json"

    @property
    def output(self) -> Path:
        """Training process, if it is a program of somebody else: all that it writes."""
        return self.path / "output"

    @property
    def staging(self) -> Path:
        """Parent, before the start: links to model and photographs, side by side as many programs want them."""
        return self.path / "scene"

    @property
    def cancel(self) -> Path:
        """Parent: please stop."""
        return self.path / "cancel"

    @property
    def go(self) -> Path:
        """Parent, for an attempt that stands by: start now, on this GPU."""
        return self.path / "go.json"

    @property
    def start(self) -> Path:
        """Supervisor, O_EXCL: the fence. A second start in this folder loses."""
        return self.path / "start.json"

    @property
    def heartbeat(self) -> Path:
        """Supervisor: a sequence number that moves while it lives."""
        return self.path / "heartbeat.json"

    @property
    def gpu_samples(self) -> Path:
        """Supervisor: what NVML says while the attempt runs."""
        return self.path / "gpu.jsonl"

    @property
    def log(self) -> Path:
        """Supervisor: stdout and stderr of the training process."""
        return self.path / "train.log"

    @property
    def exit(self) -> Path:
        """Supervisor, last of all: how the process ended."""
        return self.path / EXIT

    def has_ended(self) -> bool:
        """Return whether its supervisor has told how it ended."""
        return os.path.exists(f"{self.path}/{EXIT}")  # noqa: PTH110 - asked of thousands, and twice as fast as a Path

    def is_cancelled(self) -> bool:
        """Return whether its parent has asked it to stop."""
        return os.path.exists(self.cancel)  # noqa: PTH110 - a folder that may not be read is no error

    @property
    def progress(self) -> Path:
        """Training process, or the supervisor from its log: phase, step, loss, number of Gaussians."""
        return self.path / "progress.jsonl"

    @property
    def metrics(self) -> Path:
        """Training process: hold-out metrics, per photograph and in the mean."""
        return self.path / "metrics.json"

    @property
    def views(self) -> Path:
        """Training process: which held-out views are pictured, by rank: worst, median, best."""
        return self.path / "renders" / "views.json"

    def picture(self, rank: str, kind: str) -> Path:
        """Training process: photo, render or error of a held-out view, as JPEG."""
        return self.path / "renders" / f"{rank}-{kind}.jpg"

    @property
    def tensorboard(self) -> Path:
        """Training process: folder of TensorBoard's event files, if they are wanted."""
        return self.path / "tb"

    @property
    def checkpoint(self) -> Path:
        """Training process: whole or absent."""
        return self.path / "checkpoint.pt"

    @property
    def splat(self) -> Path:
        """Training process, last of all: the product; kept while it is accepted, and after that for a while."""
        return self.path / "splat.ply"

    @property
    def result(self) -> Path:
        """Parent, once the splat was found whole: its manifest; result.json of the patch if it is accepted."""
        return self.path / "result.json"


@dataclass(frozen=True)
class Attempt:
    """One try at one patch: its folder, the settings it changes, and hashes of what it depends on."""

    patch: str
    folder: AttemptFolder
    changes: dict[str, Any] = field(default_factory=dict)
    depends_on: dict[str, Any] = field(default_factory=dict)
    """See `splatbatch.tasks.fingerprints.fingerprint.Fingerprint`."""
    is_retry: bool = False
    """Asked for by `retry`: the better of it and of what is accepted is kept."""
