"""The output folder: the one place where its file names are written down."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.caches import cache_of
from splatbatch.errors import OutputError
from splatbatch.files import names_in, sweep, write_json
from splatbatch.output.attempt_folder import FileIn
from splatbatch.output.folders import PatchFolder, SceneFolder
from splatbatch.output.records.run import KINDS, CancelRequest, FollowUpResult


@dataclass(frozen=True)
class OutputFolder:
    """Everything a batch writes."""

    path: Path

    config = FileIn("batch.yaml")
    """The resolved config of the latest run."""
    ledger = FileIn("ledger/local.jsonl")
    """The history, as this run goes on with it: one line per event."""
    lock = FileIn("lock")
    """The `train` that runs here."""
    jobs = FileIn("workers/jobs")
    """What engines were asked to start."""
    claims = FileIn("claims")
    """Who works on which task: claims/<task>/<generation>."""
    home = FileIn("home.json")
    """By which name stores know this folder; there once a task of it has travelled."""
    arriving = FileIn(".arriving")
    """Attempts on their way home from a store, until they are whole."""
    frame = FileIn("frame.json")
    """The offset of the splats; there once a batch has been trained."""
    colors = FileIn("colors.json")
    """How each photograph renders colours; there once a batch has been trained."""
    deadline = FileIn("deadline.json")
    """What was given up so that the batch ends in time; there only with a deadline."""
    color_cache = FileIn(".color-cache.npz")
    """Colours of the photographs at their keypoints."""
    fault = FileIn("fault.txt")
    """Traceback of a fault of ours that is no patch's: over the report, say."""
    metrics = FileIn("metrics.prom")
    """For Prometheus: how far the batch is."""

    @property
    def audit_cache(self) -> Path:
        """Sizes of the photographs as read from their headers; in the user's cache."""
        return cache_of(self.path) / "headers.json"

    @property
    def index(self) -> Path:
        """What `status` has read of all that lies here; in the user's cache."""
        return cache_of(self.path) / "status"

    def claim(self, task: str, generation: int) -> Path:
        """Return where a generation of the claims of a task is made."""
        return Path(f"{self.path}/claims/{task}/{generation}")

    def worker(self, name: str) -> Path:
        """Return the file by which a worker shows that it lives."""
        return self.path / "workers" / f"{name}.json"

    def workers(self) -> list[str]:
        """Return the names of all workers that ever were here."""
        files = names_in(f"{self.path}/workers")
        return sorted(Path(name).stem for name in files if name.endswith(".json") and name[0] != ".")

    def ledger_of(self, worker: str) -> Path:
        """Return the ledger that a worker writes."""
        return self.ledger.with_name(f"{worker}.jsonl")

    def ledgers(self) -> tuple[Path, ...]:
        """Return the files of the history, the oldest first."""
        others = sorted(path for path in self.ledger.parent.glob("*.jsonl") if path != self.ledger)
        return (*others, self.ledger)

    def note_afterwards(self, what: str, found: FollowUpResult | None) -> None:
        """Write the result of a follow-up; None: remove it.

        An error of writing is ignored: the result is printed all the same.
        """
        path = self._afterwards(what)
        with contextlib.suppress(OSError):
            if found is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(exist_ok=True)
                write_json(path, found.to_record())

    def read_afterwards(self) -> tuple[FollowUpResult, ...]:
        """Return the results of the follow-ups, in their order."""
        found = {what: FollowUpResult.read(self._afterwards(what)) for what in KINDS}
        return tuple(replace(one, what=what) for what, one in found.items() if one is not None)

    def _afterwards(self, what: str) -> Path:
        return self.path / "afterwards" / f"{what}.json"

    def following(self, what: str) -> PatchFolder:
        """Return where attempts lie at making one thing that follows the training."""
        return PatchFolder(self.path / "afterwards" / what)

    def cancels(self, worker: str = "") -> list[Path]:
        """Return the requests that `train`, or a worker, end: one file each."""
        return sorted(
            (self.path / f"workers/cancel/{worker}").glob("*.json") if worker else self.path.glob("cancel-*.json")
        )

    @staticmethod
    def read_cancel(path: Path) -> CancelRequest:
        """Return a request; blank, which addresses no run, if it cannot be read."""
        return CancelRequest.read(path) or CancelRequest()

    def new_cancel(self, worker: str = "") -> Path:
        """Return where one more may be written."""
        number = uuid.uuid4().hex
        return self.path / (f"workers/cancel/{worker}/{number}.json" if worker else f"cancel-{number}.json")

    def report(self, suffix: str) -> Path:
        """Return report.json, report.md, …"""
        return self.path / f"report.{suffix}"

    @property
    def scene(self) -> SceneFolder:
        """The folder of the whole scene."""
        return SceneFolder(self.path / "scene")

    def patch(self, name: str) -> PatchFolder:
        """Return the folder of a patch."""
        return PatchFolder(Path(f"{self.path}/patches/{name}"))

    def create(self) -> None:
        """Make the folder, or sweep from it what writers that were killed have left.

        Raises:
            OutputError: it cannot be made or written.
        """
        try:
            (self.path / "patches").mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink(missing_ok=True)  # workers begin at once
            sweep(self.path, spares_living=True)
        except OSError as error:
            raise OutputError(
                f"output.folder: {self.path}: cannot be written ({error.strerror})",
                "Choose another folder, free space, or mend its permissions.",
            ) from error
