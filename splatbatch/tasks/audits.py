"""Audits the patches of a batch before training, by the rules of their trainers, and names the rejected tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatbatch.errors import SplatbatchError
from splatbatch.groups import grouped
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task, patches_of
from splatbatch.terminal import Advance, unheard

if TYPE_CHECKING:
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.scene.audit.findings import AuditFinding, TrainerRules
    from splatbatch.tasks.status import PatchStatus

MOST_AUDITED = 64
"""Largest number of due patches that `status` audits; for each the headers of its photographs are read."""


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that are audited by the same rules: camera models and photograph sizes that their trainers accept."""

    rules: TrainerRules
    tasks: tuple[Task, ...]

    def each(self) -> tuple[TaskGroup, ...]:
        """Return a group for each patch, under the same rules, in the order in which the patches first occur."""
        by_patch = grouped((task.patch.name, task) for task in self.tasks)
        return tuple(TaskGroup(self.rules, tuple(tasks)) for tasks in by_patch.values())


def groups_of(batch: Batch) -> tuple[TaskGroup, ...]:
    """Return the tasks of a batch, grouped by the rules of their trainers, after checking the hold-out lists.

    Raises:
        SceneError: a list of held-out photographs or a partition cannot be read, or the partition lacks a requested
            block (photographs side by side).
    """
    from splatbatch.trainers import rules_of

    _check_holdout(batch)
    groups = grouped((rules_of([task.requested_settings.recipe]), task) for task in batch.tasks)
    return tuple(TaskGroup(rules, tuple(tasks)) for rules, tasks in groups.items())


def audit_for_all(batch: Batch, *, deep: bool = False, advance: Advance = unheard) -> Audit:
    """Audit the patches of a batch, each once, by the rules of all its trainers together; for `verify-dims`.

    A fault in a file of the scene becomes a finding, not an error.

    Args:
        batch: the batch.
        deep: check every photograph, and decode all that a training would.
        advance: called with the progress.

    Raises:
        SceneError: a list of held-out photographs or a partition cannot be read, or the partition lacks a requested
            block (photographs side by side).
        OSError: a mask was removed during the audit.
    """
    from splatbatch.trainers import rules_of

    _check_holdout(batch)
    group = TaskGroup(rules_of(batch.recipes().values()), batch.tasks)
    return audit_of(batch, group, deep=deep, advance=advance)


def audits_of(batch: Batch) -> tuple[tuple[Audit, tuple[Task, ...]], ...]:
    """Audit the tasks of a batch by the rules of their own trainers; return each audit with its tasks.

    Raises:
        SceneError: a list of held-out photographs or a partition cannot be read, or the partition lacks a requested
            block (photographs side by side).
        OSError: a mask was removed during the audit.
    """
    return tuple((audit_of(batch, group), group.tasks) for group in groups_of(batch))


def audit_of(batch: Batch, group: TaskGroup, *, deep: bool = False, advance: Advance = unheard) -> Audit:
    """Audit one group of tasks; a fault in a file of the scene becomes a finding, not an error.

    A patch too far away for the offset of the batch is a finding, too. Figures of photographs are cached in the output
    folder, if that exists.

    Args:
        batch: the batch.
        group: tasks to audit, with the rules.
        deep: check every photograph; False: a sample of each patch.
        advance: called with the progress.

    Raises:
        OSError: a mask was removed during the audit.
    """
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
    """Return the tasks that their audit rejects, by name, each with its first error in words; empty: none."""
    return _first_words((audit.errors(), tasks) for audit, tasks in audits)


def words_of(audits: Iterable[tuple[Audit, Iterable[Task]]], kind: str) -> dict[str, str]:
    """Return the tasks whose patches have a finding of this kind, by name, each with the first finding in words.

    Args:
        audits: audits, each with its tasks.
        kind: kind of finding, as "far_apart".
    """
    return _first_words(([one for one in audit.findings if one.kind == kind], tasks) for audit, tasks in audits)


def _first_words(found: Iterable[tuple[Sequence[AuditFinding], Iterable[Task]]]) -> dict[str, str]:
    words: dict[str, str] = {}
    for findings, tasks in found:
        first = {finding.patch: finding.in_words() for finding in reversed(findings)}
        words |= {task.name: first[task.patch.name] for task in tasks if task.patch.name in first}
    return words


def with_refusals(batch: Batch, statuses: Sequence[PatchStatus]) -> tuple[PatchStatus, ...]:
    """Return the statuses, those of rejected patches replaced by "refused", as `plan` shows them.

    Patches that are up to date, run, or are refused already, are not audited. With more than `MOST_AUDITED` due
    patches, none is. If the audit itself raises an error, the statuses are returned unchanged, since `plan` reports the
    error.

    Raises:
        OSError: a mask was removed during the audit.
    """
    names = [one.patch for one in statuses if not one.is_made and one.state not in ("running", "refused")]
    if not 0 < len(names) <= MOST_AUDITED:
        return tuple(statuses)
    try:
        reasons = refusals(audits_of(batch.only(names)))
    except SplatbatchError:  # of invalid settings, which `plan` reports
        return tuple(statuses)
    return tuple(
        replace(one, state="refused", cause="audit", advice=reasons[one.patch], given_up=False)
        if one.patch in reasons
        else one
        for one in statuses
    )
