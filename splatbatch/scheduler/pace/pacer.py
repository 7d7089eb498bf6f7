"""The pace of a batch with a deadline: chosen before it began, corrected, for all alike, where it proves wrong.

A forecast may be off by a factor: of another GPU, another rasteriser, a machine that does other things besides. So:

- Once the attempts that began first have made a tenth of their steps, it is known whether they are far too slow. Then
  they begin again, so that every patch still has the same: that costs a tenth of a patch. That they are fast proves
  nothing: first steps have few Gaussians and, coarse to fine, small photographs.
- Later, whenever an attempt has ended, what has not begun yet is given fewer steps if the deadline would be missed,
  more if much time would be left and there are patches enough to share it: never more than the YAML's, nor than half
  as many again as the patch with the fewest. What runs goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from splatbatch.machine.protocol import Key
from splatbatch.plain_text import clock
from splatbatch.scheduler.pace.measured import Measured, Watched
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running import Running
from splatbatch.store.records.deadline.choice import Choice, Correction, Pace
from splatbatch.tasks.deadline.choose import Chosen, Work, choose
from splatbatch.tasks.deadline.speeds import Speeds
from splatbatch.tasks.task import Task, at_pace

LOOK_S = 0.2
PROBE = 0.1
"""Share of the steps of an attempt after which it tells how fast it is."""
YOUNG = 0.25
"""One that has made less may begin again."""
FAR = 0.1
"""A choice that is off by more is worth that."""
SPARE = 0.05
"""Share of the time that may be left over."""
FEW = 0.3
"""So small a share of the patches is not given what the others have left over: it would be uneven."""
MOST_MORE = 1.5
"""No patch is given so many times the steps of another."""
AIM = 0.01
"""Share of the time that a correction keeps back."""


class Pacer(Protocol):
    """Says how many steps what begins now is given."""

    @property
    def paces(self) -> tuple[Pace, ...]:
        """Those whose splats count, that of now first; none: there is no deadline."""
        ...

    def paced(self, task: Task) -> Task:
        """Return a task as it is to be trained now."""
        ...

    def look(self, now: float, waiting: Waiting, running: Mapping[Key, Running]) -> Collection[Key]:
        """Look at how it goes; return the attempts that are to begin again."""
        ...


@dataclass(frozen=True)
class Waiting:
    """What has not begun, and on how many slots it will."""

    queue: Queue
    standing_by: Sequence[Task]
    num_slots: int

    def tasks(self) -> list[Task]:
        """Return it."""
        return [*self.standing_by, *self.queue]


class NoDeadline:
    """Leaves everything as it is."""

    paces: tuple[Pace, ...] = ()

    def paced(self, task: Task) -> Task:
        """Return a task as it is."""
        return task

    def look(self, now: float, waiting: Waiting, running: Mapping[Key, Running]) -> Collection[Key]:
        """Return nothing."""
        return ()


@dataclass
class DeadlinePacer:
    """Keeps a batch to its deadline."""

    choice: Choice
    speeds: Speeds
    end: float
    """By the clock of the loop."""
    tell: Callable[[Choice], None]
    """Writes down a correction, and says it."""
    _measured: Measured = field(init=False)
    _next_look: float = float("-inf")
    _has_probed: bool = False

    def __post_init__(self) -> None:
        self._measured = Measured(self.speeds)

    @property
    def paces(self) -> tuple[Pace, ...]:
        """Those whose splats count, that of now first."""
        return self.choice.paces

    def paced(self, task: Task) -> Task:
        """Return a task as it is to be trained now."""
        return task if task.today.paces == self.paces else at_pace([task], self.paces)[0]

    def look(self, now: float, waiting: Waiting, running: Mapping[Key, Running]) -> Collection[Key]:
        """Look at how it goes; return the attempts that are to begin again, since they were given too much, or little.

        What stands by was prepared for another pace after a correction: who calls ends it.
        """
        if now < self._next_look and self._measured.at_work.keys() <= running.keys():
            return ()
        self._next_look = now + LOOK_S
        has_ended = self._measured.look(running.values(), now)
        at_work = list(self._measured.at_work.values())
        if not self._has_probed and not has_ended and not self._measured.ended:
            return self._probe(now, waiting, at_work) if at_work and all(one.share >= PROBE for one in at_work) else ()
        if has_ended and (tasks := waiting.tasks()):
            self._correct(now, Work(tasks, self.speeds, self._busy(at_work, waiting.num_slots)))
        return ()

    def _probe(self, now: float, waiting: Waiting, at_work: Sequence[Watched]) -> Collection[Key]:
        """See whether the choice was right; where it is far off, return all that runs, to begin again."""
        self._has_probed = True
        tasks = waiting.tasks()
        if any(one.share > YOUNG for one in at_work):
            if tasks:
                self._correct(now, Work(tasks, self.speeds, self._busy(at_work, waiting.num_slots)))
            return ()
        anew = Work([*(one.task for one in at_work), *tasks], self.speeds, (0.0,) * max(1, waiting.num_slots))
        if (chosen := self._better(now, anew)) and _is_far_less(chosen.pace, self.choice.now):
            self._take(chosen, now, "the first attempts show how long it takes, and begin again")
            return tuple(one.running.key for one in at_work)
        return ()

    def _correct(self, now: float, work: Work) -> None:
        if (chosen := self._better(now, work)) and chosen.pace != self.choice.now:
            self._take(chosen, now, "training is faster or slower than expected")

    def _better(self, now: float, work: Work) -> Chosen | None:
        """Return a better pace; None if the one of now ends in time, and leaves little over."""
        left_s, total_s = self.end - now, (self.choice.ends_at or 0.0) - (self.choice.chosen_at or 0.0)
        expected_s = work.ends_at(self.choice.now)
        is_idle = expected_s < left_s - SPARE * total_s and len(work.tasks) > FEW * len(self.choice.patches)
        if expected_s > left_s:
            return choose(work, left_s - AIM * total_s)
        return self._more(choose(work, left_s - AIM * total_s)) if is_idle and not self.choice.now.is_full else None

    def _more(self, chosen: Chosen) -> Chosen:
        """Return what was chosen, or as much of it as is even with what has begun."""
        seen = (*self._measured.at_work.values(), *self._measured.ended)
        fewest = min((one.pace.steps for one in seen if not one.running.begins_again), default=1.0)
        now = self.choice.now
        steps = min(chosen.pace.steps, MOST_MORE * fewest) if chosen.pace.divisor == now.divisor else now.steps
        return replace(chosen, pace=Pace(max(now.steps, steps), now.divisor))

    def _take(self, chosen: Chosen, now: float, why: str) -> None:
        told = f"{why}: {clock(max(0.0, self.end - now))} left"
        if not chosen.is_met:
            told += ", which even the fewest steps that make sense do not meet"
        correction = Correction(round(time.time(), 3), chosen.pace, told)
        self.choice = replace(self.choice, corrections=(*self.choice.corrections, correction))
        self.tell(self.choice)

    def _busy(self, at_work: Sequence[Watched], num_slots: int) -> tuple[float, ...]:
        """Return when each slot is free, in seconds from now."""
        left = [self.speeds.left_s(one.task, one.pace, one.step) for one in at_work]
        return (*left, *(0.0,) * (max(1, num_slots) - len(left)))


def _is_far_less(one: Pace, other: Pace) -> bool:
    return one.divisor > other.divisor or one.steps < other.steps * (1 - FAR)
