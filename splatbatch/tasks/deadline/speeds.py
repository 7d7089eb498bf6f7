"""How long attempts take at any pace: by the model of durations, scaled by what has been measured of each trainer."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from splatbatch.config import Recipe
from splatbatch.output.records.deadline.choice import StepBudget
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate, TrainingSpeed
from splatbatch.tasks.deadline.pace import changes_of, divided
from splatbatch.tasks.task import Task

LEAST_FACTOR = 0.01


@dataclass(frozen=True)
class Speed:
    """What is known of a trainer."""

    start_s: float
    """Of an attempt, besides its steps."""
    factor: float | None
    """On what the model says of its steps; None: nobody knows."""


@dataclass
class Speeds:
    """Says how long attempts take, and learns."""

    model: TrainingSpeed
    needs: Mapping[str, MemoryEstimate]
    """By task, as it would be trained without a deadline; none of what an external trainer trains."""
    known: dict[str, Speed] = field(default_factory=dict)
    """By trainer."""
    _stepping: dict[tuple[str, StepBudget], float] = field(default_factory=dict)

    def of(self, task: Task) -> Speed:
        """Return what is known of the trainer of a task."""
        has_model = task.name in self.needs
        return self.known.get(_trainer(task)) or Speed(self.model.start, 1.0 if has_model else None)

    def seconds(self, task: Task, pace: StepBudget) -> float:
        """Return how long an attempt takes; 0 where nobody knows."""
        speed = self.of(task)
        return 0.0 if speed.factor is None else speed.start_s + speed.factor * self.stepping_s(task, pace)

    def left_s(self, task: Task, pace: StepBudget, step: float) -> float:
        """Return how long the steps of an attempt still take."""
        return (self.of(task).factor or 0.0) * (self.stepping_s(task, pace) - self.stepping_s(task, pace, step))

    def stepping_s(self, task: Task, pace: StepBudget, until: float | None = None) -> float:
        """Return what the model says of the steps of an attempt, or of so many of the first; unscaled."""
        key = (task.name, pace)
        if until is None and key in self._stepping:
            return self._stepping[key]
        recipe, need = with_budget(task, pace), self.needs.get(task.name)
        if need is None:
            steps = recipe.training.max_steps
            return float(steps if until is None else min(steps, until))
        smaller = divided(full_recipe(task), pace)
        need = replace(need, mean_px=need.mean_px // smaller**2)
        found = memory_estimate.stepping_s(recipe, need, self.model, until)
        if until is None:
            self._stepping[key] = found
        return found

    def learn(self, task: Task, start_s: float, factor: float) -> None:
        """Take what has been measured of the trainer of a task for all that it trains."""
        self.known[_trainer(task)] = Speed(start_s, max(LEAST_FACTOR, factor))

    def learn_from(self, done: Iterable[tuple[Task, float, int]]) -> int:
        """Learn from tasks that were trained, each with its seconds and steps; return from how many."""
        factors: dict[str, list[tuple[Task, float]]] = {}
        for task, seconds, steps in done:
            start_s = self.model.start if task.name in self.needs else 0.0
            whole = self.stepping_s(task, StepBudget(), steps)
            if whole > 0 and seconds > start_s:
                factors.setdefault(_trainer(task), []).append((task, (seconds - start_s) / whole))
        for found in factors.values():
            start_s = self.model.start if found[0][0].name in self.needs else 0.0
            self.learn(found[0][0], start_s, statistics.median(factor for _, factor in found))
        return sum(map(len, factors.values()))


def full_recipe(task: Task) -> Recipe:
    """Return what would train a task if there were time."""
    return task.next_settings.without_deadline.recipe


def with_budget(task: Task, pace: StepBudget) -> Recipe:
    """Return what trains a task at a pace; what was asked for by name stays."""
    recipe = full_recipe(task)
    asked = task.next_settings.changes
    changes = {key.partition(".")[2]: value for key, value in changes_of(recipe, pace).items() if key not in asked}
    if not changes:
        return recipe
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)})


def _trainer(task: Task) -> str:
    return full_recipe(task).training.trainer
