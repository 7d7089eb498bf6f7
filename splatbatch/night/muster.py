"""Workers for a batch, from the engine that its YAML names: asked for once, however often somebody calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splatbatch.engines.crew import Crew
from splatbatch.engines.engine import TERMS, Running, Wanted
from splatbatch.errors import ExecutorError, OutputError
from splatbatch.machine import detached
from splatbatch.plain_text import counted
from splatbatch.scheduler.work.left import Left
from splatbatch.store.claims.submissions import new_submission
from splatbatch.store.claims.workers import LOCAL, Watcher
from splatbatch.store.lock import OutputLock
from splatbatch.store.records.run import WorkerRecord
from splatbatch.tasks.batch import Batch

UNKNOWN_S = 3600.0
"""So long a task is taken to last where nobody can tell: too many turns cost nothing, the last ones are taken back."""
MARGIN = 1.5


@dataclass
class Muster:
    """Sees to it that workers are at work on a batch."""

    batch: Batch
    names: Sequence[str]
    """Of the patches that were named; none for all."""
    verify: bool
    crew: Crew
    watcher: Watcher
    left: Left

    def call(self) -> str:
        """Ask for workers unless some are at work or wait; return what was done, in words; empty: nothing is left.

        Raises:
            ExecutorError: the engine would refuse them, or workers are at work by another YAML.
            OutputError: a `train` of this kind is just asking, or one trains by itself.
        """
        with OutputLock(self.batch.output.lock):
            self.crew.settle()
            self.crew.look()
            self.crew.close()
            terms = self.batch.terms
            self._see_same_terms(terms)
            if self.crew.lives() or self.living():
                return f"workers are at work or wait already: nothing was started. {'; '.join(self.crew.in_words())}"
            standing = self.batch.standing("content")
            left = self.left.names(standing)
            return self._start(terms, len(left)) if left else ""

    def living(self) -> list[WorkerRecord]:
        """Return the workers that are not known to be gone, also by what their engine says."""
        return [one for one in self.watcher.living(but=LOCAL) if not self.crew.is_gone(one.job)]

    def _start(self, terms: str, num_tasks: int) -> str:
        wanted = self._wanted(terms, num_tasks)
        engine = self.crew.engine()
        engine.check(wanted)
        name = self.batch.config.executor.engine
        try:
            submission = new_submission(self.batch.output, name, wanted.num_workers, terms)
        except OSError as error:
            raise OutputError(f"{self.batch.output.jobs}: cannot be written ({error.strerror})") from error
        try:
            handles = engine.start(wanted, submission)
        except ExecutorError:
            if engine.find(submission) == ():  # else it may have taken them all the same
                submission.close()
            raise
        self.crew.add(submission.taken(handles))
        jobs = handles[0] if len(handles) == 1 else f"{handles[0]} to {handles[-1]}"
        return f"{name} was asked for {counted(wanted.num_workers, 'worker')}: {jobs}; logs: {submission.path}"

    def _wanted(self, terms: str, num_tasks: int) -> Wanted:
        settings = self.batch.config.executor
        path = self.batch.file
        no_verify = () if self.verify else ("--no-verify",)
        num_workers = min(settings.workers, num_tasks)
        wanted = Wanted(
            num_workers=num_workers,
            gpus=settings.gpus_of_each(self.batch.config.training.device),
            command=detached.command_of(("work", "--config", str(path), *no_verify, *self.names)),
            environment={TERMS: terms},
            folder=path.parent,
            grace_s=self.batch.config.limits.grace_s,
            setup=settings.setup,
        )
        seconds = MARGIN * UNKNOWN_S * math.ceil(num_tasks / num_workers)
        return wanted.with_turns(self.crew.engine().num_turns(wanted, seconds))

    def _see_same_terms(self, terms: str) -> None:
        """See that nobody is at work, or waits to be, by another YAML or with another version.

        Raises:
            ExecutorError: somebody is.
        """
        others = [one for one in self.living() if one.terms != terms and self._works(one)]
        asked = [one for one in self.crew.submissions if one.record.terms not in ("", terms)]
        if others or asked:
            who = (
                f"worker {others[0].worker} on {others[0].host}"
                if others
                else f"{asked[0].name} of {asked[0].record.engine}"
            )
            raise ExecutorError(
                f"{self.batch.output.path}: {who} trains into this folder by another YAML, or with another version",
                "End it with `splatbatch cancel`, or put the YAML back as it was: all workers of a batch train by one.",
            )

    def _works(self, worker: WorkerRecord) -> bool:
        return self.watcher.lives(worker) or isinstance(self.crew.seen.get(worker.job), Running)
