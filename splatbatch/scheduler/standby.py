"""Processes that are ready for the next patches before a GPU is: one per GPU at most, and if host memory allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from contextlib import suppress

from splatbatch.config import TaskId
from splatbatch.machine.protocol import AttemptExecutor, Key, Slot
from splatbatch.machine.slots import ClosedGate, Slots
from splatbatch.outcome import Exit, Exited
from splatbatch.scheduler import judge
from splatbatch.scheduler.launch import Launcher
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running_attempt import RunningAttempt, ask_to_end, handles_of, how_it_ended
from splatbatch.tasks.task import Task

ON_GPUS, ON_CPUS = True, False
"""Start, imports, reading and decoding of the next patch hide behind a training on a GPU, which leaves cores idle; on a
CPU they would take the cores that train."""


class Standbys:
    """Starts, looks after and ends the standbys of a batch. One that dies is replaced, and counts for nothing."""

    def __init__(self, executor: AttemptExecutor, launcher: Launcher) -> None:
        self._executor = executor
        self._launcher = launcher
        self._ready: dict[Key, RunningAttempt] = {}
        self._leaving: dict[Key, RunningAttempt] = {}
        self._opened: dict[Key, Slot] = {}
        """Those that have opened their CUDA context, on the GPU of a slot: they can begin nowhere else."""
        self._distrusted: set[Key] = set()
        """Those that leave since their context may not be sound; their tasks are still to be done."""
        self._in_their_turn: set[TaskId] = set()
        """A standby of theirs has died: the next attempt starts in its turn, and tells why."""

    def __len__(self) -> int:
        """Return how many there are, those that still have to end included."""
        return len(self._ready) + len(self._leaving)

    def everyone(self) -> dict[Key, RunningAttempt]:
        """Return all of them, those that still have to end included."""
        return self._ready | self._leaving

    def first(self, free: Container[str] | None = None) -> RunningAttempt | None:
        """Return the one whose turn is next, of those that can begin on a slot of these names; None: on any."""
        fits = (one for key, one in self._ready.items() if free is None or self._fits(key, free))
        return next(fits, None)

    def next(self, queue: Queue, slots: Slots, now: float) -> tuple[RunningAttempt | None, Task | None]:
        """Return the task whose turn is next, and the one that stands by for it, if there is one."""
        free = slots.with_seat()
        standby = self.first(free)
        if standby and standby.preparing is not None:
            if standby.preparing.wait is None:  # it is nearly ready
                return None, None
            standby = None
        task = standby.task if standby else next(queue.due(now), None)
        if task is None and free:  # nobody else is left: better begun anew here than waited for where its context is
            for slot in {one.name: one for one in self._opened.values()}.values():
                self._distrust(slot)
        return standby, task

    def _fits(self, key: Key, free: Container[str]) -> bool:
        return key not in self._opened or self._opened[key].name in free

    def place(self, running: RunningAttempt | None) -> Slot | None:
        """Return the only slot that one can begin on; None: any."""
        return self._opened.get(running.key) if running else None

    def go(self, running: RunningAttempt, slot: Slot) -> None:
        """Let one begin.

        Raises:
            OSError: it cannot be told; it still stands by.
        """
        self._launcher.go(running, slot)
        del self._ready[running.key]
        self._opened.pop(running.key, None)

    def top_up(self, queue: Queue, slots: Slots, now: float) -> None:
        """Start standbys for tasks that are due, as long as some slot that is taken has none."""
        busy = [slot for slot in slots.taken() if (ON_GPUS if slot.gpu is not None else ON_CPUS)]
        meant = {one.slot.name for one in self._ready.values()}
        lacking = [slot for slot in busy if slot.name not in meant]
        for slot in lacking[: len(busy) - len(self._ready)]:
            task = next((task for task in queue.due(now) if self._may_stand_by(task)), None)
            if task is None or isinstance(slots.offer_standby(slot, task.memory_estimate, now), ClosedGate):
                return
            try:
                running = self._launcher.stand_by(task, slot)
            except Exception:  # noqa: BLE001 - the wall: it is told when its turn comes
                self._in_their_turn.add(task.id)
                continue
            queue.take(task)
            self._ready[running.key] = running

    def open_contexts(self, slots: Slots, running: Mapping[Key, RunningAttempt]) -> None:
        """Let those that are prepared open their CUDA context beside an attempt that trains, where nothing is risked.

        By then the attempt has passed the gate of its GPU, and has told how much of the GPU it takes.
        """
        for key, one in self._ready.items():
            lacks_it = one.slot.gpu and key not in self._opened and one.slot not in self._opened.values()
            if (
                lacks_it
                and one.attempt.folder.last_progress().phase == judge.STANDING_BY
                and self._has_room(one.slot, slots, running)
            ):
                with suppress(OSError):  # it opens its context when it is told to go
                    judge.write_ahead(one.attempt.folder, one.slot)
                    self._opened[key] = one.slot
        for slot in {slot.name: slot for slot in self._opened.values() if not slots.serves(slot)}.values():
            self._distrust(slot)
        slots.note_contexts(Counter(slot.name for slot in self._opened.values()))

    def _has_room(self, slot: Slot, slots: Slots, running: Mapping[Key, RunningAttempt]) -> bool:
        beside = [one for one in running.values() if one.slot.name == slot.name]
        return any(
            one.attempt.folder.last_progress().phase == judge.TRAINING for one in beside
        ) and slots.has_room_for_context(slot)

    def judged(self, running: RunningAttempt, end: Exit) -> None:
        """An attempt has ended; unless it ended well, its GPU may not be as it should for who has a context there."""
        if end != Exited(0):
            self._distrust(running.slot)

    def _distrust(self, slot: Slot) -> None:
        """End those with a context on a GPU where an attempt has failed; their tasks begin in their turn."""
        for key in [key for key, its in self._opened.items() if its.name == slot.name and key in self._ready]:
            self._distrusted.add(key)
            self.dismiss(self._ready[key])

    def look(self) -> list[Task]:
        """Start those that are prepared, remove those that have ended; return the tasks these were to do."""
        everyone = self.everyone()
        if not everyone:
            return []
        unfit = [running for running in everyone.values() if not self._is_sound(running)]
        handles = handles_of(everyone)
        seen = self._executor.poll(handles) if handles else {}
        dead = [everyone[key] for key in handles if how_it_ended(everyone[key], seen[key]) is not None]
        return [running.task for running in (*unfit, *dead) if self._has_died(running)]

    def _is_sound(self, running: RunningAttempt) -> bool:
        """Return whether one runs, or may still begin to; what is wrong with it is told when its turn comes."""
        if running.preparing is not None and running.key in self._leaving:
            running.preparing.end()
            return False
        try:
            self._launcher.is_prepared(running, standby=True)
        except Exception:  # noqa: BLE001 - the wall: its attempt, in its turn, fails in the same way
            return False
        return True

    def dismiss(self, running: RunningAttempt) -> None:
        """End one that cannot be told to begin."""
        self._executor.cancel(handles_of({running.key: running}))
        self._leaving[running.key] = self._ready.pop(running.key)

    def retire(self) -> list[Task]:
        """End all of them, and return the tasks they were to do."""
        ask_to_end(self._executor, self._ready)
        tasks = [running.task for running in self._ready.values()]
        self._leaving |= self._ready
        self._ready.clear()
        return tasks

    def _has_died(self, running: RunningAttempt) -> bool:
        """Discard a standby that has ended; return whether nobody had asked it to."""
        self.discard(running)
        self._opened.pop(running.key, None)
        if self._leaving.pop(running.key, None) is not None:
            return running.key in self._distrusted
        del self._ready[running.key]
        return True

    def discard(self, running: RunningAttempt) -> None:
        """Remove what is left of one that has died; its task begins in its turn, without another."""
        self._launcher.discard(running)
        self._in_their_turn.add(running.task.id)

    def _may_stand_by(self, task: Task) -> bool:
        return task.id not in self._in_their_turn and task.maker.stands_by
