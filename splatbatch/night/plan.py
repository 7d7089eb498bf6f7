"""What `train` would do: each patch decided on, at which steps things happen, what it needs, how long all will take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splatbatch.config.schedule import schedule
from splatbatch.scene.footprint import Footprint
from splatbatch.tasks.batch import Batch, refusals
from splatbatch.tasks.footprints import footprints_of
from splatbatch.tasks.forecast import Forecast, check_place, forecast
from splatbatch.tasks.plan import Decision, to_train
from splatbatch.tasks.settled.every import settled_quickly
from splatbatch.tasks.settled.frame import spans_of
from splatbatch.tasks.settled.settled import Todo


@dataclass(frozen=True)
class Plan:
    """What would be done with each patch of a batch."""

    batch: Batch
    """In the frame, and with the steps, in which it would be trained."""
    decisions: tuple[Decision, ...]
    """Train, skip, refuse or given up, each with its reason."""
    schedules: Mapping[str, Mapping[str, Any]]
    """The steps at which things happen, by patch; external trainers have schedules of their own."""
    footprints: Mapping[str, Footprint]
    """What each patch is expected to need, where that can be told."""
    forecast: Forecast

    @property
    def to_train(self) -> tuple[str, ...]:
        """Return the patches that would be trained."""
        return to_train(self.decisions)

    def check_place(self) -> None:
        """See that `train` would train here.

        Raises:
            ExecutorError, TrainerError: it could not, or would not.
        """
        if self.to_train:
            check_place(self.batch.only(self.to_train), self.forecast)


def plan(batch: Batch) -> Plan:
    """Return what would be done with a batch; its photographs' headers are read, and nothing is written.

    Raises:
        ConfigError: its deadline is past.
        SceneError: a list of held-out photographs does not fit its scene.
    """
    audits = batch.audits()
    refused, spans = refusals(audits), spans_of(audit for audit, _ in audits)
    batch = settled_quickly(batch, Todo(batch.tasks, lambda: spans, lambda one: to_train(one.decisions(refused))))
    decisions = batch.decisions(refused)
    schedules = {task.name: asdict(schedule(task.recipe)) for task in batch.tasks if task.recipe.program is None}
    footprints = footprints_of(batch.config, batch.tasks)
    return Plan(batch, decisions, schedules, footprints, forecast(batch, to_train(decisions), footprints))
