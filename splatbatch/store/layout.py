"""The output folder: the one place where its file names are written down."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.errors import OutputError
from splatbatch.files import read_json
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder, FileIn
from splatbatch.store.hashes import file_fact
from splatbatch.store.records.colors import Colors
from splatbatch.store.records.frame import Frame
from splatbatch.store.records.result import Result
from splatbatch.store.records.run import CancelRequest

if TYPE_CHECKING:
    from splatbatch.store.records.evaluation import SceneEvaluation
    from splatbatch.store.records.merge import Merge

SPLAT, RESULT, MERGE = "splat.ply", "result.json", "merge.json"
BACKDROP = "backdrop"
"""The task, and the folder, of the whole scene that is drawn behind its patches."""
_PREFIX_LENGTH = len(ATTEMPT_PREFIX)


def _number(name: str) -> int:
    """Return 1 for attempt-01; 0 for what is no attempt."""
    is_attempt = name.startswith(ATTEMPT_PREFIX) and name[_PREFIX_LENGTH:].isdecimal()
    return int(name[_PREFIX_LENGTH:]) if is_attempt else 0


def latest_number(files: Iterable[str]) -> int:
    """Return the number of the last attempt among the names of what lies in a patch's folder; 0 if there is none."""
    return max(map(_number, files), default=0)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone are wanted, of thousands of folders
    except OSError:
        return []


@dataclass(frozen=True)
class PatchFolder:
    """What lies in the output folder for one patch."""

    path: Path

    splat = FileIn(SPLAT)
    """The accepted product."""
    result = FileIn(RESULT)
    """Its manifest; written after the splat, so that a manifest never stands without its product."""
    preview = FileIn("preview.compressed.ply")
    """The report: a few MB of the splat, to look at in the page."""

    def read_result(self) -> Result | None:
        """Return the manifest of the product; None if there is none, or no JSON object."""
        record = read_json(self.result)
        return None if record is None else Result.from_record(record)

    def files(self) -> list[str]:
        """Return the names of what lies here; none if there is no folder."""
        return _names_in(f"{self.path}")

    def attempts(self) -> list[AttemptFolder]:
        """Return the folders of all attempts, first to last."""
        numbers = [name for name in self.files() if _number(name)]
        return [AttemptFolder(self.path / name) for name in sorted(numbers, key=_number)]

    def latest(self, files: Collection[str]) -> AttemptFolder | None:
        """Return the folder of the last attempt among `files`, if there is one."""
        number = latest_number(files)
        name = next((name for name in files if _number(name) == number), "") if number else ""
        return AttemptFolder(self.path / name) if name else None

    def is_accepted(self, files: Container[str]) -> bool:
        """Return whether a product and its manifest are among `files`."""
        return SPLAT in files and RESULT in files

    def new_attempt(self) -> AttemptFolder:
        """Make the folder of the next attempt; a number is never used twice."""
        number = max((folder.number for folder in self.attempts()), default=0) + 1
        folder = AttemptFolder(self.path / f"{ATTEMPT_PREFIX}{number:02d}")
        folder.path.mkdir(parents=True)
        return folder


def backdrop_sha256(folder: Path | None) -> str:
    """Return the hash of the backdrop that is accepted in a folder; empty if there is none."""
    result = PatchFolder(folder).read_result() if folder and (folder / SPLAT).exists() else None
    return result.sha256 if result else ""


def never_went(folder: AttemptFolder) -> bool:
    """Return whether an attempt only ever stood by: it counts for nothing, and its folder may go."""
    job = folder.read_job()
    return job is not None and job.standby and not folder.go.exists()


@dataclass(frozen=True)
class MergedFiles:
    """A merged splat, and beside it what it was made of."""

    splat: Path
    record: Path

    @staticmethod
    def at(splat: Path) -> MergedFiles:
        """Return the files of a splat that is merged to a place of somebody's choice."""
        return MergedFiles(splat, splat.with_name(f"{splat.stem}.{MERGE}"))

    def read(self) -> Merge | None:
        """Return what the splat was made of; None if nobody knows, or another file stands there by now."""
        from splatbatch.store.records.merge import Merge  # of which `status` knows nothing

        record, fact = read_json(self.record), file_fact(self.splat)
        found = Merge.from_record(record)
        return found if record is not None and (found.bytes, found.mtime_ns) == fact[:2] else None


