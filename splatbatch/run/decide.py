"""Deciding what to train: the state of every patch, the audit of the patches due, and the shared decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from splatbatch import isolated
from splatbatch.errors import SceneError
from splatbatch.files import Record
from splatbatch.hashing import FileFacts
from splatbatch.isolated import (
    ENDLESS,
    Crashed,
    Hung,
    Returned,
    TaskFault,
    WaitHooks,
    answer,
    answers,
    as_fault,
)
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.monitor.sinks import Sink
from splatbatch.outcome import INTERNAL_FAULT, Failed, Outcome
from splatbatch.output.events import AttemptEnded, PatchesAudited, PatchRejected, Restored
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.record import object_of, read_as
from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.patches import list_names
from splatbatch.tasks import upkeep
from splatbatch.tasks.audits import TaskGroup, audit_of, groups_of, refusals
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.freshness import FreshnessChecker, Observation
from splatbatch.tasks.input_files import state_of
from splatbatch.tasks.patch_state import STATES, GivenUp, PatchState, Stale, UpToDate, is_due
from splatbatch.tasks.shared_decisions.colors import decide_colors
from splatbatch.tasks.shared_decisions.decide import STEPS, Step
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions
from splatbatch.tasks.shared_decisions.frame import read_spans, spans_of
from splatbatch.tasks.task import Task, TrainTask, of_patches, patches_of

if TYPE_CHECKING:
    from splatbatch.scene.frame import ModelExtent

Audits = tuple[tuple[Audit, tuple[Task, ...]], ...]
"""Audits, each with the tasks that were audited."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training: whether patches are audited, and which are trained in addition to the due ones."""

    verify: bool = True
    """Audit the patches first."""
    force: bool = False
    """Train also patches that are up to date, or were given up."""
    is_retry: bool = False
    """Train also patches that were given up; `retry.keep` decides between the accepted splat and the new one."""
    sinks: tuple[Sink, ...] = ()
    """Your own receivers of events, told of what `train` does itself; not told of what requested workers do."""


@dataclass(frozen=True)
class Decisions:
    """Decision on each task before training: its state, its audit findings, and what went wrong in finding them."""

    batch: Batch
    options: TrainOptions
    states: Mapping[str, PatchState]
    """State of each task, by name; without the tasks whose reader failed or hung."""
    audits: Audits = ()
    """Audits of the tasks to train; empty if there are none, or if no audit is wanted."""
    audited: Mapping[str, str] = field(default_factory=dict)
    """Hash of the sizes and times of each task's input files when they were audited, by task; a task that was not
    audited, or whose files could not be read, is left out."""
    faults: Mapping[str, TaskFault] = field(default_factory=dict)
    """Tasks whose reader or audit failed or hung, with the fault of each; empty: none."""

    @cached_property
    def todo(self) -> Batch:
        """The batch with only the tasks to train: due, and without a fault."""
        return self.batch.only(name for name in self.states if self._is_due(name) and name not in self.faults)

    @property
    def up_to_date(self) -> Mapping[str, UpToDate]:
        """The tasks that are up to date and not to be trained again, with their states."""
        states = self.states.items()
        return {name: one for name, one in states if isinstance(one, UpToDate) and not self._is_due(name)}

    @property
    def given_up(self) -> Mapping[str, str]:
        """The tasks that are not tried again since they have failed for good, with the reason for each."""
        states = self.states.items()
        return {name: one.reason for name, one in states if isinstance(one, GivenUp) and not self._is_due(name)}

    def _is_due(self, name: str) -> bool:
        return is_due(self.states[name], force=self.options.force, insist=self.options.is_retry)

    @cached_property
    def standing(self) -> FreshnessChecker:
        """The checker that decides during the training whether splats are up to date."""
        return self.batch.standing()

    def with_faults(self, faults: Mapping[str, TaskFault]) -> Decisions:
        """Return these decisions with more tasks whose reader or audit failed or hung, each with its fault."""
        return replace(self, faults={**self.faults, **faults}) if faults else self


def assess_and_audit(batch: Batch, options: TrainOptions, patience: WaitHooks = ENDLESS) -> Decisions:
    """Return the decision which patches to train, with the audit of these unless `options.verify` is off.

    Nothing is written. The functions of `patience` are called while files are read.

    Raises:
        SplatbatchError: see `decide` and `audit`.
        StopRequested: `patience` asked to stop.
    """
    decisions = decide(batch, options, patience)
    return audit(decisions, patience) if options.verify and decisions.todo.tasks else decisions


