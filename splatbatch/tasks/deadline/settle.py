"""What is chosen for a deadline: once, before the first patch is trained, for all that is to be trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from splatbatch.config.deadline import ends_at
from splatbatch.errors import ConfigError
from splatbatch.hashing import short_hash
from splatbatch.machine.slots import is_on_cpu
from splatbatch.output.records.deadline.choice import FULL, DeadlineDecision, StepBudget
from splatbatch.output.records.result import Result
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline.choose import BudgetForecast, RemainingWork, choose, lost_db
from splatbatch.tasks.deadline.pace import follows
from splatbatch.tasks.deadline.speeds import Speeds, full_recipe
from splatbatch.tasks.fingerprints.fingerprint import hashes_of
from splatbatch.tasks.memory_estimates import footprints_of, num_slots
from splatbatch.tasks.shared_decisions.todo import PendingTasks
from splatbatch.tasks.task import Task
from splatbatch.tasks.throughput import MOST_RESULTS
from splatbatch.text import moment, plural

AIM = 0.97
"""Share of the time that is planned with: the rest is for the report, and for what is tried again."""
FIRST_AIM = 0.78
"""The same while no speed was measured: what begins first may be slower than the model says, and is not cut short."""
WORTH_IT_DB = 0.1
"""So much is worth training again what was trained for an earlier deadline."""


def choice_for(batch: Batch, todo: PendingTasks, now: float) -> DeadlineDecision | None:
    """Return what is chosen for the deadline of a batch; None where there is none, or what was chosen before holds.

    It is chosen anew where nothing was chosen yet, where the deadline or the settings of the YAML are others; and where
    patches are to be trained that it was not chosen for.

    Raises:
        ConfigError: the deadline is past.
    """
    if not batch.config.deadline:
        return None
    settings, names, then = settings_key(batch), todo.names_in(batch), batch.shared.deadline
    if not names or (then and then.settings == settings and set(names) <= set(then.patches)):
        return None
    stored = DeadlineDecision.read(batch.output.deadline)
    earlier = stored.paces if stored and stored.settings == settings else ()
    return _chosen(batch, todo, earlier, now)


def settings_key(batch: Batch) -> str:
    """Return a hash of what would be trained without a deadline."""
    return short_hash(" ".join(hashes_of(task.yaml_settings.without_deadline.recipe for task in batch.every)))


def speeds_of(batch: Batch, needs: Mapping[str, MemoryEstimate]) -> tuple[Speeds, int]:
    """Return how fast attempts are here, as far as is known, and by how many patches that are trained.

    Args:
        batch: whose splats tell.
        needs: of its tasks, without a deadline.
    """
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    speeds = Speeds(memory_estimate.CPU if on_cpu else memory_estimate.H200, needs)
    return speeds, speeds.learn(_done(batch, on_cpu=on_cpu))


def _chosen(
    batch: Batch,
    todo: PendingTasks,
    earlier: tuple[StepBudget, ...],
    now: float,
) -> DeadlineDecision:
    end = _end(batch, now)
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    needs = footprints_of(bare.config, bare.tasks)
    speeds, num_done = speeds_of(bare, needs)
    is_cautious = not num_done and batch.config.executor.workers == 1  # several workers keep to it as it is
    left_s, every = (end - now) * (FIRST_AIM if is_cautious else AIM), set(todo.names_in(bare))

    def best(names: Iterable[str]) -> tuple[RemainingWork, BudgetForecast]:
        wanted = set(names)
        work = RemainingWork([task for task in bare.tasks if task.name in wanted], speeds, (0.0,) * all_slots(batch))
        return work, choose(work, left_s)

    work, chosen = best(every)
    # what was trained for an earlier deadline is kept, unless there is time to make it better for all
    worst = max(map(lost_db, earlier), default=0.0)
    if worst - lost_db(chosen.pace) > WORTH_IT_DB:
        earlier = tuple(pace for pace in earlier if lost_db(pace) - lost_db(chosen.pace) <= WORTH_IT_DB)
    kept = DeadlineDecision(pace=FULL, earlier=earlier)
    names = set(todo.names_in(batch.with_shared(replace(batch.shared, deadline=kept)))) if earlier else every
    if names < every:
        work, chosen = best(names)
        chosen = _as_the_others(work, chosen, min(earlier, key=lost_db))
    unknown = sorted({full_recipe(task).training.trainer for task in work.tasks if speeds.factor(task) is None})
    fixed = {full_recipe(task).training.trainer for task in work.tasks if not follows(full_recipe(task))}
    return DeadlineDecision(
        asked=batch.config.deadline or "",
        settings=settings_key(batch),
        chosen_at=round(now, 3),
        ends_at=round(end, 3),
        patches=tuple(task.name for task in bare.tasks if task.name in names),
        pace=chosen.pace,
        earlier=earlier,
        full_s=None if unknown else work.ends_at(FULL),
        expected_s=None if unknown else chosen.expected_s,
        basis=_basis(num_done, unknown),
        is_met=chosen.expected_s <= (end - now) * AIM,
        untouched=tuple(sorted(fixed)),
    )


def _as_the_others(work: RemainingWork, chosen: BudgetForecast, most: StepBudget) -> BudgetForecast:
    """Return at most the pace of what is kept: more would be uneven again."""
    if not chosen.is_met or lost_db(chosen.pace) >= lost_db(most) or work.ends_at(most) > chosen.expected_s:
        return chosen
    return replace(chosen, pace=most, expected_s=work.ends_at(most))


def _end(batch: Batch, now: float) -> float:
    asked = batch.config.deadline or ""
    if (end := ends_at(asked, now)) <= now:
        raise ConfigError(
            f"{batch.path}: deadline: {asked} has passed; it is {moment(now)} now",
            "Set a later time, such as 07:00 for the next morning, or remove the deadline.",
        )
    return end


def all_slots(batch: Batch) -> int:
    """Return how many patches are trained at once, by all workers together."""
    return num_slots(batch.config) * batch.config.executor.workers


def _basis(num_done: int, unknown: Sequence[str]) -> str:
    if unknown:
        return f"the speed is not known yet of {', '.join(unknown)}"
    by_model = "estimated from a model of training time; corrected after the first patch"
    return f"based on {plural(num_done, 'trained patch', 'es')}" if num_done else by_model


def _done(batch: Batch, *, on_cpu: bool) -> Iterable[tuple[Task, StepBudget, float, int]]:
    """Yield what of the batch was trained where it will be, with its seconds and steps."""
    for task in batch.every[:MOST_RESULTS]:
        result = batch.output.patch(task.name).read_result() or Result()
        made_on, training = result.metrics.made_on, result.trained_from.settings.get("training") or {}
        is_alike = training.get("resolution") == full_recipe(task).training.resolution or "resolution" not in training
        fits = is_alike and (not made_on or (made_on == "CPU") == on_cpu)
        if fits and result.seconds and result.step:
            yield task, FULL, result.seconds, result.step
