"""The plan of a run: what `train` would do with each patch, its schedule and memory, and how long all will take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from splatbatch.config.schedule import Schedule, schedule
from splatbatch.output.records.deadline import DeadlineDecision
from splatbatch.output.records.frame import Frame
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.tasks.audits import audits_of, refusals, words_of
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.deadline import decision_in_words
from splatbatch.tasks.estimates import Forecast, footprints_of, forecast
from splatbatch.tasks.patch_state import GivenUp, PatchState, RejectedByAudit, UpToDate, due
from splatbatch.tasks.shared_decisions.decide import preview_decisions
from splatbatch.tasks.shared_decisions.frame import spans_of

Decision = Literal["train", "skip", "refuse", "given_up"]
DECISIONS: Mapping[type[PatchState], Decision] = {UpToDate: "skip", RejectedByAudit: "refuse", GivenUp: "given_up"}
"""Decision for each state of a patch that is not trained; patches in all other states are trained."""


@dataclass(frozen=True)
class PlannedPatch:
    """Plan for one patch: what `train` would do, why, and the steps and memory that the training would need."""

    patch: str
    decision: Decision
    reason: str
    schedule: Schedule | None
    """The steps at which something happens; null with an external trainer."""
    need: MemoryEstimate | None
    """Memory that the training is expected to need; null if there is no estimate, as with an external trainer."""
    overlap: str = ""
    """Which part of the patch too few photographs see, and what to do about it; empty if the photographs overlap
    enough."""


@dataclass(frozen=True)
class PlannedDeadline(DeadlineDecision):
    """Step budget chosen for a deadline: steps and size of photographs."""

    words: tuple[str, ...] = ()
    """The decision as text, one line each."""


@dataclass(frozen=True)
class PlanOutput:
    """Output of `plan --json`: what `train` would do.

    `frame` has the offset that is subtracted before training. `deadline` is null if the YAML sets none; `forecast_s`,
    in seconds, is null if it is unknown or nothing is to train.
    """

    patches: tuple[PlannedPatch, ...]
    forecast_s: float | None
    forecast: Forecast
    frame: Frame | None
    deadline: PlannedDeadline | None


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a batch: what `train` would do with each patch."""

    batch: Batch
    """The batch with the shared decisions (frame, steps) under which it would be trained."""
    states: Mapping[str, PatchState]
    """State of each patch, by name."""
    schedules: Mapping[str, Schedule]
    """The schedule of each patch, by name; patches of external trainers are left out."""
    footprints: Mapping[str, MemoryEstimate]
    """Memory that each patch is expected to need; patches without an estimate are left out."""
    forecast: Forecast
    """How long the patches that would be trained are expected to take."""
    overlap: Mapping[str, str]
    """Patches with large parts that too few photographs see, with what to do about it."""

    @property
    def to_train(self) -> tuple[str, ...]:
        """The names of the patches that would be trained."""
        return due(self.states)

    def facts(self) -> PlanOutput:
        """Return the plan as `plan --json` prints it."""
        schedules, footprints, overlap = self.schedules, self.footprints, self.overlap
        patches = tuple(
            PlannedPatch(
                name,
                decision_on(state),
                state.reason,
                schedules.get(name),
                footprints.get(name),
                overlap.get(name, ""),
            )
            for name, state in self.states.items()
        )
        choice = self.batch.shared.deadline
        words = decision_in_words(choice, self.batch.tasks) if choice and self.batch.tasks else ()
        deadline = PlannedDeadline(**vars(choice), words=words) if choice else None
        seconds = self.forecast.seconds if self.to_train else None
        return PlanOutput(patches, seconds, self.forecast, self.batch.shared.frame, deadline)


def decision_on(state: PatchState) -> Decision:
    """Return what `train` would do with a patch in this state."""
    return DECISIONS.get(type(state), "train")


def plan(batch: Batch) -> BatchPlan:
    """Return the plan of a batch: audit its patches, preview the shared decisions, and decide on each patch.

    Headers of photographs are read; nothing is written.

    Raises:
        ConfigError: the deadline is past.
        SceneError: held-out photographs do not fit their scene, a partition cannot be read, or patches are too far
            apart for one offset.
        ExecutorError: CUDA_VISIBLE_DEVICES names only GPUs that do not exist.
        LaterFormatError: a later version of splatbatch wrote a record that is needed.
        OSError: a mask was removed during the audit.
    """
    audits = audits_of(batch)
    refused, spans = refusals(audits), spans_of(audit for audit, _ in audits)
    batch = preview_decisions(batch, PendingTasks(batch.tasks, lambda: spans, lambda one: due(one.states(refused))))
    states = batch.states(refused)
    schedules = {task.name: schedule(task.recipe) for task in batch.tasks if task.recipe.program is None}
    footprints = footprints_of(batch.config, batch.tasks)
    expected = forecast(batch, due(states), footprints)
    return BatchPlan(batch, states, schedules, footprints, expected, words_of(audits, "little_overlap"))