@dataclass(frozen=True)
class SceneFolder:
    """What lies in the output folder for the whole scene, as merged from its patches."""

    path: Path

    splat = FileIn(SPLAT)
    merge = FileIn(MERGE)
    """What the splat was merged from."""
    evaluation = FileIn("evaluation.json")
    """How good it is; `evaluate` copies it here from its attempt."""

    def evaluation_of(self, splat: Path) -> Path:
        """Return where the evaluation of a splat goes: of another one than the scene's own, under a name of its own."""
        name = "evaluation" if splat.resolve() == self.splat.resolve() else f"evaluation-{splat.stem}"
        return self.path / f"{name}.json"

    def read_evaluation(self, splat: Path | None = None) -> SceneEvaluation | None:
        """Return how good the scene, or another splat, was found to be; None if nobody has measured it."""
        from splatbatch.store.records.evaluation import SceneEvaluation  # of which `status` knows nothing

        record = read_json(self.evaluation_of(splat or self.splat))
        return None if record is None else SceneEvaluation.from_record(record)

    @property
    def evaluating(self) -> PatchFolder:
        """The attempts at measuring it."""
        return PatchFolder(self.path / "evaluating")

    @property
    def merged(self) -> MergedFiles:
        """The merged splat and what it was made of."""
        return MergedFiles(self.splat, self.merge)


@dataclass(frozen=True)
class OutputFolder:
    """Everything a batch writes."""

    path: Path

    config = FileIn("batch.yaml")
    """The resolved config of the latest run."""
    ledger = FileIn("ledger/local.jsonl")
    """The history, as this run goes on with it: one line per event."""
    lock = FileIn("lock")
    """Who runs here."""
    audit_cache = FileIn(".audit-cache.json")
    """Sizes of the photographs as read from their headers."""
    frame = FileIn("frame.json")
    """The offset of the splats; there once a batch has been trained."""
    colors = FileIn("colors.json")
    """The tones of the photographs; there once a batch has been trained."""
    color_cache = FileIn(".color-cache.npz")
    """Colours of the photographs at their keypoints."""
    index = FileIn(".status-index")
    """What `status` has read of all that lies here; it may be removed at any time."""
    metrics = FileIn("metrics.prom")
    """For Prometheus: how far the batch is."""

    def ledgers(self) -> tuple[Path, ...]:
        """Return the files of the history, the oldest first: 0.1.0 had one beside the folder."""
        beside = self.path / "ledger.jsonl"
        others = sorted(path for path in self.ledger.parent.glob("*.jsonl") if path != self.ledger)
        return (*([beside] if beside.exists() else ()), *others, self.ledger)

    def read_frame(self) -> Frame | None:
        """Return where the splats lie; None if no batch has settled it, or it is no JSON object."""
        record = read_json(self.frame)
        return None if record is None else Frame.from_record(record)

    def read_colors(self) -> Colors | None:
        """Return the tones of the photographs; None if no batch has solved them, or it is no JSON object."""
        record = read_json(self.colors)
        return None if record is None else Colors.from_record(record)

    def cancels(self) -> list[Path]:
        """Return the requests that a running batch end: one file each."""
        return sorted(self.path.glob("cancel-*.json"))

    @staticmethod
    def read_cancel(path: Path) -> CancelRequest:
        """Return a request; blank, so that nobody is meant, if it cannot be read."""
        return CancelRequest.from_record(read_json(path))

    def new_cancel(self) -> Path:
        """Return where one more may be written."""
        return self.path / f"cancel-{uuid.uuid4().hex}.json"

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

    def files_of(self, name: str) -> list[str]:
        """Return the names of what lies in the folder of a patch, as `PatchFolder.files` does: without making one."""
        return _names_in(f"{self.path}/patches/{name}")

    def create(self) -> None:
        """Make the folder.

        Raises:
            OutputError: it cannot be made or written.
        """
        try:
            (self.path / "patches").mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise OutputError(
                f"output.folder: {self.path}: cannot be written ({error.strerror})",
                "Choose another folder, free space, or mend its permissions.",
            ) from error
