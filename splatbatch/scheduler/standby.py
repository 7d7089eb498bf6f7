"""Processes that are ready for the next patches before a GPU is: one per GPU at most, and if host memory allows.

One that dies is replaced, and counts for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from contextlib import suppress

from splatbatch.machine.slots import has_memory_for_standby
from splatbatch.scheduler import judge, launch
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.running_attempt import Dismissal, RunningAttempt, ask_to_end, handles_of
from splatbatch.tasks.task import Task

ON_GPUS, ON_CPUS = True, False
"""Start, imports, reading and decoding of the next patch hide behind a training on a GPU, which leaves cores idle; on a
CPU they would take the cores that train."""


def first(loop: LoopState, free: Container[str] | None = None) -> RunningAttempt | None:
    """Return the one whose turn is next, of those that can begin on a slot of these names; None: on any."""
    ready = loop.ready()
    return next((one for one in ready if free is None or one.context is None or one.context.name in free), None)


def next_task(loop: LoopState, now: float) -> tuple[RunningAttempt | None, Task | None]:
    """Return the task whose turn is next, and the one that stands by for it, if there is one."""
    free = loop.slots.with_seat()
    standby = first(loop, free)
    if standby and standby.reading is not None:
        if standby.reading.wait is None:  # it is nearly ready
            return None, None
        standby = None
    task = standby.task if standby else next(loop.queue.due(now), None)
    if task is None and free:  # no other is left: beginning anew here beats waiting for the slot that has its context
        discard_contexts(loop, {one.context.name for one in loop.ready() if one.context})
    return standby, task


def top_up(loop: LoopState, now: float) -> None:
    """Start standbys for tasks that are due, as long as some slot that is taken has none."""
    busy = [slot for slot in loop.slots.taken() if (ON_GPUS if slot.gpu is not None else ON_CPUS)]
    meant = [one.slot.name for one in loop.ready()]
    lacking = [slot for slot in busy if slot.name not in meant]
    for slot in lacking[: len(busy) - len(meant)]:
        due = (one for one in loop.queue.due(now) if one.id not in loop.in_their_turn and one.program.stands_by)
        task = next(due, None)
        if task is None or not has_memory_for_standby(task.memory_estimate):
            return
        try:
            standby = launch.start(loop, task, slot, stands_by=True)
        except Exception:  # noqa: BLE001 - the wall: it is told when its turn comes
            loop.in_their_turn.add(task.id)
            continue
        loop.queue.take(task)
        loop.add(standby)


def open_contexts(loop: LoopState) -> None:
    """Let those that are prepared open their CUDA context beside an attempt that trains, where nothing is risked.

    By then the attempt has passed the gate of its GPU, and has told how much of the GPU it takes.
    """
    for one in loop.ready():
        folder, slot = one.attempt.folder, one.slot
        if slot.gpu and slot not in [other.context for other in loop.attempts.values()]:
            beside = (each.attempt.folder for each in loop.running() if each.slot.name == slot.name)
            if (
                folder.last_progress().phase == judge.STANDING_BY
                and any(each.last_progress().phase == judge.TRAINING for each in beside)
                and loop.slots.has_room_for_context(slot)
            ):
                with suppress(OSError):  # it opens its context when it is told to go
                    judge.write_go(folder.ahead, slot)
                    one.open_context(slot)
    discard_contexts(loop, {one.context.name for one in loop.ready() if one.context} - loop.slots.names)
    loop.slots.note_contexts(Counter(one.context.name for one in loop.attempts.values() if one.context))


def discard_contexts(loop: LoopState, slots: Collection[str]) -> None:
    """End those with a context on some slots; their tasks begin in their turn."""
    for one in loop.ready():
        if one.context and one.context.name in slots:
            dismiss(loop, one, task_waits=True)


def dismiss(loop: LoopState, standby: RunningAttempt, *, task_waits: bool) -> None:
    """End one that cannot, or may not, be told to begin."""
    loop.executor.cancel(handles_of([standby]))
    standby.dismiss(task_waits=task_waits)


def retire(loop: LoopState) -> None:
    """End all of them, and put the tasks they were to do back into the queue."""
    ready = loop.ready()
    ask_to_end(loop.executor, ready)
    for one in reversed(ready):
        one.dismiss(task_waits=False)
        loop.queue.put_back(one.task)


def withdraw(loop: LoopState, names: Collection[str]) -> list[Task]:
    """Take the named tasks out of what waits; return them."""
    if not names:
        return []
    if (following := first(loop)) and following.task.name in names:
        retire(loop)
    found = [task for task in loop.queue if task.name in names]
    for task in found:
        loop.queue.take(task)
    return found


def discard(loop: LoopState, died: RunningAttempt) -> None:
    """Remove what is left of one that has died; its task begins in its turn, without another."""
    launch.discard(loop, died)
    loop.in_their_turn.add(died.task.id)
    del loop.attempts[died.key]
    if died.stage != Dismissal(task_waits=False):
        loop.queue.put_back(died.task)
