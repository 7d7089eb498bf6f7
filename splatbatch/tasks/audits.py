"""The audit of a batch before a GPU is touched: by the rules of each trainer, and which tasks it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatbatch.errors import SplatbatchError
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task, patches_of
from splatbatch.terminal import Advance, unheard

if TYPE_CHECKING:
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.scene.audit.findings import AuditFinding, TrainerRules
    from splatbatch.tasks.status import PatchStatus

MOST_AUDITED = 64
"""Patches that are due: their photographs' headers are read, as `plan` reads them."""


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that the rules of one trainer hold for."""

    rules: TrainerRules
    tasks: tuple[Task, ...]

    def each(self) -> tuple[TaskGroup, ...]:
        """Return a group for each patch."""
        by_patch: dict[str, list[Task]] = {}
        for task in self.tasks:
            by_patch.setdefault(task.patch.name, []).append(task)
        return tuple(TaskGroup(self.rules, tuple(tasks)) for tasks in by_patch.values())


def groups_of(batch: Batch) -> tuple[TaskGroup, ...]:
    """Return the tasks of a batch by the rules of their trainers.

    Raises:
        SceneError: a list of held-out photographs cannot be read, or a block of one is asked for where there is none.
    """
    from splatbatch.trainers import rules_of

    _check_holdout(batch)
    groups: dict[TrainerRules, list[Task]] = {}
    for task in batch.tasks:
        groups.setdefault(rules_of([task.requested_settings.recipe]), []).append(task)
    return tuple(TaskGroup(rules, tuple(tasks)) for rules, tasks in groups.items())


def audit_for_all(batch: Batch, *, deep: bool = False, advance: Advance = unheard) -> Audit:
    """Audit the patches of a batch, in a sweep each of them once; all trainers must take them.

    Args:
        batch: whose patches.
        deep: look at every photograph, and decode all that a training would.
        advance: told how far it is.
    """
    from splatbatch.scene.audit.audit import decoded_too
    from splatbatch.trainers import rules_of

    _check_holdout(batch)
    group = TaskGroup(rules_of(batch.recipes().values()), batch.tasks)
    audit = audit_of(batch, group, deep=deep, advance=advance)
    return decoded_too(audit, patches_of(batch.tasks), group.rules) if deep else audit


def audits_of(batch: Batch) -> tuple[tuple[Audit, tuple[Task, ...]], ...]:
    """Return an audit by the rules of each trainer, with the tasks that are its."""
    return tuple((audit_of(batch, group), group.tasks) for group in groups_of(batch))


def audit_of(batch: Batch, group: TaskGroup, *, deep: bool = False, advance: Advance = unheard) -> Audit:
    """Audit tasks of a batch that the rules of one trainer hold for."""
    from splatbatch.scene.audit.audit import AuditExtent, audit_patches
    from splatbatch.scene.audit.findings import FindingWriter
    from splatbatch.tasks.shared_decisions.frame import REMEDY, far_apart, spans_of

    cache = batch.output.audit_cache if batch.output.path.is_dir() else None
    evaluations = {task.patch.name: task.requested_settings.recipe.evaluation for task in group.tasks}
    extent = AuditExtent(cache=cache, evaluations=evaluations)
    if deep:
        extent = replace(extent, groups=None)
    audit = audit_patches(patches_of(group.tasks), batch.config.scene.source, group.rules, extent, advance)
    apart = far_apart(batch, spans_of([audit])).items()
    found = [FindingWriter(name, group.rules).note("far_apart", "points", told, REMEDY) for name, told in apart]
    return replace(audit, findings=(*audit.findings, *found))


def _check_holdout(batch: Batch) -> None:
    from splatbatch.scene.holdout import check_lists  # which loads numpy: `status` does without

    check_lists((task.patch, task.requested_settings.recipe.evaluation) for task in batch.tasks)


def refusals(audits: Iterable[tuple[Audit, Iterable[Task]]]) -> dict[str, str]:
    """Return the tasks that their audit refuses, with the first of the reasons for each."""
    return _first_words((audit.errors(), tasks) for audit, tasks in audits)


def words_of(audits: Iterable[tuple[Audit, Iterable[Task]]], kind: str) -> dict[str, str]:
    """Return the tasks of whose patches there is a finding of a class, with its words."""
    return _first_words(([one for one in audit.findings if one.kind == kind], tasks) for audit, tasks in audits)


def _first_words(found: Iterable[tuple[Sequence[AuditFinding], Iterable[Task]]]) -> dict[str, str]:
    words: dict[str, str] = {}
    for findings, tasks in found:
        first = {finding.patch: finding.in_words() for finding in reversed(findings)}
        words |= {task.name: first[task.patch.name] for task in tasks if task.patch.name in first}
    return words


def with_refusals(batch: Batch, statuses: Sequence[PatchStatus]) -> tuple[PatchStatus, ...]:
    """Return the states with what an audit refuses now, as `plan` does: the files may have changed since the last one.

    What is trained and fresh is not looked at, nor are so many patches that the look would take long.
    """
    names = [one.patch for one in statuses if not one.is_made and one.state not in ("running", "refused")]
    if not 0 < len(names) <= MOST_AUDITED:
        return tuple(statuses)
    try:
        reasons = refusals(audits_of(batch.only(names)))
    except SplatbatchError:  # of settings that `plan` tells of
        return tuple(statuses)
    return tuple(
        replace(one, state="refused", cause="audit", advice=reasons[one.patch], given_up=False)
        if one.patch in reasons
        else one
        for one in statuses
    )
