"""How long attempts take under any budget: by the model of durations, scaled by what is measured of each trainer."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from splatbatch.config import Recipe
from splatbatch.output.records.deadline.choice import StepBudget
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate, TrainingSpeed
from splatbatch.tasks.deadline.pace import changes_of, divided
from splatbatch.tasks.task import Task


@dataclass
class Speeds:
    """Says how long attempts take, and learns."""

    model: TrainingSpeed
    needs: Mapping[str, MemoryEstimate]
    """By task, as it would be trained without a deadline; none of what an external trainer trains."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Of each trainer that was measured: on what the model says of its steps."""

    def factor(self, task: Task) -> float | None:
        """Return the factor of the trainer of a task; None: it has no model, and was not measured."""
        return self.factors.get(_trainer(task), 1.0 if task.name in self.needs else None)

    def seconds(self, task: Task, budget: StepBudget, made: float = 0.0) -> float:
        """Return how long an attempt takes, or still takes after so many steps; 0 where that is not known."""
        factor = self.factor(task)
        if factor is None:
            return 0.0
        stepping_s = self.stepping_s(task, budget)
        if made:
            return factor * (stepping_s - self.stepping_s(task, budget, made))
        return self._start_s(task) + factor * stepping_s

    def stepping_s(self, task: Task, budget: StepBudget, until: float | None = None) -> float:
        """Return what the model says of the steps of an attempt, or of so many of the first; unscaled."""
        recipe, need = with_budget(task, budget), self.needs.get(task.name)
        if need is None:
            return float(recipe.training.max_steps if until is None else until)
        need = replace(need, mean_px=need.mean_px // divided(full_recipe(task), budget) ** 2)
        return memory_estimate.stepping_s(recipe, need, self.model, until)

    def learn(self, attempts: Iterable[tuple[Task, StepBudget, float, float]]) -> int:
        """Learn from attempts, each with its budget, its seconds and its steps; return from how many."""
        found = defaultdict[str, list[float]](list)
        for task, budget, seconds, steps in attempts:
            took_s, model_s = seconds - self._start_s(task), self.stepping_s(task, budget, steps)
            if took_s > 0 and model_s > 0:
                found[_trainer(task)].append(took_s / model_s)
        self.factors = {**self.factors, **{name: statistics.median(factors) for name, factors in found.items()}}
        return sum(map(len, found.values()))

    def _start_s(self, task: Task) -> float:
        return self.model.start if task.name in self.needs else 0.0


def full_recipe(task: Task) -> Recipe:
    """Return what would train a task if there were time."""
    return task.next_settings.without_deadline.recipe


def with_budget(task: Task, budget: StepBudget) -> Recipe:
    """Return what trains a task under a budget; what was asked for by name stays."""
    recipe = full_recipe(task)
    asked = task.next_settings.changes
    changes = {key.partition(".")[2]: value for key, value in changes_of(recipe, budget).items() if key not in asked}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)})


def _trainer(task: Task) -> str:
    return full_recipe(task).training.trainer
