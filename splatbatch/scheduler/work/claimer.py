"""Claiming tasks, each in its turn; what other workers have done is not done again."""

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
"""Between two looks at a task that another worker has."""
LOST_S = 2.0
"""Between two checks for tasks of ours that another worker took over."""


class TaskProgress(NamedTuple):
    """How far a task was before it was decided to train it; what has changed since is examined when it is claimed."""

    done: int = 0
    """Its highest finished generation."""
    accepted: int = 0
    """Its newest accepted record."""
    manifest: Stamp | None = None
    """Of its product."""

    @classmethod
    def of(cls, output: OutputFolder, name: str) -> TaskProgress:
        """Return it as it is now."""
        folder = output.patch(name)
        return cls(done_with(output, name), folder.newest_accepted(), stamp_of(str(folder.result)))


@dataclass(kw_only=True)
class TaskClaimer(RunHooks):
    """Claims tasks for the loop of a worker, in one round of its batch."""

    claims: Claims
    ledger: Ledger
    before: Mapping[str, TaskProgress]
    """By task, also of the scene behind."""
    standing: FreshnessChecker
    """What the tasks were decided on by; it looks again where that may have changed."""
    others: OtherWorkers
    """Hear of a task that one of them has."""
    time_left: TimeLeft | None = None
    """None: as long as it takes."""
    is_over: bool = False
    """Our time did not hold another one."""
    trained_elsewhere: list[str] = field(default_factory=list)
    _next_look: float = 0.0
    _elsewhere: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """When it was asked whether another worker has a task, and the answer."""
    _unheld: set[str] = field(default_factory=set)
    """Tasks that our time does not hold: what needs their products waits."""

    def claim(self, task: Task) -> Task | float | None:
        """Say whether a task whose turn it is is ours, and claim it if it can be."""
        name = task.name
        if task.claim is not None:
            return task
        if done_with(task.output, name) > self.before[name].done:
            self._closed(task)
            return None
        if self._unheld.intersection(task.required) or (self.time_left and not self.time_left.holds(task)):
            if task.patch.is_whole and self.is_elsewhere(name):
                return LOOK_S  # behind a scene that another worker trains there may be time
            self.is_over = True
            self._unheld.add(name)
            return None
        try:
            found = self.claims.take(name)
        except OSError:  # a full disk, say: its attempt tells, and what two make of one task is accepted once
            return task
        if isinstance(found, Claim):
            return self._begun(task, found)
        self.others.report(found, name)
        return LOOK_S

    def is_elsewhere(self, name: str) -> bool:
        """Return whether another worker has a task at the moment, also one that is none of ours."""
        asked, answer = self._elsewhere.get(name, (-LOOK_S, False))
        if (now := time.monotonic()) >= asked + LOOK_S:
            asked, answer = now, self.claims.is_elsewhere(name)
        self._elsewhere[name] = (asked, answer)
        return answer

    def outdated(self, fresh: Iterable[str]) -> tuple[str, ...]:
        """Return what was fresh, or made elsewhere since, and is stale by a product that it needs and that is new."""
        tasks = [self.standing.tasks[name] for name in (*fresh, *self.trained_elsewhere)]
        needs = {task.name: task.required for task in tasks}
        now = {name: TaskProgress.of(self.standing.output, name) for name in set().union(*needs.values())}
        moved = {name for name, one in now.items() if one[1:] != self.before.get(name, TaskProgress())[1:]}
        touched = (name for name, needed in needs.items() if moved.intersection(needed))
        return tuple(name for name in touched if self.standing.is_due(name))

    def close(self, name: str) -> None:
        """Say that a task is done with, if it was ours."""
        self.claims.close(name)

    def lost(self) -> Mapping[str, str]:
        """Return what others have taken over from us since we were asked last, each with who has: we seemed gone."""
        if time.monotonic() < self._next_look:
            return {}
        self._next_look = time.monotonic() + LOST_S
        return {name: f"{worker}, which took the task over" for name, worker in self.claims.lost().items()}

    def _begun(self, task: Task, claim: Claim) -> Task | None:
        """See that what was decided on a task still holds now that it is ours."""
        if claim.generation > 1:  # what a worker that is gone has left of it
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
        """Drop a task that another worker has finished."""
        if self.standing.is_up_to_date(task.name):
            self.trained_elsewhere.append(task.name)


def progress_of(batch: Batch) -> Mapping[str, TaskProgress]:
    """Return how far each task of a batch is, and the scene behind it."""
    return {name: TaskProgress.of(batch.output, name) for name in (*batch.names, BACKDROP)}


def left_over(batch: Batch, before: Mapping[str, TaskProgress], standing: FreshnessChecker) -> list[str]:
    """Return the tasks to be trained that were not finished since: without those given up or failed for good."""
    due = (name for name in batch.names if standing.is_due(name))
    return [name for name in due if done_with(batch.output, name) <= before.get(name, TaskProgress()).done]
