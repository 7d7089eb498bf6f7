"""Patches that share a GPU: how fast they train together, how much memory they take, how many there may be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from splatbatch.config import Executor as ExecutorConfig
from splatbatch.machine.protocol import Key
from splatbatch.machine.slots import CONTEXT_MIB, Slots
from splatbatch.output.events import Packing
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import ProgressLine
from splatbatch.scene.memory_estimate import GPU_CONTEXT_MIB, MemoryEstimate
from splatbatch.scheduler import judge
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.task import Task

LOOK_S = 2.0
MOST_AT_ONCE = 8
SLACK = 1.15
"""What torch's allocator keeps beyond what was in use at the peak, and what a sample now and then misses of it."""
LEAST_SHARE = 0.25
"""No correction goes below this share of an estimate."""
GAIN = 1.05
"""One more must make all together faster by this, or it is not tried again."""
LOSS = 1.02
"""One fewer if all together are not faster by this than one fewer were: packing costs memory, and must pay."""
FEWEST_LOOKS = 3
MOST_LOOKS = 30
"""Later looks count, earlier ones are forgotten: Gaussians become more, and steps slower."""


@dataclass
class GpuSharing:
    """How many attempts share a GPU, and what each takes of its memory.

    The seats of all slots are set alike: the GPUs of a batch train patches of one kind.
    """

    slots: Slots
    config: ExecutorConfig
    ledger: Ledger
    _looks: list[SeatThroughput] = field(default_factory=list)
    _lines: dict[Key, ProgressLine] = field(default_factory=dict)
    """What each attempt that trained had told last when it was looked at."""
    _look_at: float = float("-inf")
    _most: int = MOST_AT_ONCE
    _shares: list[float] = field(default_factory=list)
    """What attempts took of their estimates; these are from above, so the largest share of one counts."""

    def __post_init__(self) -> None:
        wanted = self.config.patches_per_gpu
        if wanted != "auto":
            self._most = wanted
            self._set(wanted)

    def look(self, now: float, running: Iterable[RunningAttempt]) -> None:
        """Measure, now and then, and set the seats by what was measured."""
        if self.config.patches_per_gpu != "auto" or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        told = ((one.key, one.attempt.folder.last_progress()) for one in running)
        lines = {key: line for key, line in told if line.phase == judge.TRAINING and line.step is not None}
        looks = (_measure_throughput(keys, self._lines, lines) for keys in self.slots.full_gpus())
        self._looks += [look for look in looks if look]
        self._lines = lines
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
        told = running.attempt.folder.read_exit()
        own = told.own_gpu_peak_mib if told else None
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


def _measure_throughput(
    keys: Sequence[Key], before: Mapping[Key, ProgressLine], now: Mapping[Key, ProgressLine]
) -> SeatThroughput | None:
    """Return the throughput of all that train on a GPU; None unless all of them did so since the last look."""
    steps_per_s = 0.0
    for first, last in ((before.get(key), now.get(key)) for key in keys):
        if first is None or last is None or first.t is None or last.t is None or last.t <= first.t:
            return None
        steps_per_s += ((last.step or 0) - (first.step or 0)) / (last.t - first.t)
    return SeatThroughput(len(keys), steps_per_s)


@dataclass(frozen=True)
class SeatThroughput:
    """What was measured while the number of patches in training did not change."""

    at_once: int
    steps_per_s: float
    """Of all together on one GPU."""


def how_many(now: int, looks: Sequence[SeatThroughput], most: int, *, is_tight: bool = False) -> int:
    """Return how many patches are to train on a GPU at once.

    Not more than `most`, whatever was measured; where memory is tight one fewer than now.
    """
    if is_tight or now > most:
        return max(1, min(most, now - 1))

    def pace(number: int) -> float | None:
        found = [look.steps_per_s for look in looks if look.at_once == number]
        return statistics.median(found[-MOST_LOOKS:]) if len(found) >= FEWEST_LOOKS else None

    here, fewer, more = pace(now), pace(now - 1), pace(now + 1)
    if here is None:
        return now
    if fewer is not None and here < LOSS * fewer:
        return now - 1
    if now < most and (more is None or more > GAIN * here):
        return now + 1
    return now
