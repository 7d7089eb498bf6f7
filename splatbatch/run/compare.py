"""Attempts at a patch beside each other."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.tasks.attempt_table import AttemptRow, attempt_rows, ends_of
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import settings_of
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class AttemptComparison:
    """`compare PATCH --json`."""

    patch: str
    attempts: tuple[AttemptRow, ...]


def attempts_at(batch: Batch, task: Task) -> AttemptComparison:
    """Return the attempts at a task of a batch; what is changed is held against the YAML of today."""
    ends = ends_of(batch.output, task.name)
    return AttemptComparison(task.name, attempt_rows(batch.output.patch(task.name), ends, settings_of(task.recipe)))
