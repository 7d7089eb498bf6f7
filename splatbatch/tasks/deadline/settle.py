"""What is chosen for a deadline: once, before the first patch is trained, for all that is to be trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from splatbatch.config.deadline import ends_at
from splatbatch.errors import ConfigError
from splatbatch.hashing import short_hash
from splatbatch.machine.slots import is_on_cpu
from splatbatch.output.records.deadline.choice import FULL, DeadlineDecision, StepBudget
from splatbatch.output.records.result import Result
from splatbatch.scene import memory_estimate
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline.choose import RemainingWork, lost_db
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
    asked, then = batch.config.deadline, batch.shared.deadline
    if not asked:
        return None
    settings = short_hash(" ".join(hashes_of(task.yaml_settings.without_deadline.recipe for task in batch.every)))
    names = todo.names_in(batch)
    if not names or (then and then.settings == settings and set(names) <= set(then.patches)):
        return None
    stored = DeadlineDecision.read(batch.output.deadline)
    earlier = stored.paces if stored and stored.settings == settings else ()
    if (end := ends_at(asked, now)) <= now:
        raise ConfigError(
            f"{batch.path}: deadline: {asked} has passed; it is {moment(now)} now",
            "Set a later time, such as 07:00 for the next morning, or remove the deadline.",
        )
    return _chosen(batch, todo, earlier, DeadlineDecision(asked, settings, round(now, 3), round(end, 3)))


def speeds_of(batch: Batch) -> tuple[Speeds, int]:
    """Return how fast attempts are here, as far as is known, and by how many patches of the batch that are trained."""
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    model = memory_estimate.CPU if on_cpu else memory_estimate.H200
    speeds = Speeds(model, footprints_of(bare.config, bare.tasks))
    return speeds, speeds.learn(_done(bare, on_cpu=on_cpu))


def _chosen(
    batch: Batch, todo: PendingTasks, earlier: tuple[StepBudget, ...], asked: DeadlineDecision
) -> DeadlineDecision:
    bare = batch.with_shared(replace(batch.shared, deadline=None))
    speeds, num_done = speeds_of(batch)
    time_s, executor = (asked.ends_at or 0.0) - (asked.chosen_at or 0.0), batch.config.executor
    left_s = time_s * (AIM if num_done or executor.workers > 1 else FIRST_AIM)  # several workers keep to it as it is
    slots = num_slots(batch.config) * executor.workers
    wanted = set(todo.names_in(bare))
    work = RemainingWork([task for task in bare.tasks if task.name in wanted], speeds, slots)
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
    expected_s = work.ends_at(pace)
    return replace(
        asked,
        patches=tuple(task.name for task in work.tasks),
        pace=pace,
        earlier=earlier,
        full_s=None if unknown else work.ends_at(FULL),
        expected_s=None if unknown else expected_s,
        basis=_basis(num_done, unknown),
        is_met=expected_s <= time_s * AIM,
        untouched=tuple(sorted({one.training.trainer for one in recipes if not follows(one)})),
    )


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
