"""Decides how many patches share a GPU, by their measured speed and memory.

A seat is room for one attempt that trains on a GPU; a GPU with three seats trains three patches at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
"""Seconds between two measurements of the speed."""
SLACK = 1.15
"""Factor from the peak of torch's allocator to the memory it holds; samples may also miss the peak."""
LEAST_SHARE = 0.25
"""Smallest share of an estimate to which measurements may reduce it."""
LOSS = 1.03
"""Factor by which one patch fewer must be faster in total to stay; measurements scatter as much."""
FEWEST_LOOKS = 3
"""Fewest measurements of a number of seats before their median counts."""
MOST_LOOKS = 30
"""Number of the latest measurements that count; before them, patches had fewer Gaussians and faster steps."""
WorkDone = tuple[float, float]
"""Work of an attempt: time of its last progress line (s since 1970), and modelled seconds of its steps until then.

Modelled seconds are compared, since steps of different patches and stages take different times.
"""


@dataclass
class GpuSharing:
    """Sets the number of attempts that share a GPU, and corrects memory estimates by measurement.

    All slots (GPUs) get the same number of seats, since all GPUs of a batch train similar patches. The first number is
    set when the object is made, and written to the ledger if it is above 1, which may raise OutputError.
    """

    slots: Slots
    config: Config
    ledger: Ledger
    queue: Queue
    """Waiting tasks, whose memory estimates decide the first number."""
    _looks: list[GpuSpeed] = field(default_factory=list)
    _done: dict[Key, WorkDone] = field(default_factory=dict)
    """Work done by each training attempt at the last measurement."""
    _look_at: float = float("-inf")
    _most: int = 1
    _shares: list[float] = field(default_factory=list)
    """Shares of their estimates that attempts really took; estimates are upper bounds, and the largest share counts."""

    def __post_init__(self) -> None:
        needs = [task.memory_estimate for task in self.queue if task.memory_estimate]
        self._most = seats_per_gpu(self.config, needs, self.slots.free_mib())
        self._set(self._most)

    def look(self, now: float, running: Iterable[RunningAttempt]) -> None:
        """Measure the speed on full GPUs every 2 s, and set the number of seats by it.

        The loop calls this in every round.

        Nothing happens if the number is given by the YAML, if one patch at a time fits, or if no task waits.

        Raises:
            OutputError: the ledger cannot be written.
        """
        if self._most == 1 or self.config.executor.patches_per_gpu != "auto" or now < self._look_at or not self.queue:
            return
        self._look_at = now + LOOK_S
        done = {one.key: done for one in running if (done := _work_done(one))}
        looks = (_measure_speed(keys, self._done, done) for keys in self.slots.full_gpus())
        self._looks += [look for look in looks if look]
        self._done = done
        self._set(choose_seats(self.slots.seats, self._looks, self._most, is_tight=self.slots.is_tight()))

    def ran_out_of_memory(self, at_once: int) -> None:
        """Limit the seats to one fewer than `at_once` for the rest of the batch: so many did not fit into the GPU.

        Raises:
            OutputError: the ledger cannot be written.
        """
        self._most = max(1, min(self._most, at_once - 1))
        self._set(min(self.slots.seats, self._most))

    def note(self, running: RunningAttempt) -> None:
        """Learn from a trained attempt what share of its estimated GPU memory it really took, for later attempts.

        An attempt without an estimate is ignored. Without a peak in exit.json, the memory by `holds` counts.
        """
        footprint = running.task.memory_estimate
        if footprint is None or not footprint.gpu_mib:
            return
        own = (running.attempt.folder.read_exit() or ExitFacts()).own_gpu_peak_mib
        measured = self.holds(running) if own is None else SLACK * own
        if measured is not None:
            self._shares.append(measured / footprint.gpu_mib)

    def of(self, task: Task) -> MemoryEstimate | None:
        """Return the memory estimate of an attempt at this task, its GPU memory corrected by measurements.

        None if unknown.
        """
        if task.memory_estimate is None or not self._shares:
            return task.memory_estimate
        return replace(
            task.memory_estimate, gpu_mib=math.ceil(task.memory_estimate.gpu_mib * max(LEAST_SHARE, *self._shares))
        )

    def holds(self, running: RunningAttempt) -> float | None:
        """Return the GPU memory that an attempt may hold at its end, in MiB; None if unknown.

        Without a measured peak the corrected estimate counts. The part that torch reserves unused is included; it may
        be half as large as the used part, or larger. If it were counted as memory of a foreign program, the next
        attempt could not start until this attempt has ended.
        """
        lines, expected = running.attempt.folder.read_progress(), self.of(running.task)
        peak, reserved = judge.most(line.peak_mib for line in lines), judge.most(line.reserved_mib for line in lines)
        taken = (expected.gpu_mib if expected else None) if peak is None else SLACK * peak + GPU_CONTEXT_MIB
        return taken if reserved is None else max(taken or 0.0, reserved + CONTEXT_MIB)

    def _set(self, seats: int) -> None:
        if seats != self.slots.seats:
            self.ledger.write(Packing(seats, tuple(vars(look) for look in self._looks[-4:])))
        self.slots.set_seats(seats)


def _work_done(one: RunningAttempt) -> WorkDone | None:
    line, need = one.attempt.folder.last_progress(), one.task.memory_estimate
    if line.phase != judge.TRAINING or line.step is None or line.t is None or need is None:
        return None
    return (line.t, stepping_s(one.task.next_settings.recipe, need, H200, line.step))


def _measure_speed(keys: Sequence[Key], before: Mapping[Key, WorkDone], now: Mapping[Key, WorkDone]) -> GpuSpeed | None:
    """Return the total speed of the attempts on a GPU; None unless all have trained since the last measurement."""
    speed = 0.0
    for first, last in ((before.get(key), now.get(key)) for key in keys):
        if first is None or last is None or last[0] <= first[0]:
            return None
        (began, work_before_s), (ended, work_s) = first, last
        speed += (work_s - work_before_s) / (ended - began)
    return GpuSpeed(len(keys), speed)


@dataclass(frozen=True)
class GpuSpeed:
    """Measured speed of a GPU while `at_once` patches trained on it."""

    at_once: int
    speed: float
    """Total speed of these patches: modelled seconds of work per second."""


def choose_seats(now: int, looks: Sequence[GpuSpeed], most: int, *, is_tight: bool = False) -> int:
    """Return how many patches should train at once on each GPU; at most one more than now.

    Once the present number is measured `FEWEST_LOOKS` times, one fewer is tried. It stays only if it is faster in total
    by the factor `LOSS`. One more is returned only if it was measured before, and the present
    number is not faster by that factor.

    Args:
        now: present number.
        looks: measurements so far, the oldest first.
        most: upper limit, which holds whatever was measured.
        is_tight: memory is short, so that one fewer than now must train.
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
