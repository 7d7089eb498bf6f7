"""The tasks that wait for a slot, in the order in which they are to start; each is claimed when its turn comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from splatbatch.config import TaskId
from splatbatch.failures.retry import NEW, Failure, RetryHistory
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class ClaimedTask:
    """The task is ours to start, with what it has been through elsewhere."""

    task: Task


@dataclass(frozen=True)
class TakenByOther:
    """Another worker has it; it is worth another look after so long."""

    look_s: float


@dataclass(frozen=True)
class NothingToDo:
    """Another worker is done with it, or our time will not hold it."""


Look = ClaimedTask | TakenByOther | NothingToDo


class Claimer(Protocol):
    """Says which tasks are ours, and what they have been through with other workers."""

    def look(self, task: Task) -> Look:
        """Say whether a task whose turn it is is ours, and claim it if it can be."""
        ...

    def is_elsewhere(self, name: str) -> bool:
        """Return whether another worker has a task at the moment, also one that is none of ours."""
        ...

    def close(self, name: str) -> None:
        """Say that a task is done with, if it was ours."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Return what others have taken over from us since we were asked last, each with who has."""
        ...

    def history(self, name: str) -> RetryHistory:
        """Return what a task has been through with other workers."""
        ...

    def failures(self) -> Mapping[TaskId, tuple[Failure, ...]]:
        """Return the failures of all tasks with other workers."""
        ...


class SoleClaimer:
    """Every task is ours: where a test or a benchmark has a folder to itself."""

    def look(self, task: Task) -> Look:
        """Say that it is ours."""
        return ClaimedTask(task)

    def is_elsewhere(self, name: str) -> bool:
        """Say that there is nobody else."""
        return False

    def close(self, name: str) -> None:
        """Do nothing: nobody waits."""

    def lost(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def history(self, name: str) -> RetryHistory:
        """Return a blank one."""
        return NEW

    def failures(self) -> Mapping[TaskId, tuple[Failure, ...]]:
        """Return none."""
        return {}


class Queue:
    """First come, first served; with several slots the longest come first, so that none is left to the end."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        longest_first: bool,
        claimer: Claimer | None = None,
        begun: Callable[[], Iterable[Task]] = tuple,
        needs_no_gpu: Callable[[Task], bool] = lambda _: False,
    ) -> None:
        """Take in tasks.

        Args:
            tasks: that are to be trained.
            longest_first: or as they come.
            claimer: says which are ours; without one all are.
            begun: returns what was taken and has not ended.
            needs_no_gpu: says whether a task starts beside the slots of the others.
        """
        self._tasks = deque(sorted(tasks, key=lambda task: -task.length) if longest_first else tasks)
        self._not_before: dict[TaskId, float] = {}
        self._claimer = claimer or SoleClaimer()
        self._ids = {task.id for task in self._tasks}
        self._needed = {name for task in tasks for name in task.kind.needs(task)}
        self._begun = begun
        self._needs_no_gpu = needs_no_gpu

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __contains__(self, task: Task) -> bool:
        """Return whether a task of this name waits, whatever it would be trained by."""
        return task.id in self._ids

    def due(self, now: float, *, beside: bool = False) -> Iterator[Task]:
        """Yield what may start now and is ours, in turn; what is made from the product of another task waits.

        Args:
            now: by the clock of the loop, s.
            beside: only what starts beside the slots of GPUs, instead of only what does not.
        """
        place, open_ones = 0, {name for name in self._needed if self._is_open(name)}
        while place < len(self._tasks):
            task = self._tasks[place]
            is_due = self._needs_no_gpu(task) == beside and self._not_before.get(task.id, 0.0) <= now
            is_due = is_due and not (open_ones and open_ones.intersection(task.kind.needs(task)))
            match self._claimer.look(task) if is_due else None:
                case ClaimedTask(task=ours):
                    self._tasks[place] = ours
                    yield ours
                case TakenByOther(look_s=look_s):
                    self._not_before[task.id] = now + look_s
                case NothingToDo():
                    self.take(task)
                    continue
            place += 1

    def _is_open(self, name: str) -> bool:
        """Return whether a task that others need first waits or runs, here or with another worker."""
        is_ours = TaskId.of_folder(name) in self._ids or any(task.name == name for task in self._begun())
        return is_ours or self._claimer.is_elsewhere(name)

    def take(self, task: Task) -> None:
        """Remove a task that starts."""
        self._tasks.remove(task)
        self._ids.discard(task.id)

    def put_back(self, task: Task) -> None:
        """Take in a task whose turn it was."""
        self._tasks.appendleft(task)
        self._ids.add(task.id)

    def put_last(self, task: Task, not_before: float) -> None:
        """Take in a task that is tried again, at a time or later."""
        self._not_before[task.id] = not_before
        self._tasks.append(task)
        self._ids.add(task.id)

    def clear(self) -> list[Task]:
        """Empty the queue; return what waited."""
        tasks = list(self._tasks)
        self._tasks.clear()
        self._ids.clear()
        return tasks
