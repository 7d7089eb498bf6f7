"""Submissions: workers that an engine (this machine or Slurm) was asked to start together, with record and logs."""

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
    """One request to an engine (this machine or Slurm) to start workers, in the folder workers/jobs/<name>/."""

    path: Path
    """Folder of the submission, of a name that no other submission ever has; absent until `write`."""
    record: SubmissionRecord
    """Content of submission.json; a blank record if the file cannot be read."""

    file = FileIn("submission.json")
    script = FileIn("job.sh")
    ended = FileIn("ended")
    """Exists once all workers of the submission are known to have ended: the engine need not be asked about them."""

    cancelled = FileIn("cancelled")
    """Exists once the workers of the submission are cancelled: a worker that starts later ends at once."""

    dropped = FileIn("dropped")
    """Exists once no task is left for those workers of the submission that still wait to start."""

    def log(self, index: int) -> Path:
        """Return the path of the log of one worker, by the index of the worker from 0; the file may be absent."""
        return self.path / f"{index}.log"

    def write(self, handles: tuple[str, ...] = ()) -> Submission:
        """Write submission.json; return the submission as written.

        Before the engine is asked the file is written without handles, so that a start that is cut off is found again.

        Args:
            handles: names that the engine gave to the workers.

        Raises:
            OutputError: the file cannot be written.
        """
        written = replace(self, record=replace(self.record, handles=handles))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.file, written.record.to_record())
        except OSError as error:
            raise OutputError(
                f"{self.path.parent}: cannot be written ({error.strerror}); free space or fix its permissions"
            ) from error
        return written

    def mark(self, fact: Path) -> bool:
        """Create `fact`, one of the files `ended`, `cancelled`, `dropped`; return whether this call created it.

        False also if it cannot be created.
        """
        try:
            fact.touch(exist_ok=False)
            return True
        except OSError:
            return False


def new_submission(output: OutputFolder, engine: str, num_workers: int, terms: str) -> Submission:
    """Return a new submission, with a name of its own; nothing is written yet.

    Args:
        output: the output folder that the workers train into.
        engine: the engine to be asked: "local" or "slurm".
        num_workers: number of workers at a time.
        terms: hash of the settings and version that the workers must train by.
    """
    number = 1 + max((int(path.name.split("-")[1]) for path in output.jobs.glob(FOLDERS)), default=0)
    name = f"splatbatch-{number:03d}-{uuid.uuid4().hex[:8]}"
    return Submission(output.jobs / name, SubmissionRecord(engine, num_workers, terms))


def open_submissions(output: OutputFolder) -> list[Submission]:
    """Return the submissions whose workers are not known to have ended; empty if there are none.

    They are sorted by their names, which contain a running number.

    Raises:
        LaterFormatError: a later version wrote a submission.
    """
    found = [Submission(path, SubmissionRecord()) for path in sorted(output.jobs.glob(FOLDERS))]
    return [
        replace(one, record=SubmissionRecord.read(one.file) or one.record) for one in found if not one.ended.exists()
    ]