def decide(batch: Batch, options: TrainOptions, patience: WaitHooks = ENDLESS) -> Decisions:
    """Return the decision which patches to train, from their files, read in reader processes; nothing is written.

    The contents of a file are read only if its size or time has changed. A task whose files cannot be read is stale.
    One whose reader fails otherwise, or hangs, is listed in `faults` of the result.

    Raises:
        SceneError: the shared decisions have changed, and partition.json is broken.
        LaterFormatError: a later version of splatbatch wrote a record of a task.
        StopRequested: `patience` asked to stop.
    """
    call = partial(_observed_state, batch.standing("content"))
    states, faults = dict[str, PatchState](), dict[str, TaskFault]()
    for name, found in answers(isolated.start(call, batch.names), patience):
        try:
            told = found.result("plan")
            states[name] = STATES[told["state"]](**told["fields"])
        except OSError:  # the audit, or the attempt, names the file
            states[name] = Stale("files of the patch cannot be read")
        except TaskFault as fault:
            faults[name] = fault
    return Decisions(batch, options, states, faults=faults)


def audit(decisions: Decisions, patience: WaitHooks = ENDLESS) -> Decisions:
    """Return the decisions with an audit of the patches to train, by the rules of each trainer.

    If the joint audit fails or hangs, each patch is audited by itself. A patch whose own audit fails or hangs is listed
    in `faults` of the result; the others keep their findings.

    Raises:
        SceneError: a list of held-out photographs or a partition cannot be read, or does not fit the settings.
        StopRequested: `patience` asked to stop.
    """
    call = partial(_audit, decisions.todo)
    audits, states, faults = list[tuple[Audit, tuple[Task, ...]]](), dict[str, str](), dict[str, TaskFault]()
    for group in groups_of(decisions.todo):
        found = [(group, answer(call, group, patience))]
        if not isinstance(found[0][1], Returned):
            found = [*answers(isolated.start(call, group.each(), AGAIN_S), patience)]
        merged = Audit((), (), (), group.rules.name)
        for one, its in found:
            try:
                told = its.result("audit")
                merged, states = merged.joined(read_as(Audit, told["audit"])), states | told["states"]
            except (OSError, TaskFault) as error:
                faults |= {task.name: as_fault(error, "audit") for task in one.tasks}
        of_patch = {one.patch: one for one in merged.errors() if one.kind == INTERNAL_FAULT}
        for task in group.tasks:
            if finding := of_patch.get(task.patch.name):
                faults[task.name] = Crashed(finding.message, finding.traceback).fault("audit")
        audits.append((merged, group.tasks))
    return replace(decisions, audits=tuple(audits), audited=states).with_faults(faults)


def make_shared_decisions(decisions: Decisions, patience: WaitHooks = ENDLESS) -> Decisions:
    """Make the shared decisions of the batch, one after the other, and store them in the output folder.

    If a decision differs from before, splats become stale: what to train is then decided again. Returned are the
    decisions that hold after it. If deciding the colours fails, that is logged, and they stay as they were.

    Raises:
        SceneError: a shared decision other than the colours cannot be made.
        ConfigError, ExecutorError: the deadline is past, or CUDA_VISIBLE_DEVICES names only GPUs that do not exist.
        LaterFormatError: a later version of splatbatch wrote a record of the output folder.
        StopRequested: `patience` asked to stop.
    """
    for what, step in STEPS.items():
        if not any(isinstance(task, TrainTask) for task in decisions.todo.tasks):
            break
        try:
            said = answer(partial(_decide_one, decisions), step, patience).result("settle")
        except (OSError, TaskFault) as error:
            words = error.diagnosis.evidence[0] if isinstance(error, TaskFault) else str(error)
            if step is decide_colors:  # a night without corrected colours is better than none
                log_line(f"{what} could not be determined, and stay as they are: {words}")
                continue
            hint = "Check each patch with `splatbatch verify-dims`, and leave out those with errors."
            raise SceneError(f"{what} could not be determined: {words}", hint) from error
        for line in said:
            log_line(line)
        before = decisions.batch
        now = before.with_shared(SharedDecisions.known(before.config, before.output))
        if not now.shared.is_other(before.shared):
            decisions = replace(decisions, batch=now)
            continue
        again = decide(now, decisions.options, patience).with_faults(decisions.faults)
        if again.todo.names == decisions.todo.names:  # the audits are still valid
            decisions = replace(again, audits=decisions.audits, audited=decisions.audited)
        else:
            decisions = assess_and_audit(now, decisions.options, patience).with_faults(decisions.faults)
    return decisions


AGAIN_S = 20.0
"""Seconds that the audit of a single patch may hang, after the joint audit has failed or hung."""


def _observed_state(standing: FreshnessChecker, name: str) -> Record:
    state = standing.state(name)
    return {"state": type(state).__name__, "fields": vars(replace(state, result=None))}


