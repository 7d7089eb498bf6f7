"""Standbys: processes that prepare the next patches while the GPUs are still busy.

There is at most one per busy slot (GPU), if host memory allows. A standby that dies does not count as a failed attempt.
A standby begins once go.json is written into the folder of its attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress

from splatbatch.machine.slots import has_memory_for_standby
from splatbatch.scheduler import judge, launch
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.running_attempt import RunningAttempt, ask_to_end, handles_of
from splatbatch.tasks.task import Task

ON_GPUS, ON_CPUS = True, False
"""Whether standbys are used on slots of GPUs, and of CPUs.

Preparing the next patch costs no time beside a training on a GPU, which leaves cores idle. On a CPU it would take the
cores that train.
"""


def in_turn(loop: LoopState, now: float) -> Iterator[tuple[RunningAttempt | None, Task]]:
    """Yield what may start now, in the order of its turn: the standbys, each with its task; then tasks of the queue.

    If the caller goes on to the end, so that nothing else can start, standbys with a CUDA context are ended: they could
    begin only on a busy slot.

    Args:
        loop: state of the loop.
        now: time by the clock of the loop, in seconds.

    Raises:
        OSError, SplatbatchError: a claim failed; see `Queue.due`.
    """
    for one in loop.ready():
        yield one, one.task
    for task in loop.queue.due(now):
        yield None, task
    # only standbys bound to busy slots are left: starting them anew here is faster
    discard_contexts(loop, {one.context.name for one in loop.ready() if one.context})


def top_up(loop: LoopState, now: float) -> None:
    """Start standbys for due tasks until each busy GPU slot has a standby, or host memory is short.

    The loop calls this in every round. A standby that cannot be started raises nothing: its task starts in its turn.

    Args:
        loop: state of the loop.
        now: time by the clock of the loop, in seconds.

    Raises:
        OSError, SplatbatchError: a claim failed; see `Queue.due`.
    """
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
        except Exception:  # noqa: BLE001 - the error recurs, and is recorded, when its turn comes
            loop.in_their_turn.add(task.id)
            continue
        loop.queue.take(task)
        loop.add(standby)


def open_contexts(loop: LoopState) -> None:
    """Let prepared standbys open their CUDA context on a busy GPU, if its free memory allows.

    The loop calls this in every round. A context is only opened while the other attempt is in its training phase, so
    that its memory is known. If a file cannot be written, the standby opens its context when it begins.
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
                with suppress(OSError):  # otherwise it opens its context after go.json
                    launch.write_go(folder.ahead, slot)
                    one.open_context(slot)
    discard_contexts(loop, {one.context.name for one in loop.ready() if one.context} - loop.slots.names)
    loop.slots.note_contexts(Counter(one.context.name for one in loop.attempts.values() if one.context))


def discard_contexts(loop: LoopState, slots: Collection[str]) -> None:
    """End the standbys with a CUDA context on these slots; their tasks go back to the queue."""
    for one in loop.ready():
        if one.context and one.context.name in slots:
            dismiss(loop, one, task_waits=True)


def dismiss(loop: LoopState, standby: RunningAttempt, *, task_waits: bool) -> None:
    """End a standby that cannot, or must not, begin; this does not wait for its end.

    Args:
        loop: state of the loop.
        standby: the standby to end.
        task_waits: whether its task goes back to the queue once the standby has ended.
    """
    loop.executor.cancel(handles_of([standby]))
    standby.dismiss(task_waits=task_waits)


def retire(loop: LoopState) -> None:
    """End all standbys, and put their tasks back into the queue, in their order."""
    ready = loop.ready()
    ask_to_end(loop.executor, ready)
    for one in reversed(ready):
        one.dismiss(task_waits=False)
        loop.queue.put_back(one.task)


def withdraw(loop: LoopState, names: Collection[str]) -> list[Task]:
    """Remove the named tasks from the queue and return them; names of tasks that do not wait are ignored.

    If the next standby is for a named task, all standbys end first.
    """
    if not names:
        return []
    ready = loop.ready()
    if ready and ready[0].task.name in names:
        retire(loop)
    found = [task for task in loop.queue if task.name in names]
    for task in found:
        loop.queue.take(task)
    return found


def discard(loop: LoopState, died: RunningAttempt) -> None:
    """Remove a standby that has ended; its task gets no other, and goes back to the queue unless it was withdrawn."""
    launch.discard(loop, died)
    loop.in_their_turn.add(died.task.id)
    del loop.attempts[died.key]
    if died.stage != "withdrawn":
        loop.queue.put_back(died.task)
