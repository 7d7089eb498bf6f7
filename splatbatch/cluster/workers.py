"""The requested workers of a batch that have not ended as far as known, on this machine and in Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from splatbatch.cluster import local, slurm
from splatbatch.cluster.job import WorkerJob
from splatbatch.output.layout import OutputFolder
from splatbatch.output.submissions import Submission, new_submission, open_submissions
from splatbatch.tasks.batch import Batch
from splatbatch.text import list_some, plural

MOST_NODES = 4
"""Most nodes, or reasons, that a line for the user names."""
ENGINES = ("local", "slurm", "")
"""Engines whose workers can be queried; "" is that of an unreadable record.

Submissions to other engines are ignored, as to Ray by version 0.2.0: their workers show in the output folder alone.
"""


class RequestedWorkers:
    """The workers that an engine (this machine or Slurm) was asked to start for an output folder, with their states.

    `look` asks the engines; all other questions are answered from its latest result.
    """

    def __init__(self, output: OutputFolder) -> None:
        """Read the submissions of an output folder; no engine is asked yet.

        Raises:
            LaterFormatError: a later version wrote a submission.
        """
        self._output = output
        self.submissions = [one for one in open_submissions(output) if one.record.engine in ENGINES]
        self.jobs: Mapping[str, WorkerJob] = {}
        """State of each worker at the latest `look`, by job."""

    def start(self, batch: Batch, command: Sequence[str], num_tasks: int) -> Submission:
        """Request workers that run a command: `executor.workers` of the YAML, but at most one for each task.

        The submission is recorded before the request, so that `settle` finds a start that was cut off or refused.

        Args:
            batch: the batch that the workers train.
            command: command of a worker.
            num_tasks: number of tasks to train.

        Raises:
            ExecutorError: the engine refuses the workers.
            OutputError: the submission cannot be written.
            OSError: the job script cannot be written.
        """
        settings = batch.config.executor
        num_workers = min(settings.workers, num_tasks)
        submission = new_submission(self._output, settings.engine, num_workers, batch.plan_hash)
        handles = (
            slurm.start(batch, submission, command, num_tasks)
            if settings.engine == "slurm"
            else local.start(batch, submission, command)
        )
        self.submissions.append(submission.write(handles))
        return self.submissions[-1]

    def settle(self) -> None:
        """Find the workers of submissions whose start was cut off or refused, and record them.

        A submission that has no workers is marked as ended; while Slurm does not answer, it stays as it is. Only the
        `train` that holds the output folder may call this method.

        Raises:
            OutputError: a submission cannot be written.
        """
        for number, one in enumerate(self.submissions):
            # workers of this machine, which have no script, show in the output folder alone
            if not one.record.handles and (found := slurm.find(one) if one.script.exists() else ()) is not None:
                self.submissions[number] = one.write(found)
                if not found:
                    one.mark(one.ended)

    def look(self) -> None:
        """Query the states of all workers, with at most one query of Slurm; "unknown" where an engine does not answer.

        Raises:
            ValueError: a record names a job of this machine in an invalid form.
        """
        ours = [job for one in self._of("local") for job in one.record.handles]
        self.jobs = {**{job: local.query_job(job) for job in ours}, **slurm.query_jobs(self._of("slurm"), self.jobs)}

    def lives(self) -> bool:
        """Return whether a worker may still run or start.

        Workers that were not queried yet, or whose start was cut off, count as alive. False without submissions.
        """
        return not all(self._has_ended(one) for one in self.submissions)

    def ended(self) -> list[tuple[Submission, WorkerJob]]:
        """Return the workers that had ended at the latest `look`, each with its submission and its state."""
        return [(one, self.jobs[job]) for one in self.submissions for job in one.record.handles if self.is_dead(job)]

    def is_dead(self, handle: str) -> bool:
        """Return whether the engine reported at the latest `look` that a worker has ended.

        False for an unknown handle.
        """
        return handle in self.jobs and self.jobs[handle].state == "ended"

    def cancel(self) -> None:
        """Mark all submissions as cancelled, and cancel the waiting workers; running workers are not touched.

        An error of the engine is ignored: a marked worker ends by itself as soon as it starts.
        """
        for one in self.submissions:
            one.mark(one.cancelled)
        self.stop(only_waiting=True)

    def stop(self, *, only_waiting: bool = False) -> str:
        """Tell all workers to end, or only those that wait to start.

        Return the error of the engine, "" if there is none.

        Raises:
            ValueError: a record names a job of this machine in an invalid form.
        """
        if not only_waiting:
            local.stop([job for one in self._of("local") for job in one.record.handles])
        return slurm.cancel(self._of("slurm"), only_pending=only_waiting)

    def close(self) -> None:
        """Query the states, mark the submissions whose workers have all ended, and query these submissions no more.

        Jobs of these submissions that Slurm holds for good are cancelled, since they would be forgotten.

        Raises:
            ValueError: see `look`.
        """
        self.look()
        slurm.cancel([one for one in self._of("slurm") if self._has_ended(one)], only_pending=True)
        for one in filter(self._has_ended, self.submissions):
            one.mark(one.ended)
        self.submissions = [one for one in self.submissions if not one.ended.exists()]

    def in_words(self) -> list[str]:
        """Return a line for each engine with workers: how many run and where, how many wait and why.

        Workers that have ended, or are in an unknown state, are counted, too. The list is empty without workers, and
        before the first `look`.
        """
        told = {
            name: [self.jobs[job] for one in self._of(name) for job in one.record.handles if job in self.jobs]
            for name in ENGINES
        }
        return [f"{name}: {_summary(jobs)}" for name, jobs in told.items() if jobs]

    def _of(self, engine: str) -> list[Submission]:
        return [one for one in self.submissions if one.record.engine == engine]

    def _has_ended(self, submission: Submission) -> bool:
        handles = submission.record.handles
        return bool(handles) and all(self.is_dead(handle) for handle in handles)


def _summary(jobs: Sequence[WorkerJob]) -> str:
    clauses = []
    for state in dict.fromkeys(one.state for one in jobs):
        told = Counter(one.words for one in jobs if one.state == state)
        named = [f"{words} ({number})" if number > 1 else words for words, number in sorted(told.items())]
        verb = {"running": "running on", "pending": "waiting"}.get(state, state)
        clauses.append(f"{plural(told.total(), 'worker')} {verb} {list_some(named, MOST_NODES)}")
    return "; ".join(clauses)
