"""Stages as tasks of a batch: what is said of them, and on which device they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from made_stages import batch_in
from rich.console import Console

from splatbatch.monitor.console import in_words
from splatbatch.monitor.table import status_view
from splatbatch.output.events import BatchStarted
from splatbatch.report.build import build
from splatbatch.report.markdown import to_markdown
from splatbatch.scene.patches import Patch
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.status import PatchStatus, read_status, summary
from splatbatch.tasks.task import tasks_of


def statuses_of(batch: Batch) -> tuple[PatchStatus, ...]:
    return read_status(batch.output, batch.names, standing=batch.standing())


def shown(statuses: tuple[PatchStatus, ...]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(status_view(statuses, 120))
    return captured.get()


def test_stages_are_done_and_nothing_says_that_they_are_trained(tmp_path: Path) -> None:
    batch = batch_in(tmp_path, "features-1", "pairs")
    found = statuses_of(batch)
    report = build(batch.output, batch.names, standing=batch.standing())
    said = summary(found) + shown(found) + to_markdown(report)
    assert "2 of 5 stages done" in said and "| pairs | done |" in said and "trained" not in said


def test_what_begins_is_counted_in_stages(tmp_path: Path) -> None:
    batch = batch_in(tmp_path)
    event = BatchStarted(tuple(batch.names), ("cpu0",), {}, batch.noun)
    assert in_words(event) == "5 stages to make on cpu0" == in_words(BatchStarted.from_record(event.to_record()))


def test_patches_that_are_called_like_stages_are_patches(tmp_path: Path) -> None:
    batch = batch_in(tmp_path)
    patches = tasks_of(batch.config, [Patch(name, tmp_path, tmp_path) for name in batch.names])
    batch = replace(batch, tasks=patches, every=patches)
    assert summary(statuses_of(batch)).startswith("0 of 5 patches trained") and batch.noun == "patch"
