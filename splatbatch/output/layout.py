"""The output folder of a batch: the only module that knows the names of its files."""

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
    """The output folder of a batch: paths of its files, and its patch folders, ledgers and requests.

    All paths begin with `path`; a file may be absent.
    """

    path: Path

    config = FileIn("batch.yaml")
    """The settings of the latest run as YAML, with defaults filled in."""
    ledger = FileIn("ledger/local.jsonl")
    """Ledger of `train`: one line per event, appended to by every run."""
    lock = FileIn("lock")
    """Link to the heartbeat file of the latest `train` here; version 0.2.0 reads it."""
    jobs = FileIn("workers/jobs")
    """Folder of the submissions: requests to an engine (this machine or Slurm) to start workers."""
    claims = FileIn("claims")
    """Folder of the claims: claims/<task>/<number of the claim>."""
    home = FileIn("home.json")
    """Name by which stores know this folder; the file exists once the batch was trained or packed with a store."""
    arriving = FileIn(".arriving")
    """Folder for attempts that are being fetched from a store, until they are whole."""
    frame = FileIn("frame.json")
    """Offset of the splats; absent until it is decided, before the first training."""
    colors = FileIn("colors.json")
    """Colour correction of each photograph; absent until one is solved, before a training that uses it."""
    deadline = FileIn("deadline.json")
    """Number of steps and size of photographs chosen for a deadline; absent before the first deadline, then kept."""
    color_cache = FileIn(".color-cache.npz")
    """Cache of the photographs' colours at their keypoints; it may be deleted at any time."""
    fault = FileIn("fault.txt")
    """Traceback of an error within splatbatch that concerns no single patch, as an error in the report."""
    metrics = FileIn("metrics.prom")
    """Progress of the batch in the text format of Prometheus."""

    @property
    def audit_cache(self) -> Path:
        """Path of the cached sizes of the photographs, read from their headers; the file lies in the user's cache."""
        return cache_of(self.path) / "headers.json"

    def claim(self, task: str, generation: int) -> Path:
        """Return the path of a claim of a task, by the number (generation) of the claim."""
        return Path(f"{self.path}/claims/{task}/{generation}")

    def worker(self, name: str) -> Path:
        """Return the path of a worker's heartbeat file, by the name of the worker."""
        return self.path / "workers" / f"{name}.json"

    def workers(self) -> list[str]:
        """Return the names of all workers that have a heartbeat file here, sorted, also of those that have ended."""
        files = names_in(f"{self.path}/workers")
        return sorted(Path(name).stem for name in files if name.endswith(".json") and name[0] != ".")

    def ledger_of(self, worker: str) -> Path:
        """Return the path of the ledger that a worker writes, by the name of the worker."""
        return self.ledger.with_name(f"{worker}.jsonl")

    def ledgers(self) -> tuple[Path, ...]:
        """Return the paths of all ledgers: those of workers by name, then that of `train`, which may be absent."""
        others = sorted(path for path in self.ledger.parent.glob("*.jsonl") if path != self.ledger)
        return (*others, self.ledger)

    def note_afterwards(self, what: str, found: FollowUpResult | None) -> None:
        """Write the result of a follow-up (merge, inspection, …) into afterwards/; an error of writing is ignored.

        Args:
            what: kind of the follow-up; see `records.run.KINDS`.
            found: its result; None: remove the file.
        """
        path = self._afterwards(what)
        with contextlib.suppress(OSError):
            if found is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(exist_ok=True)
                write_json(path, found.to_record())

    def read_afterwards(self) -> tuple[FollowUpResult, ...]:
        """Return the latest result of each follow-up that has a readable one, in the order of `records.run.KINDS`.

        Raises:
            LaterFormatError: a later version wrote a result.
        """
        found = {what: FollowUpResult.read(self._afterwards(what)) for what in KINDS}
        return tuple(replace(one, what=what) for what, one in found.items() if one is not None)

    def _afterwards(self, what: str) -> Path:
        return self.path / "afterwards" / f"{what}.json"

    def following(self, what: str) -> PatchFolder:
        """Return the folder of the attempts at a follow-up of this kind; see `records.run.KINDS`."""
        return PatchFolder(self.path / "afterwards" / what)

    def cancels(self, worker: str = "") -> list[Path]:
        """Return the files with open requests to cancel, sorted; empty if there are none.

        Args:
            worker: name of the worker that the requests address; "": `train`.
        """
        return sorted(
            (self.path / f"workers/cancel/{worker}").glob("*.json") if worker else self.path.glob("cancel-*.json")
        )

    @staticmethod
    def read_cancel(path: Path) -> CancelRequest:
        """Return a request to cancel; if it cannot be read, a blank record, which addresses no run.

        Raises:
            LaterFormatError: a later version wrote the request.
        """
        return CancelRequest.read(path) or CancelRequest()

    def new_cancel(self, worker: str = "") -> Path:
        """Return an unused path for a request to cancel; nothing is written.

        Args:
            worker: name of the worker that the request addresses; "": `train`.
        """
        number = uuid.uuid4().hex
        return self.path / (f"workers/cancel/{worker}/{number}.json" if worker else f"cancel-{number}.json")

    def report(self, suffix: str) -> Path:
        """Return the path of the report with this ending of its name: report.json, report.md, report.html."""
        return self.path / f"report.{suffix}"

    @property
    def scene(self) -> SceneFolder:
        """The folder of the whole scene."""
        return SceneFolder(self.path / "scene")

    def patch(self, name: str) -> PatchFolder:
        """Return the folder of a patch, by the name of the patch; the folder may not exist."""
        return PatchFolder(Path(f"{self.path}/patches/{name}"))

    def create(self) -> None:
        """Make the folder if missing, check that it can be written, and remove temporary files of killed processes.

        Raises:
            OutputError: the folder cannot be made or written.
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
                "Choose another folder, free space, or fix its permissions.",
            ) from error
