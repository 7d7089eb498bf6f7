"""Patches that share a GPU: how fast they train together, how much memory they take, how many there may be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from splatbatch.config import Config
from splatbatch.machine.protocol import Key
from splatbatch.machine.slots import CONTEXT_MIB, Slots
from splatbatch.output.events import Packing
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import ExitFacts
from splatbatch.scene.memory_estimate import GPU_CONTEXT_MIB, H200, MemoryEstimate, stepping_s
from splatbatch.scheduler import judge
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.estimates import seats_per_gpu
from splatbatch.tasks.task import Task

LOOK_S = 2.0
SLACK = 1.15
"""What torch's allocator keeps beyond what was in use at the peak, and what a sample now and then misses of it."""
LEAST_SHARE = 0.25
"""No correction goes below this share of an estimate."""
LOSS = 1.03
"""By this factor all together must be faster with one patch fewer, for one fewer to train; looks scatter as much."""
FEWEST_LOOKS = 3
MOST_LOOKS = 30
"""Later looks count, earlier ones are forgotten: Gaussians become more, and steps slower."""


@dataclass
class GpuSharing:
    """How many attempts share a GPU, and what each takes of its memory.

    The seats of all slots are set alike: the GPUs of a batch train patches of one kind.
    """

    slots: Slots
    config: Config
    ledger: Ledger
    queue: Queue
    """What waits: its memory decides how many share a GPU at first."""
    _looks: list[GpuSpeed] = field(default_factory=list)
    _done: dict[Key, WorkDone] = field(default_factory=dict)
    """Of each attempt that trained when it was looked at last."""
    _look_at: float = float("-inf")
    _most: int = 1
    _shares: list[float] = field(default_factory=list)
    """What attempts took of their estimates; these are from above, so the largest share of one counts."""

    def __post_init__(self) -> None:
        needs = [task.memory_estimate for task in self.queue if task.memory_estimate]
        self._most = seats_per_gpu(self.config, needs, self.slots.free_mib())
        self._set(self._most)

    def look(self, now: float, running: Iterable[RunningAttempt]) -> None:
        """Measure, now and then, and set the seats by what was measured."""
        if self._most == 1 or self.config.executor.patches_per_gpu != "auto" or now < self._look_at or not self.queue:
            return
        self._look_at = now + LOOK_S
        done = {one.key: done for one in running if (done := _work_done(one))}
        looks = (_measure_speed(keys, self._done, done) for keys in self.slots.full_gpus())
        self._looks += [look for look in looks if look]
        self._done = done
        self._set(how_many(self.slots.seats, self._looks, self._most, is_tight=self.slots.is_tight()))

    def ran_out_of_memory(self, at_once: int) -> None:
        """Never have so many at once again: together they did not fit."""
        self._most = max(1, min(self._most, at_once - 1))
        self._set(min(self.slots.seats, self._most))

    def note(self, running: RunningAttempt) -> None:
        """Learn from an attempt that has ended well."""
        footprint = running.task.memory_estimate
        if footprint is None or not footprint.gpu_mib:
            return
        own = (running.attempt.folder.read_exit() or ExitFacts()).own_gpu_peak_mib
        measured = self.holds(running) if own is None else SLACK * own
        if measured is not None:
            self._shares.append(measured / footprint.gpu_mib)

    def of(self, task: Task) -> MemoryEstimate | None:
        """Return what an attempt at this task will take at most; None if unknown."""
        if task.memory_estimate is None or not self._shares:
            return task.memory_estimate
        return replace(
            task.memory_estimate, gpu_mib=math.ceil(task.memory_estimate.gpu_mib * max(LEAST_SHARE, *self._shares))
        )

    def holds(self, running: RunningAttempt) -> float | None:
        """Return what an attempt may hold at its end, in MiB, as NVML sees it: also what torch keeps and does not use.

        That may be half as much again as it has used, and more; taken for a stranger's, it would shut the gate to the
        next attempt until this one has ended.
        """
        lines, expected = running.attempt.folder.read_progress(), self.of(running.task)
        peak, reserved = judge.most(line.peak_mib for line in lines), judge.most(line.reserved_mib for line in lines)
        taken = (expected.gpu_mib if expected else None) if peak is None else SLACK * peak + GPU_CONTEXT_MIB
        return taken if reserved is None else max(taken or 0.0, reserved + CONTEXT_MIB)

    def _set(self, seats: int) -> None:
        if seats != self.slots.seats:
            self.ledger.write(Packing(seats, tuple(vars(look) for look in self._looks[-4:])))
        self.slots.set_seats(seats)


class WorkDone(NamedTuple):
    """How much of its work an attempt has done: not in steps, since patches and stages differ in what a step takes."""

    at: float
    """By its own clock, s."""
    work_s: float
    """Seconds that its steps up to now take by the model of training time."""


def _work_done(one: RunningAttempt) -> WorkDone | None:
    line, need = one.attempt.folder.last_progress(), one.task.memory_estimate
    if line.phase != judge.TRAINING or line.step is None or line.t is None or need is None:
        return None
    return WorkDone(line.t, stepping_s(one.task.next_settings.recipe, need, H200, line.step))


def _measure_speed(keys: Sequence[Key], before: Mapping[Key, WorkDone], now: Mapping[Key, WorkDone]) -> GpuSpeed | None:
    """Return the speed of all that train on a GPU; None unless all of them did so since the last look."""
    speed = 0.0
    for first, last in ((before.get(key), now.get(key)) for key in keys):
        if first is None or last is None or last.at <= first.at:
            return None
        speed += (last.work_s - first.work_s) / (last.at - first.at)
    return GpuSpeed(len(keys), speed)


@dataclass(frozen=True)
class GpuSpeed:
    """What was measured while the number of patches in training did not change."""

    at_once: int
    speed: float
    """Of all together on one GPU: seconds of work, by the model, in a second."""


def how_many(now: int, looks: Sequence[GpuSpeed], most: int, *, is_tight: bool = False) -> int:
    """Return how many patches are to train on a GPU at once: as many as may, unless fewer were faster.

    Not more than `most`, whatever was measured; where memory is tight one fewer than now.
    """
    if is_tight or now > most:
        return max(1, min(most, now - 1))

    def speed(number: int) -> float | None:
        found = [look.speed for look in looks if look.at_once == number]
        return statistics.median(found[-MOST_LOOKS:]) if len(found) >= FEWEST_LOOKS else None

    here, fewer, more = speed(now), speed(now - 1), speed(now + 1)
    if here is None:
        return now
    if now < most and more is not None and here <= LOSS * more:
        return now + 1
    if now > 1 and (fewer is None or fewer > LOSS * here):  # one fewer is tried once
        return now - 1
    return now
