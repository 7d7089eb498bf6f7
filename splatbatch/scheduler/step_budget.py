"""The pace of a batch with a deadline: chosen before it began, corrected, for all alike, where it proves wrong.

A forecast may be off by a factor: of another GPU, another rasteriser, a machine that does other things besides. So:

- Once the attempts that began first have made a tenth of their steps, it is known whether they are far too slow. Then
  they begin again, so that every patch still has the same: that costs a tenth of a patch. That they are fast proves
  nothing: first steps have few Gaussians and, coarse to fine, small photographs.
- Later, whenever an attempt has ended, what has not begun yet is given fewer steps if the deadline would be missed.
  More, if much time would be left and there are patches enough to share it: never more than the YAML's, nor than half
  as many again as the patch with the fewest. What runs goes on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from splatbatch.files import write_json
from splatbatch.machine.protocol import Key
from splatbatch.output.events import DeadlineApplied
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.deadline.choice import FULL, Adjustment, DeadlineDecision, StepBudget
from splatbatch.scheduler import judge
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline.choose import BudgetForecast, RemainingWork, choose
from splatbatch.tasks.deadline.settle import speeds_of
from splatbatch.tasks.deadline.speeds import Speeds
from splatbatch.tasks.deadline.words import correction_in_words
from splatbatch.tasks.memory_estimates import footprints_of
from splatbatch.tasks.task import Task, with_step_budget
from splatbatch.text import clock

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

WHOLE = 0.9
"""Share of the steps of an attempt that counts as all of them."""
Mark = tuple[float, int]
"""When, and which step then."""


@dataclass
class PaceSample:
    """An attempt, from when it began."""

    running: RunningAttempt
    began: float
    first: Mark | None = None
    """The first step that it told of, and when."""
    step: float = 0.0
    """The last that it told."""
    took_s: float = 0.0
    """Of the steps it told."""
    model_s: float = 0.0
    """The same by the model, unscaled."""
    start_s: float | None = None
    """Besides its steps, until it makes the first as long as it runs; None: it has made none."""

    @property
    def task(self) -> Task:
        """Return what it trains."""
        return self.running.task

    @property
    def pace(self) -> StepBudget:
        """Return at which it does."""
        paces = self.task.yaml_settings.paces
        return paces[0] if paces else FULL

    @property
    def share(self) -> float:
        """Return the share of its steps that is measured."""
        return self.step / self.task.next_settings.recipe.training.max_steps


@dataclass
class SpeedEstimator:
    """What is known of the attempts of this run; teaches the speeds."""

    speeds: Speeds
    at_work: dict[Key, PaceSample] = field(default_factory=dict)
    ended: list[PaceSample] = field(default_factory=list)

    def look(self, running: Iterable[RunningAttempt], now: float) -> bool:
        """Look at what runs; return whether something has ended."""
        here = {one.key: one for one in running}
        for key, attempt in here.items():
            one = self.at_work.setdefault(key, PaceSample(attempt, now))
            self._measure(one, judge.last_mark(attempt.attempt.folder))
            one.start_s = now - one.began if one.first and one.start_s is None else one.start_s
        gone = [self.at_work.pop(key) for key in [*self.at_work] if key not in here]
        for one in gone:
            one.start_s = None
            self._measure(one, judge.mark_of_last_step(one.running.attempt.folder))
            if one.share >= 1 and one.took_s:
                whole_s = one.took_s / one.model_s * self.speeds.stepping_s(one.task, one.pace) if one.model_s else 0.0
                one.start_s = max(0.0, now - one.began - whole_s)
        self.ended += gone
        self._teach()
        return bool(gone)

    def _measure(self, one: PaceSample, last: Mark | None) -> None:
        if last is None:
            return
        one.first = one.first or last
        (first_at, first), (last_at, step) = one.first, last
        if step > max(first, one.step) and last_at > first_at:
            speeds, task, pace = self.speeds, one.task, one.pace
            one.step, one.took_s = float(step), last_at - first_at
            one.model_s = speeds.stepping_s(task, pace, step) - speeds.stepping_s(task, pace, first)

    def _teach(self) -> None:
        by_trainer: dict[str, list[PaceSample]] = {}
        for one in (*self.ended, *self.at_work.values()):
            if one.model_s > 0:
                by_trainer.setdefault(one.task.recipe.training.trainer, []).append(one)
        for name, seen in by_trainer.items():  # the first steps of an attempt tell less than a whole one
            by_trainer[name] = [one for one in seen if one.share >= WHOLE] or seen
        for seen in by_trainer.values():
            starts = [one.start_s for one in seen if one.start_s is not None]
            start_s = statistics.fmean(starts) if starts else self.speeds.of(seen[0].task).start_s
            factor = sum(one.took_s for one in seen) / sum(one.model_s for one in seen)
            self.speeds.learn(seen[0].task, start_s, factor)


class BudgetPolicy(Protocol):
    """Says how many steps what begins now is given."""

    @property
    def paces(self) -> tuple[StepBudget, ...]:
        """Those whose splats count, that of now first; none: there is no deadline."""
        ...

    def paced(self, task: Task) -> Task:
        """Return a task as it is to be trained now."""
        ...

    def look(self, now: float, waiting: WaitingTasks, running: Mapping[Key, RunningAttempt]) -> Collection[Key]:
        """Look at how it goes; return the attempts that are to begin again."""
        ...


@dataclass(frozen=True)
class WaitingTasks:
    """What has not begun, and on how many slots it will."""

    queue: Queue
    standing_by: Sequence[Task]
    num_slots: int

    def tasks(self) -> list[Task]:
        """Return it."""
        return [*self.standing_by, *self.queue]


class NoDeadline:
    """Leaves everything as it is."""

    paces: tuple[StepBudget, ...] = ()

    def paced(self, task: Task) -> Task:
        """Return a task as it is."""
        return task

    def look(self, now: float, waiting: WaitingTasks, running: Mapping[Key, RunningAttempt]) -> Collection[Key]:
        """Return nothing."""
        return ()


@dataclass
class DeadlineBudget:
    """Keeps a batch to its deadline."""

    choice: DeadlineDecision
    speeds: Speeds
    end: float
    """By the clock of the loop."""
    tell: Callable[[DeadlineDecision], None]
    """Writes down a correction, and says it."""
    _measured: SpeedEstimator = field(init=False)
    _next_look: float = float("-inf")
    _has_probed: bool = False

    def __post_init__(self) -> None:
        self._measured = SpeedEstimator(self.speeds)

    @property
    def paces(self) -> tuple[StepBudget, ...]:
        """Those whose splats count, that of now first."""
        return self.choice.paces

    def paced(self, task: Task) -> Task:
        """Return a task as it is to be trained now."""
        return task if task.yaml_settings.paces == self.paces else with_step_budget([task], self.paces)[0]

    def look(self, now: float, waiting: WaitingTasks, running: Mapping[Key, RunningAttempt]) -> Collection[Key]:
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
            self._correct(now, RemainingWork(tasks, self.speeds, self._busy(at_work, waiting.num_slots)))
        return ()

    def _probe(self, now: float, waiting: WaitingTasks, at_work: Sequence[PaceSample]) -> Collection[Key]:
        """See whether the choice was right; where it is far off, return all that runs, to begin again."""
        self._has_probed = True
        tasks = waiting.tasks()
        if any(one.share > YOUNG for one in at_work):
            if tasks:
                self._correct(now, RemainingWork(tasks, self.speeds, self._busy(at_work, waiting.num_slots)))
            return ()
        anew = RemainingWork([*(one.task for one in at_work), *tasks], self.speeds, (0.0,) * max(1, waiting.num_slots))
        if (chosen := self._better(now, anew)) and _is_far_less(chosen.pace, self.choice.now):
            self._take(chosen, now, "the first attempts have shown the training speed, and start again")
            return tuple(one.running.key for one in at_work)
        return ()

    def _correct(self, now: float, work: RemainingWork) -> None:
        if (chosen := self._better(now, work)) and chosen.pace != self.choice.now:
            self._take(chosen, now, "training is faster or slower than expected")

    def _better(self, now: float, work: RemainingWork) -> BudgetForecast | None:
        """Return a better pace; None if the one of now ends in time, and leaves little over."""
        left_s, total_s = self.end - now, (self.choice.ends_at or 0.0) - (self.choice.chosen_at or 0.0)
        expected_s = work.ends_at(self.choice.now)
        is_idle = expected_s < left_s - SPARE * total_s and len(work.tasks) > FEW * len(self.choice.patches)
        if expected_s > left_s:
            return choose(work, left_s - AIM * total_s)
        return self._more(choose(work, left_s - AIM * total_s)) if is_idle and not self.choice.now.is_full else None

    def _more(self, chosen: BudgetForecast) -> BudgetForecast:
        """Return what was chosen, or as much of it as is even with what has begun."""
        seen = (*self._measured.at_work.values(), *self._measured.ended)
        fewest = min((one.pace.steps for one in seen if not one.running.begins_again), default=1.0)
        now = self.choice.now
        steps = min(chosen.pace.steps, MOST_MORE * fewest) if chosen.pace.divisor == now.divisor else now.steps
        return replace(chosen, pace=StepBudget(max(now.steps, steps), now.divisor))

    def _take(self, chosen: BudgetForecast, now: float, why: str) -> None:
        told = f"{why}: {clock(max(0.0, self.end - now))} left"
        if not chosen.is_met:
            told += ", too little even for the fewest steps that make sense"
        correction = Adjustment(round(time.time(), 3), chosen.pace, told)
        self.choice = replace(self.choice, corrections=(*self.choice.corrections, correction))
        self.tell(self.choice)

    def _busy(self, at_work: Sequence[PaceSample], num_slots: int) -> tuple[float, ...]:
        """Return when each slot is free, in seconds from now."""
        left = [self.speeds.left_s(one.task, one.pace, one.step) for one in at_work]
        return (*left, *(0.0,) * (max(1, num_slots) - len(left)))


def _is_far_less(one: StepBudget, other: StepBudget) -> bool:
    return one.divisor > other.divisor or one.steps < other.steps * (1 - FAR)


def pacer_of(batch: Batch, choice: DeadlineDecision, ledger: Ledger) -> DeadlineBudget:
    """Return what keeps a batch to what was chosen for its deadline, and writes down what it corrects."""
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    recipes = list({id(one): one for one in (task.requested_settings.recipe for task in bare.tasks)}.values())

    def tell(now: DeadlineDecision) -> None:
        write_json(batch.output.deadline, now.to_record())
        latest = now.corrections[-1]
        ledger.write(DeadlineApplied(correction_in_words(recipes, latest.pace, latest.why)))

    speeds, _ = speeds_of(bare, footprints_of(bare.config, bare.tasks))
    end = time.monotonic() + (choice.ends_at or 0.0) - time.time()
    return DeadlineBudget(choice, speeds, end, tell)
