"""Workers that were asked for at once: a folder for each time, in which they write what they say."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import FileIn
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import SubmissionRecord

FOLDERS = "splatbatch-[0-9]*-*"


@dataclass(frozen=True)
class Submission:
    """Workers that were asked for at once: workers/jobs/<name>/."""

    path: Path
    record: SubmissionRecord
    """What it says of itself; blank if it cannot be read."""

    file = FileIn("submission.json")
    script = FileIn("job.sh")
    ended = FileIn("ended")
    """There once all its workers are known to have ended: no engine has to be asked about them."""

    cancelled = FileIn("cancelled")
    """There once they are no longer wanted: those that start later end at once."""

    dropped = FileIn("dropped")
    """There once nothing is left for those that wait."""

    @property
    def name(self) -> str:
        """Return its name, which no other ever has."""
        return self.path.name

    def log(self, index: int) -> Path:
        """Return where one of its workers writes what it says."""
        return self.path / f"{index}.log"

    def write(self) -> None:
        """Write it down before its workers are asked for; a start that is cut off after that is found again.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            self.path.mkdir(parents=True)
            write_json(self.file, self.record.to_record())
        except OSError as error:
            raise OutputError(f"{self.path.parent}: cannot be written ({error.strerror})") from error

    def taken(self, handles: tuple[str, ...]) -> Submission:
        """Write down what the engine calls its workers."""
        record = replace(self.record, handles=handles)
        write_json(self.file, record.to_record())
        return replace(self, record=record)

    def mark(self, fact: Path) -> bool:
        """Write down that it is `ended`, `cancelled` or `dropped`; return whether that is news, and was written."""
        try:
            fact.touch(exist_ok=False)
            return True
        except OSError:
            return False


def new_submission(output: OutputFolder, engine: str, num_workers: int, terms: str) -> Submission:
    """Return a submission of workers that are about to be asked for; nothing is written yet."""
    number = 1 + max((int(path.name.split("-")[1]) for path in output.jobs.glob(FOLDERS)), default=0)
    name = f"splatbatch-{number:03d}-{uuid.uuid4().hex[:8]}"
    return Submission(output.jobs / name, SubmissionRecord(engine, num_workers, terms))


def open_submissions(output: OutputFolder) -> list[Submission]:
    """Return those whose workers are not known to have ended, the oldest first."""
    found = [Submission(path, SubmissionRecord()) for path in sorted(output.jobs.glob(FOLDERS))]
    return [
        replace(one, record=SubmissionRecord.read(one.file) or one.record) for one in found if not one.ended.exists()
    ]
