"""Processes that are ready for the next patches before a GPU is: one per GPU at most, and if host memory allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from contextlib import suppress

from splatbatch.config import TaskId
from splatbatch.machine.protocol import AttemptExecutor, Key, Slot
from splatbatch.machine.slots import ClosedGate, Slots
from splatbatch.scheduler import judge
from splatbatch.scheduler.launch import Launcher
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running_attempt import (
    Dismissal,
    Execution,
    RunningAttempt,
    Standby,
    ask_to_end,
    handles_of,
)
from splatbatch.tasks.task import Task

ON_GPUS, ON_CPUS = True, False
"""Start, imports, reading and decoding of the next patch hide behind a training on a GPU, which leaves cores idle; on a
CPU they would take the cores that train."""


class Standbys:
    """Starts, chooses and ends the standbys of a batch. One that dies is replaced, and counts for nothing."""

    def __init__(
        self,
        executor: AttemptExecutor,
        launcher: Launcher,
        queue: Queue,
        slots: Slots,
        attempts: dict[Key, RunningAttempt],
    ) -> None:
        self._executor, self._launcher, self._queue = executor, launcher, queue
        self._slots, self._attempts = slots, attempts
        self._in_their_turn: set[TaskId] = set()
        """A standby of theirs has died: the next attempt starts in its turn, and tells why."""

    def first(self, free: Container[str] | None = None) -> RunningAttempt | None:
        """Return the one whose turn is next, of those that can begin on a slot of these names; None: on any."""
        ready = self._ready()
        return next((one for one in ready if free is None or one.context is None or one.context.name in free), None)

    def _ready(self) -> list[RunningAttempt]:
        return [one for one in self._attempts.values() if isinstance(one.stage, Standby)]

    def next(self, now: float) -> tuple[RunningAttempt | None, Task | None]:
        """Return the task whose turn is next, and the one that stands by for it, if there is one."""
        free = self._slots.with_seat()
        standby = self.first(free)
        if standby and standby.reading is not None:
            if standby.reading.wait is None:  # it is nearly ready
                return None, None
            standby = None
        task = standby.task if standby else next(self._queue.due(now), None)
        if task is None and free:  # nobody else is left: better begun anew here than waited for where its context is
            self.discard_contexts({one.context.name for one in self._ready() if one.context})
        return standby, task

    def top_up(self, now: float) -> None:
        """Start standbys for tasks that are due, as long as some slot that is taken has none."""
        busy = [slot for slot in self._slots.taken() if (ON_GPUS if slot.gpu is not None else ON_CPUS)]
        meant = [one.slot.name for one in self._ready()]
        lacking = [slot for slot in busy if slot.name not in meant]
        for slot in lacking[: len(busy) - len(meant)]:
            due = (one for one in self._queue.due(now) if one.id not in self._in_their_turn and one.maker.stands_by)
            task = next(due, None)
            if task is None or isinstance(self._slots.offer_standby(slot, task.memory_estimate, now), ClosedGate):
                return
            try:
                standby = self._launcher.start(task, slot, stands_by=True)
            except Exception:  # noqa: BLE001 - the wall: it is told when its turn comes
                self._in_their_turn.add(task.id)
                continue
            self._queue.take(task)
            self._attempts[standby.key] = standby

    def open_contexts(self) -> None:
        """Let those that are prepared open their CUDA context beside an attempt that trains, where nothing is risked.

        By then the attempt has passed the gate of its GPU, and has told how much of the GPU it takes.
        """
        for one in self._ready():
            if one.slot.gpu and one.slot not in [other.context for other in self._attempts.values()]:
                folder = one.attempt.folder
                if folder.last_progress().phase == judge.STANDING_BY and self._has_room_for_context(one.slot):
                    with suppress(OSError):  # it opens its context when it is told to go
                        judge.write_ahead(folder, one.slot)
                        one.open_context(one.slot)
        given_up = {one.context.name for one in self._ready() if one.context and not self._slots.serves(one.context)}
        self.discard_contexts(given_up)
        self._slots.note_contexts(Counter(one.context.name for one in self._attempts.values() if one.context))

    def _has_room_for_context(self, slot: Slot) -> bool:
        beside = [
            one for one in self._attempts.values() if isinstance(one.stage, Execution) and one.slot.name == slot.name
        ]
        trains = any(one.attempt.folder.last_progress().phase == judge.TRAINING for one in beside)
        return trains and self._slots.has_room_for_context(slot)

    def discard_contexts(self, slots: Collection[str]) -> None:
        """End those with a context on some slots; their tasks begin in their turn."""
        for one in self._ready():
            if one.context and one.context.name in slots:
                self.dismiss(one, task_waits=True)

    def dismiss(self, standby: RunningAttempt, *, task_waits: bool) -> None:
        """End one that cannot, or may not, be told to begin."""
        self._executor.cancel(handles_of({standby.key: standby}))
        standby.dismiss(task_waits=task_waits)

    def retire(self) -> None:
        """End all of them, and put the tasks they were to do back into the queue."""
        ready = self._ready()
        ask_to_end(self._executor, {one.key: one for one in ready})
        for one in reversed(ready):
            one.dismiss(task_waits=False)
            self._queue.put_back(one.task)

    def withdraw(self, names: Collection[str]) -> list[Task]:
        """Take the named tasks out of what waits; return them."""
        if not names:
            return []
        first = self.first()
        if first and first.task.name in names:
            self.retire()
        found = [task for task in self._queue if task.name in names]
        for task in found:
            self._queue.take(task)
        return found

    def discard(self, died: RunningAttempt) -> None:
        """Remove what is left of one that has died; its task begins in its turn, without another."""
        self._launcher.discard(died)
        self._in_their_turn.add(died.task.id)
        del self._attempts[died.key]
        if died.stage != Dismissal(task_waits=False):
            self._queue.put_back(died.task)
