"""What engines were asked to start: one folder each, in which its workers write what they say."""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from splatbatch.files import write_json
from splatbatch.output.attempt_folder import FileIn
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import SubmissionRecord


@dataclass(frozen=True)
class Submission:
    """Workers that were asked for at once: workers/jobs/<name>/."""

    path: Path

    file = FileIn("submission.json")
    script = FileIn("job.sh")
    ended = FileIn("ended")
    """There once all its workers are known to have ended: no engine has to be asked about them."""

    cancelled = FileIn("cancelled")
    """There once nobody wants them any more: those that start later end at once."""

    dropped = FileIn("dropped")
    """There once nothing is left for those that wait."""

    @property
    def name(self) -> str:
        """Return its name, which no other ever has."""
        return self.path.name

    @cached_property
    def record(self) -> SubmissionRecord:
        """Return what it says of itself; blank if nobody can read it."""
        return SubmissionRecord.read(self.file) or SubmissionRecord()

    @property
    def handles(self) -> tuple[str, ...]:
        """Return what the engine calls its workers."""
        return self.record.handles

    def log(self, index: int) -> Path:
        """Return where one of its workers writes what it says."""
        return self.path / f"{index}.log"

    def log_of(self, handle: str) -> Path:
        """Return where the worker that the engine calls so writes what it says."""
        return self.log(self.handles.index(handle)) if handle in self.handles else self.log(0)

    def taken(self, handles: tuple[str, ...]) -> Submission:
        """Write down what the engine calls its workers; before that a start may have been cut off."""
        write_json(self.file, replace(self.record, handles=handles).to_record())
        return Submission(self.path)

    def cancel(self) -> None:
        """Write down that nobody wants them any more."""
        with contextlib.suppress(OSError):
            self.cancelled.touch()

    def is_first_to_drop(self) -> bool:
        """Return whether nobody has seen before us that nothing is left for those that wait; once."""
        try:
            self.dropped.touch(exist_ok=False)
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Write down that all its workers have ended."""
        with contextlib.suppress(OSError):
            self.ended.touch()


def new_submission(output: OutputFolder, engine: str, num_workers: int, terms: str) -> Submission:
    """Make the folder of workers that an engine is about to be asked for.

    Raises:
        OSError: it cannot be made.
    """
    number = 1 + max((int(one.name.split("-")[1]) for one in submissions(output)), default=0)
    made = Submission(output.jobs / f"splatbatch-{number:03d}-{uuid.uuid4().hex[:8]}")
    made.path.mkdir(parents=True)
    record = SubmissionRecord(made.name, engine, num_workers, time.strftime("%Y-%m-%d %H:%M:%S"), terms)
    write_json(made.file, record.to_record())
    return made


def submissions(output: OutputFolder) -> list[Submission]:
    """Return all that was ever asked of engines, the oldest first."""
    found = (Submission(path) for path in output.jobs.glob("splatbatch-[0-9]*-*"))
    return sorted((one for one in found if one.name.split("-")[1].isdecimal()), key=lambda one: one.name)


def open_submissions(output: OutputFolder) -> list[Submission]:
    """Return those whose workers are not known to have ended."""
    return [one for one in submissions(output) if not one.ended.exists()]
