"""The tasks that wait for a slot, in the order in which they are to start; each is claimed when its turn comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from splatbatch.config import TaskId
from splatbatch.machine.protocol import Key
from splatbatch.machine.slots import Slots
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.task import Task


class Queue:
    """First come, first served; with several slots the longest come first, so that none is left to the end."""

    def __init__(
        self, tasks: Sequence[Task], attempts: Mapping[Key, RunningAttempt], hooks: RunHooks, slots: Slots
    ) -> None:
        """Take in tasks.

        Args:
            tasks: that are to be trained.
            attempts: those that have begun, or stand by, and whose outcome is not recorded.
            hooks: say which tasks are ours.
            slots: that they wait for.
        """
        ordered = sorted(tasks, key=lambda task: -task.length) if len(slots.names) > 1 else tasks
        self._tasks = OrderedDict((task.id, task) for task in ordered)
        self._not_before: dict[TaskId, float] = {}
        self._attempts, self._hooks, self._has_cores = attempts, hooks, slots.has_cores
        self._needed = {name for task in tasks for name in task.required}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def starts_beside(self, task: Task) -> bool:
        """Return whether a task starts whatever the GPUs do."""
        return task.takes != "gpu" and self._has_cores

    def due(self, now: float, *, beside: bool = False) -> Iterator[Task]:
        """Yield what may start now and is ours, in turn; what is made from the product of another task waits.

        Args:
            now: by the clock of the loop, s.
            beside: only what starts beside the slots of GPUs, instead of only what does not.
        """
        needed = {
            name for name in self._needed if self.is_open(TaskId.of_folder(name)) or self._hooks.is_elsewhere(name)
        }
        for task in tuple(self._tasks.values()):
            waits = self.starts_beside(task) != beside or self._not_before.get(task.id, 0.0) > now
            if waits or (needed and needed.intersection(task.required)):
                continue
            match self._hooks.claim(task):
                case Task() as ours:
                    self._tasks[task.id] = ours
                    yield ours
                case float() as look_s:
                    self._not_before[task.id] = now + look_s
                case None:
                    self.take(task)

    def is_open(self, task_id: TaskId) -> bool:
        """Return whether a task waits, or has an attempt whose outcome is not recorded."""
        return task_id in self._tasks or any(one.task.id == task_id for one in self._attempts.values())

    def take(self, task: Task) -> None:
        """Remove a task that starts."""
        del self._tasks[task.id]

    def put_back(self, task: Task) -> None:
        """Take in a task whose turn it was."""
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id, last=False)

    def put_last(self, task: Task, not_before: float) -> None:
        """Take in a task that is tried again, at a time or later."""
        self._not_before[task.id] = not_before
        self._tasks[task.id] = task

    def clear(self) -> list[Task]:
        """Empty the queue; return what waited."""
        tasks = list(self)
        self._tasks.clear()
        return tasks
