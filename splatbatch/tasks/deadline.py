"""Chooses the step budget for a deadline: fewer steps or smaller photographs, the same for all patches.

The loss is estimated in dB of hold-out PSNR. Steps: 3DGS (Kerbl 2023, tables 4 to 7) has 7,000 and 30,000
steps on the same photographs: 25.60 and 27.21 dB (Mip-NeRF 360), 21.20 and 23.14 (Tanks & Temples), 27.78 and 29.41
(Deep Blending): 0.8 dB for each halving. Photographs: caliterra at 320x241 on the CPU, `mcmc`, one run each, measured
at full size: 1,600, 800 and 400 steps give 29.3, 27.4 and 27.2 dB; on half as large ones 27.5, 27.1 and 25.9, in a
third to a fifth of the time.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from splatbatch.config import Recipe
from splatbatch.config.deadline import ends_at
from splatbatch.config.deadline import in_words as time_in_words
from splatbatch.errors import ConfigError
from splatbatch.hashing import short_hash
from splatbatch.machine.slots import is_on_cpu
from splatbatch.output.records.deadline import FULL, Adjustment, DeadlineDecision, StepBudget
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate, TrainingSpeed
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.estimates import footprints_of, makespan_s, num_slots, packed_slowdown, past_trainings
from splatbatch.tasks.step_budget import FEWEST_SHARE, changes_of, follows, photograph_divisor, steps_at
from splatbatch.tasks.task import Task
from splatbatch.text import clock, moment, plural


@dataclass
class Speeds:
    """Estimates how long attempts take, in seconds, and learns from finished attempts."""

    model: TrainingSpeed
    """Modelled speed of the device: the CPU, or an H200 for any GPU."""
    estimates: Mapping[str, MemoryEstimate]
    """Memory estimates by task name, made without a deadline; none for external trainers and unreadable models."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Measured ratio of real to modelled time, by trainer; trainers not measured yet are missing."""

    def factor(self, task: Task) -> float | None:
        """Return the ratio of real to modelled time for the trainer of a task; 1.0 if not measured yet.

        None: no time is known, since the trainer is not measured yet and the task has no memory estimate.
        """
        return self.factors.get(full_recipe(task).training.trainer, 1.0 if task.name in self.estimates else None)

    def seconds(self, task: Task, budget: StepBudget, made: float = 0.0) -> float:
        """Return the seconds an attempt takes under a budget, or still takes after `made` steps; 0 if unknown.

        The start of the process is included only if `made` is 0.
        """
        factor = self.factor(task)
        if factor is None:
            return 0.0
        stepping_s = self.stepping_s(task, budget)
        if made:
            return factor * (stepping_s - self.stepping_s(task, budget, made))
        return self._start_s(task) + factor * stepping_s

    def stepping_s(self, task: Task, budget: StepBudget, until: float = math.inf) -> float:
        """Return the modelled seconds of the steps of an attempt, before the measured factor is applied.

        A task without a memory estimate counts one second per step.

        Args:
            task: task of the attempt.
            budget: its step budget.
            until: only so many first steps; by default all steps of the budget.
        """
        recipe, need = with_budget(task, budget), self.estimates.get(task.name)
        if need is None:
            return float(min(until, recipe.training.max_steps))
        need = replace(need, mean_px=need.mean_px // photograph_divisor(full_recipe(task), budget) ** 2)
        return memory_estimate.stepping_s(recipe, need, self.model, until)

    def learn(self, attempts: Iterable[tuple[Task, StepBudget, float, float]]) -> int:
        """Measure the factor of each trainer, the median over its attempts; return how many attempts were usable.

        Attempts no longer than the start of a process, or without steps, are not. Factors of other trainers stay.

        Args:
            attempts: attempts, also unfinished ones: task, budget, seconds so far with the start, and steps so far.
        """
        found = defaultdict[str, list[float]](list)
        for task, budget, seconds, steps in attempts:
            took_s, model_s = seconds - self._start_s(task), self.stepping_s(task, budget, steps)
            if took_s > 0 and model_s > 0:
                found[full_recipe(task).training.trainer].append(took_s / model_s)
        self.factors = {**self.factors, **{name: statistics.median(factors) for name, factors in found.items()}}
        return sum(map(len, found.values()))

    def _start_s(self, task: Task) -> float:
        return self.model.start if task.name in self.estimates else 0.0


def full_recipe(task: Task) -> Recipe:
    """Return the recipe of a task's next attempt as it would be without a deadline.

    Raises:
        ConfigError: the settings are invalid; not for tasks of a batch from `open_batch`, which has checked them.
    """
    return task.next_settings.without_deadline.recipe


def with_budget(task: Task, budget: StepBudget) -> Recipe:
    """Return the recipe of a task under a budget; settings changed by --set or by rungs stay as they are.

    Raises:
        ConfigError: the settings are invalid; not for tasks of a batch from `open_batch`, which has checked them.
    """
    recipe = full_recipe(task)
    asked = task.next_settings.changes
    changes = {key.partition(".")[2]: value for key, value in changes_of(recipe, budget).items() if key not in asked}
    return recipe.with_training(changes)


DB_PER_HALVING = 0.8
"""Estimated loss for each halving of the steps, in dB of hold-out PSNR; the module docstring names the sources."""
DB_PER_SMALLER = 1.2
"""Estimated loss for each halving of width and height, in dB of hold-out PSNR; the module docstring has the runs."""
DIVISORS = (1, 2, 4)
"""Divisors of width and height of photographs that a budget may choose."""
LEAST_PX = 160 * 120
"""Fewest pixels (160 x 120) of reduced photographs that a budget may choose, as the mean of at least one patch."""
ALL_SHARES = 1_000_000
"""Number of possible shares in the search: the share of steps is found to a millionth."""


@dataclass(frozen=True)
class RemainingWork:
    """The remaining tasks of a batch, and the slots for them; finds the best budget for a given time.

    A slot is room for one attempt.
    """

    tasks: Sequence[Task]
    speeds: Speeds
    num_slots: int
    busy: Sequence[float] = ()
    """Seconds until each busy slot is free; slots not listed are free already."""

    def choose(self, left_s: float) -> StepBudget:
        """Return the budget with the smallest loss that ends in time; if none does, the budget that ends first.

        Args:
            left_s: time for all tasks, in seconds from now.
        """
        if self.ends_at(FULL) <= left_s:
            return FULL
        budgets = [self._most_steps(divisor, left_s) for divisor in DIVISORS if self._may_shrink(divisor)]
        in_time = [budget for budget in budgets if self.ends_at(budget) <= left_s]
        return min(in_time, key=lost_db) if in_time else min(budgets, key=self.ends_at)

    def ends_at(self, budget: StepBudget) -> float:
        """Return when the last task ends, in seconds from now; tasks whose products other tasks need run first."""
        names, busy = {name for task in self.tasks for name in task.required}, self.busy
        needed = [self.speeds.seconds(task, budget) for task in self.tasks if task.name in names]
        others = [self.speeds.seconds(task, budget) for task in self.tasks if task.name not in names]
        if needed:
            busy = [makespan_s(needed, self.num_slots, busy)] * self.num_slots
        return makespan_s(others, self.num_slots, busy)

    def _most_steps(self, divisor: int, left_s: float) -> StepBudget:
        """Return the budget with the most steps that ends in time; if none does, the one with the fewest."""
        fewest = round(FEWEST_SHARE * ALL_SHARES)
        shares = range(fewest, ALL_SHARES + 1)
        num_in_time = bisect_right(
            shares, left_s, key=lambda share: self.ends_at(StepBudget(share / ALL_SHARES, divisor))
        )
        return StepBudget((fewest + max(0, num_in_time - 1)) / ALL_SHARES, divisor)

    def _may_shrink(self, divisor: int) -> bool:
        """Return whether photographs may be reduced by this divisor: those of at least one patch must show enough."""
        smaller = StepBudget(1.0, divisor)
        known = (
            self.speeds.estimates.get(task.name)
            for task in self.tasks
            if photograph_divisor(full_recipe(task), smaller) == divisor
        )
        return divisor == 1 or any(need is not None and need.mean_px >= LEAST_PX * divisor**2 for need in known)


def lost_db(budget: StepBudget) -> float:
    """Return the estimated loss under a budget, in dB of hold-out PSNR; 0 without any reduction."""
    return DB_PER_HALVING * math.log2(1 / budget.steps) + DB_PER_SMALLER * math.log2(budget.divisor)


AIM = 0.97
"""Share of the time until the deadline that is planned for training; the rest is for the report and for retries."""
FIRST_AIM = 0.78
"""Share of the time planned for training while no speed is measured, instead of `AIM`.

The first attempts may be slower than modelled, and are not cut short. With several workers `AIM` holds.
"""
WORTH_IT_DB = 0.1
"""Least gain for which splats of an earlier deadline are trained again, in dB of hold-out PSNR."""


def choice_for(batch: Batch, todo: PendingTasks, now: float) -> DeadlineDecision | None:
    """Return a new decision for the deadline of a batch; None without a deadline, or if the earlier decision holds.

    A new decision is made if the deadline or the settings in the YAML have changed, or if new patches are due. None,
    too, if no patch is due.

    Args:
        batch: the batch, with the decisions made so far.
        todo: tasks to train.
        now: time in seconds since 1970.

    Raises:
        ConfigError: the deadline is past.
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    asked, then = batch.config.deadline, batch.shared.deadline
    if not asked:
        return None
    settings = short_hash(" ".join(sorted({task.yaml_settings.without_deadline.recipe_hash for task in batch.every})))
    names = todo.names_in(batch)
    if not names or (then and then.settings == settings and set(names) <= set(then.patches)):
        return None
    stored = DeadlineDecision.read(batch.output.deadline)
    earlier = stored.budgets if stored and stored.settings == settings else ()
    if (end := ends_at(asked, now)) <= now:
        raise ConfigError(
            f"{batch.path}: deadline: {asked} has passed; it is {moment(now)} now",
            "Set a later time, such as 07:00 for the next morning, or remove the deadline.",
        )
    return _chosen(batch, todo, earlier, DeadlineDecision(asked, settings, round(now, 3), round(end, 3)))


def speeds_of(batch: Batch) -> tuple[Speeds, int]:
    """Return the speeds of attempts on this machine, and the number of trained patches by which they were measured.

    0 patches: the speeds are those of the model alone.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    model = memory_estimate.CPU if on_cpu else memory_estimate.H200
    speeds = Speeds(model, footprints_of(bare.config, bare.tasks))
    done = []
    for task, result in past_trainings(bare, on_cpu=on_cpu):
        full, training = full_recipe(task).training, result.trained_from.settings.get("training") or {}
        if training.get("resolution", full.resolution) == full.resolution:
            done.append((task, FULL, result.seconds or 0.0, result.step or 0))
    return speeds, speeds.learn(done)


def _chosen(
    batch: Batch, todo: PendingTasks, earlier: tuple[StepBudget, ...], asked: DeadlineDecision
) -> DeadlineDecision:
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    speeds, num_done = speeds_of(batch)
    time_s, executor = (asked.ends_at or 0.0) - (asked.chosen_at or 0.0), batch.config.executor
    left_s = time_s * (AIM if num_done or executor.workers > 1 else FIRST_AIM)  # several workers never adjust it
    slots, wanted = num_slots(batch.config, speeds.estimates.values()), set(todo.names_in(bare))
    if not num_done:
        left_s /= packed_slowdown(batch.config, min(slots, len(wanted)))
    work = RemainingWork([task for task in bare.tasks if task.name in wanted], speeds, slots * executor.workers)
    pace = work.choose(left_s)
    # what was trained for an earlier deadline is kept, unless there is time to make it better for all
    if earlier := tuple(one for one in earlier if lost_db(one) - lost_db(pace) <= WORTH_IT_DB):
        kept = DeadlineDecision(pace=FULL, earlier=earlier)
        wanted = set(todo.names_in(batch.with_shared(replace(batch.shared, deadline=kept))))
    if len(wanted) < len(work.tasks):
        work = replace(work, tasks=[task for task in work.tasks if task.name in wanted])
        pace, most = work.choose(left_s), min(earlier, key=lost_db)
        if lost_db(pace) < lost_db(most) and work.ends_at(most) <= work.ends_at(pace):
            pace = most  # more than what is kept has would be uneven again
    recipes = [full_recipe(task) for task in work.tasks]
    unknown = sorted({full_recipe(task).training.trainer for task in work.tasks if speeds.factor(task) is None})
    expected_s, basis = work.ends_at(pace), "estimated from a model of training time; corrected after the first patch"
    if unknown:
        basis = f"the speed of {', '.join(unknown)} is not known yet"
    elif num_done:
        basis = f"based on {plural(num_done, 'trained patch', 'es')}"
    return replace(
        asked,
        patches=tuple(task.name for task in work.tasks),
        pace=pace,
        earlier=earlier,
        full_s=None if unknown else work.ends_at(FULL),
        expected_s=None if unknown else expected_s,
        basis=basis,
        is_met=expected_s <= time_s * AIM,
        untouched=tuple(sorted({one.training.trainer for one in recipes if not follows(one)})),
    )


SIZES = {1: "full size", 2: "half size", 4: "a quarter of their size", 8: "an eighth of their size"}
"""Sizes of reduced photographs in words, by divisor of width and height."""


def decision_in_words(choice: DeadlineDecision, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return lines for the user on a decision for a deadline; if the deadline cannot be met, the first line says so.

    Adjustments during the run follow, a line each.

    Args:
        choice: the decision.
        tasks: tasks of the batch; their steps and resolution are named.
    """
    end, lines = f"deadline {time_in_words(choice.asked, choice.ends_at or 0.0)}", []
    if not choice.is_met:
        left = clock((choice.ends_at or 0.0) - (choice.chosen_at or 0.0))
        lines.append(
            f"{end} CANNOT BE MET: the fewest useful steps take about {clock(choice.expected_s)},"
            f" and {left} is left; every patch is trained with these steps, none is skipped"
        )
    kept, expected, instead = "all patches keep their steps and resolution", f": {choice.basis}", ""
    if choice.pace != FULL:
        kept = f"every patch is trained with {describe_reductions(tasks, choice.pace)}"
        instead = f" instead of {clock(choice.full_s)}" if choice.full_s else ""
    if choice.expected_s is not None:
        expected = f"; expected to take about {clock(choice.expected_s)}{instead}, {choice.basis}"
    lines.append(f"{end}: {kept}{expected}")
    if choice.untouched:
        lines.append(f"{end}: the steps of {', '.join(choice.untouched)} are not changed: its command has no {{steps}}")
    return (*lines, *(correction_in_words(tasks, one) for one in choice.corrections))


def correction_in_words(tasks: Sequence[Task], correction: Adjustment) -> str:
    """Return a line on an adjustment: the reason, and how attempts are trained from then on.

    Args:
        tasks: tasks of the batch; their steps and resolution are named.
        correction: the adjustment.
    """
    what = "as without a deadline" if correction.pace == FULL else f"with {describe_reductions(tasks, correction.pace)}"
    return f"deadline: {correction.why}; attempts that start from now on are trained {what}"


def describe_reductions(tasks: Sequence[Task], pace: StepBudget) -> str:
    """Return a budget in words: "4,000 of 30,000 steps (13%), photographs at half size, which costs about …".

    Of patches with different step counts, at most three counts are named.
    """
    recipes = [task.requested_settings.without_deadline.recipe for task in tasks]
    steps = sorted({(steps_at(one, pace), one.training.max_steps) for one in recipes})
    counts = " and ".join(f"{now:,} of {full:,}" for now, full in steps[:3])
    parts = [f"{counts} steps" + (f" ({pace.steps:.0%})" if pace.steps < 1 else "")]
    if pace.divisor > 1:
        parts.append(f"photographs at {SIZES.get(pace.divisor, SIZES[8])}")
    return f"{', '.join(parts)}, which costs about {lost_db(pace):.1f} dB of PSNR on held-out photographs (estimated)"
