"""The queue of tasks that wait for a slot (a GPU or a share of the CPU); each is claimed when its turn comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from splatbatch.config import TaskId
from splatbatch.machine.protocol import Key
from splatbatch.machine.slots import Slots
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.task import Task


class Queue:
    """Tasks that wait for a slot, in the order of the batch or, with several slots, the longest first.

    So no long task starts last, while all other slots are idle.
    """

    def __init__(
        self, tasks: Sequence[Task], attempts: Mapping[Key, RunningAttempt], hooks: RunHooks, slots: Slots
    ) -> None:
        """Sort the tasks; none is claimed yet.

        Args:
            tasks: tasks to train.
            attempts: open attempts of the loop, by key, whose outcome is not recorded yet.
            hooks: claims tasks, and knows which tasks other workers have.
            slots: slots that the tasks wait for.
        """
        ordered = sorted(tasks, key=attrgetter("length"), reverse=True) if len(slots.names) > 1 else tasks
        self._tasks = OrderedDict((task.id, task) for task in ordered)
        self._not_before: dict[TaskId, float] = {}
        self._attempts, self._hooks, self._has_cores = attempts, hooks, slots.has_cores
        self._needed = {name for task in tasks for name in task.required}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def starts_beside(self, task: Task) -> bool:
        """Return whether a task needs no GPU and this machine has slots of CPU cores beside its GPUs."""
        return task.takes != "gpu" and self._has_cores

    def due(self, now: float, *, beside: bool = False) -> Iterator[Task]:
        """Claim and yield tasks that may start now, in order; a task waits for tasks whose products it needs.

        A task of another worker is skipped for some seconds. A task that another worker has finished, or for which this
        worker has too little time, leaves the queue.
        Yielded tasks stay in the queue until `take` is called.

        Args:
            now: time by the clock of the loop, in seconds.
            beside: True: only tasks for which `starts_beside` is true; False: only the others.

        Raises:
            OSError, SplatbatchError: a claim failed: an attempt of a dead worker does not end, or the disk is full.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
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
        """Return whether a task waits, or has an open attempt."""
        return task_id in self._tasks or any(one.task.id == task_id for one in self._attempts.values())

    def take(self, task: Task) -> None:
        """Remove a task that starts.

        Raises:
            KeyError: the task does not wait.
        """
        del self._tasks[task.id]

    def put_back(self, task: Task) -> None:
        """Put a task back as the first, since its turn had come; it may start at once."""
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id, last=False)

    def put_last(self, task: Task, not_before: float) -> None:
        """Put a task that is tried again at the end of the queue.

        Args:
            task: task with the settings of its next attempt.
            not_before: earliest start by the clock of the loop, in seconds.
        """
        self._not_before[task.id] = not_before
        self._tasks[task.id] = task

    def clear(self) -> list[Task]:
        """Empty the queue; return the tasks that waited, in their order."""
        tasks = list(self)
        self._tasks.clear()
        return tasks