def _audit(batch: Batch, group: TaskGroup) -> Record:
    facts, states = FileFacts(), dict[str, str]()  # patches share photographs: each file is read once
    for task in group.tasks:
        with contextlib.suppress(Exception):  # the audit, or the attempt, reports the fault
            states[task.name] = state_of(task.input_files(facts).now().files)
    return {"audit": object_of(replace(audit_of(batch, group), rows=())), "states": states}


def _decide_one(decisions: Decisions, step: Step) -> list[str]:
    """Make one shared decision for the tasks to train, and write it into the output folder; return notes in words."""
    batch, todo, said = decisions.batch, decisions.todo, list[str]()

    def spans() -> Mapping[str, ModelExtent]:
        if decisions.options.verify and decisions.audits:
            return spans_of(audit for audit, _ in decisions.audits)
        return read_spans(patches_of(todo.tasks))

    def names_in(other: Batch) -> list[str]:
        return todo.names if other is batch else decide(other, decisions.options).todo.names

    step(batch, PendingTasks(todo.tasks, spans, names_in, said.append)).write(batch.output)
    return said


def record_rejections(decisions: Decisions, ledger: Ledger, *, verify: bool) -> Mapping[str, str]:
    """Write the findings of the audits into the ledger; return the refused patches, each with the reason.

    If every patch to train is refused, stderr says so. `verify`: whether the patches were audited.
    """
    todo = decisions.todo
    refused = {name: why for name, why in refusals(decisions.audits).items() if name not in decisions.faults}
    warnings = [
        f"{one.patch}: {one.subject}: {one.message}" for audit, _ in decisions.audits for one in audit.warnings()
    ]
    ledger.write(PatchesAudited(verified=verify, refused=refused, warnings=tuple(dict.fromkeys(warnings))))
    for name in todo.names:
        if reason := refused.get(name):
            ledger.write(PatchRejected(name, reason, decisions.audited.get(name)))
    if todo.tasks and refused.keys() >= set(todo.names):
        others = [task.name for task in of_patches(todo.every) if task.name not in refused]
        said = (
            f"{list_names([*refused])}: refused by the audit of photographs and cameras; no other patch needs training"
            if others
            else ""
        )
        print_err(
            f"{said or 'every patch is refused by the audit of photographs and cameras'}: see `splatbatch verify-dims`"
        )
    return refused


def record_unreadable_tasks(decisions: Decisions, ledger: Ledger) -> Mapping[str, Outcome]:
    """Write the tasks of `Decisions.faults` into the ledger; return their outcomes, by task."""
    failed = {name: Failed(fault.diagnosis) for name, fault in decisions.faults.items()}
    for name, fault in decisions.faults.items():
        ledger.write(AttemptEnded.of(name, 0, failed[name], phase=fault.diagnosis.phase, traceback=fault.traceback))
    return failed


def restore_missing_products(batch: Batch, ledger: Ledger, patience: WaitHooks) -> None:
    """Restore accepted products that are missing or were replaced, from the attempts that made them.

    Each restored product is written into the ledger. A product that cannot be restored stays stale.

    Raises:
        StopRequested: `patience` asked to stop.
    """
    for task, found in answers(isolated.start(upkeep.restore, batch.tasks), patience):
        if isinstance(found, Returned) and found.value[0]:  # else it stays stale, and is trained
            ledger.write(Restored(task.name, *found.value))


def refresh_file_facts(decisions: Decisions, patience: WaitHooks) -> list[str]:
    """Update the recorded sizes, times and hashes of input files in up-to-date results, where these have changed.

    Returned are the names of the tasks concerned. A result that cannot be written is updated by the next run.

    Raises:
        StopRequested: `patience` asked to stop.
    """
    outdated = decisions.batch.only(name for name, state in decisions.up_to_date.items() if state.is_outdated)
    reading = isolated.start(upkeep.update_fingerprint, outdated.tasks)
    return [task.name for task, _ in answers(reading, patience)]  # the next run retries failed writes


def refresh_states(batch: Batch, standing: FreshnessChecker, patience: WaitHooks) -> None:
    """Read the state of the input files in reader processes, and have `standing` use these observations from here on.

    So the main process never touches input files during the training.

    Raises:
        StopRequested: `patience` asked to stop.
    """
    found = answers(isolated.start(batch.standing().observe, batch.names), patience)
    standing.close_scene({name: Observation(*one.value) for name, one in found if isinstance(one, Returned)})


def refresh_states_if_possible(batch: Batch, standing: FreshnessChecker) -> None:
    """Drop the observations of `refresh_states`, so that files are read again; if a file hangs, keep them.

    Raises:
        SceneError: a split was interrupted, or partition.json is broken.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    found = [*answers(isolated.start(batch.standing().observe, batch.names))]
    if not any(isinstance(one, Hung) for _, one in found):
        standing.forget()
