"""Claims tasks for the loop of one of several workers; tasks that other workers have finished are not repeated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from splatbatch.hashing import Stamp, stamp_of
from splatbatch.output.claims import Claims, done_with
from splatbatch.output.folders import BACKDROP
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Claim
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.adopt import adopt_task
from splatbatch.scheduler.work.other_workers import OtherWorkers
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.task import Task

LOOK_S = 2.0
"""Seconds between two looks at a task that another worker has."""
LOST_S = 2.0
"""Seconds between two checks whether another worker took over a task of this worker."""


class TaskProgress(NamedTuple):
    """Progress of a task, taken before it was decided to train the task.

    If the progress has changed when the task is claimed, another worker has worked on it.
    """

    done: int = 0
    """Highest generation of the task that is finished: each claim of the task has the next number.

    0: none is finished.
    """
    accepted: int = 0
    """Number of the newest record of an accepted splat (accepted/NUMBER.json); 0: none."""
    manifest: Stamp | None = None
    """Size and time of the task's result.json; None: not looked at."""

    @classmethod
    def of(cls, output: OutputFolder, name: str) -> TaskProgress:
        """Return the progress of a task now, by the files of the output folder.

        A task not begun has 0, 0 and a blank stamp.
        """
        folder = output.patch(name)
        return cls(done_with(output, name), folder.newest_accepted(), stamp_of(str(folder.result)))


@dataclass(kw_only=True)
class TaskClaimer(RunHooks):
    """Hooks for the loop of one of several workers: claims each task when its turn comes.

    An object serves one pass over the batch; tasks that are due afterwards get another pass.
    """

    claims: Claims
    ledger: Ledger
    before: Mapping[str, TaskProgress]
    """Progress of each task, and of the backdrop, before the tasks to train were decided."""
    standing: FreshnessChecker
    """Freshness checker by which the tasks were decided.

    A task that another worker has trained since is judged by it again.
    """
    others: OtherWorkers
    """Reports to the user for which worker a task waits."""
    time_left: TimeLeft | None = None
    """Remaining time of this worker; None: no limit."""
    is_over: bool = False
    """Whether the remaining time was too short for a task, so that the worker ends."""
    trained_elsewhere: list[str] = field(default_factory=list)
    """Names of tasks that other workers have trained since the tasks were decided."""
    _next_look: float = 0.0
    _elsewhere: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """Time and answer of the last check whether another worker has a task, by task."""
    _unheld: set[str] = field(default_factory=set)
    """Tasks for which the remaining time is too short; tasks that need their products are not begun either."""

    def claim(self, task: Task) -> Task | float | None:
        """Claim a task whose turn it is; see `RunHooks.claim` for the result.

        If no claim can be written, as on a full disk, the task is granted without a claim.

        Raises:
            OSError, SplatbatchError: an attempt of a dead worker does not end, or the disk is full.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        name = task.name
        if task.claim is not None:
            return task
        if done_with(task.output, name) > self.before[name].done:
            self._closed(task)
            return None
        if self._unheld.intersection(task.required) or (self.time_left and not self.time_left.holds(task)):
            if task.patch.is_whole and self.is_elsewhere(name):
                return LOOK_S  # once another worker has trained the backdrop, patches may still fit into our time
            self.is_over = True
            self._unheld.add(name)
            return None
        try:
            found = self.claims.take(name)
        except OSError:  # such as a full disk: its attempt reports it, and of two splats only one is accepted
            return task
        if isinstance(found, Claim):
            return self._begun(task, found)
        self.others.report(found, name)
        return LOOK_S

    def is_elsewhere(self, name: str) -> bool:
        """Return whether another worker has claimed a task; the answer may be 2 s old.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        asked, answer = self._elsewhere.get(name, (-LOOK_S, False))
        if (now := time.monotonic()) >= asked + LOOK_S:
            asked, answer = now, self.claims.is_elsewhere(name)
        self._elsewhere[name] = (asked, answer)
        return answer

    def outdated(self, fresh: Iterable[str]) -> tuple[str, ...]:
        """Return the tasks, up to date before, that are stale since a product they need was made anew.

        Args:
            fresh: names of tasks that were up to date at the start; tasks trained by other workers are added.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        tasks = [self.standing.tasks[name] for name in (*fresh, *self.trained_elsewhere)]
        needs = {task.name: task.required for task in tasks}
        now = {name: TaskProgress.of(self.standing.output, name) for name in set().union(*needs.values())}
        moved = {name for name, one in now.items() if one[1:] != self.before.get(name, TaskProgress())[1:]}
        touched = (name for name, needed in needs.items() if moved.intersection(needed))
        return tuple(name for name in touched if self.standing.is_due(name))

    def close(self, name: str) -> None:
        """Close the claim of this worker on a finished task."""
        self.claims.close(name)

    def lost(self) -> Mapping[str, str]:
        """Return the tasks that other workers took over since the last call, each with that worker in words.

        A worker takes tasks over if this worker seems dead. Claims are read every 2 s at most; between, the result is
        empty.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        if time.monotonic() < self._next_look:
            return {}
        self._next_look = time.monotonic() + LOST_S
        return {name: f"{worker}, which took the task over" for name, worker in self.claims.lost().items()}

    def _begun(self, task: Task, claim: Claim) -> Task | None:
        """Check a task just claimed: adopt attempts of a dead worker; return None if the task is up to date by now."""
        if claim.generation > 1:  # an earlier worker may have left attempts
            adopt_task(task, self.ledger, self.standing.endings, self.tick)
            claim = self.claims.renew(task.name)
        has_moved = claim.follows != self.before[task.name].accepted
        if has_moved and not self.standing.is_due(task.name):
            self.close(task.name)
            self._closed(task)
            return None
        changes = self.past.history(task.name).changes if self.past else {}
        return replace(task.changed(changes), claim=claim)

    def _closed(self, task: Task) -> None:
        """Note a task that another worker has finished, if its product is up to date."""
        if self.standing.is_up_to_date(task.name):
            self.trained_elsewhere.append(task.name)


def progress_of(batch: Batch) -> Mapping[str, TaskProgress]:
    """Return the progress of each task of a batch, and of the backdrop, by name."""
    return {name: TaskProgress.of(batch.output, name) for name in (*batch.names, BACKDROP)}


def left_over(batch: Batch, before: Mapping[str, TaskProgress], standing: FreshnessChecker) -> list[str]:
    """Return the due tasks that no worker has finished since `before`, with any outcome; they need another pass.

    Args:
        batch: the batch.
        before: progress of the tasks before the last pass, by name.
        standing: freshness checker of the batch.

    Raises:
        SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    due = (name for name in batch.names if standing.is_due(name))
    return [name for name in due if done_with(batch.output, name) <= before.get(name, TaskProgress()).done]
