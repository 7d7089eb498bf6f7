"""The tasks that wait for a slot, in the order in which they are to start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from splatbatch.config import TaskId
from splatbatch.machine.protocol import Key
from splatbatch.scheduler.running import Running
from splatbatch.tasks.task import Task


class Queue:
    """First come, first served; with several slots the longest come first, so that none is left to the end."""

    def __init__(
        self, tasks: Sequence[Task], *, longest_first: bool, begun: Callable[[], Mapping[Key, Running]] = dict
    ) -> None:
        self._tasks = deque(sorted(tasks, key=lambda task: -task.length) if longest_first else tasks)
        self._not_before: dict[TaskId, float] = {}
        self._has_backdrop = any(task.patch.is_backdrop for task in tasks)
        self._begun = begun
        """What was taken and has not ended."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def due(self, now: float) -> Iterator[Task]:
        """Yield what may start now, first the one whose turn it is; what is drawn against a backdrop waits for that."""
        waits = self._has_backdrop and self._is_backdrop_open()
        due = (task for task in self._tasks if self._not_before.get(task.id, 0.0) <= now)
        return (task for task in due if not (waits and task.patch.backdrop))

    def _is_backdrop_open(self) -> bool:
        begun = (running.task for running in self._begun().values())
        return any(task.patch.is_backdrop for task in (*self._tasks, *begun))

    def take(self, task: Task) -> None:
        """Remove a task that starts."""
        self._tasks.remove(task)

    def put_back(self, task: Task) -> None:
        """Take in a task whose turn it was."""
        self._tasks.appendleft(task)

    def put_last(self, task: Task, not_before: float) -> None:
        """Take in a task that is tried again, at a time or later."""
        self._not_before[task.id] = not_before
        self._tasks.append(task)

    def clear(self) -> list[Task]:
        """Empty the queue; return what waited."""
        tasks = list(self._tasks)
        self._tasks.clear()
        return tasks
