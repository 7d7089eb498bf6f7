"""How long the steps of attempts take, as their lines of progress tell, held against what was expected of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from splatbatch.machine.protocol import Key
from splatbatch.scheduler import judge
from splatbatch.scheduler.running import Running
from splatbatch.store.records.deadline.choice import FULL, Pace
from splatbatch.tasks.deadline.speeds import Speeds
from splatbatch.tasks.task import Task

WHOLE = 0.9
"""Share of the steps of an attempt that counts as all of them."""
Mark = tuple[float, int]
"""When, and which step then."""


@dataclass
class Watched:
    """An attempt, from when it began."""

    running: Running
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
    def pace(self) -> Pace:
        """Return at which it does."""
        paces = self.task.today.paces
        return paces[0] if paces else FULL

    @property
    def share(self) -> float:
        """Return the share of its steps that is measured."""
        return self.step / self.task.setup.recipe.training.max_steps


@dataclass
class Measured:
    """What is known of the attempts of this run; teaches the speeds."""

    speeds: Speeds
    at_work: dict[Key, Watched] = field(default_factory=dict)
    ended: list[Watched] = field(default_factory=list)

    def look(self, running: Iterable[Running], now: float) -> bool:
        """Look at what runs; return whether something has ended."""
        here = {one.key: one for one in running}
        for key, attempt in here.items():
            one = self.at_work.setdefault(key, Watched(attempt, now))
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

    def _measure(self, one: Watched, last: Mark | None) -> None:
        if last is None:
            return
        one.first = one.first or last
        (first_at, first), (last_at, step) = one.first, last
        if step > max(first, one.step) and last_at > first_at:
            speeds, task, pace = self.speeds, one.task, one.pace
            one.step, one.took_s = float(step), last_at - first_at
            one.model_s = speeds.stepping_s(task, pace, step) - speeds.stepping_s(task, pace, first)

    def _teach(self) -> None:
        by_trainer: dict[str, list[Watched]] = {}
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
