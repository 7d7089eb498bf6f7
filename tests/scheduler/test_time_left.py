"""The remaining time of a worker, and which of two tasks of the same length in steps fits into it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from fake_batch import FakeBatch

from splatbatch.scheduler.work import time_left
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.tasks.batch import Batch, open_batch


def test_a_task_fits_by_its_own_forecast_and_not_by_that_of_another_with_as_many_steps(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0", "p1")

    def forecast(_: Batch, names: Sequence[str], *__: object) -> SimpleNamespace:
        return SimpleNamespace(seconds={"p0": 60.0, "p1": 7200.0}[names[0]])

    monkeypatch.setattr(time_left, "forecast", forecast)
    opened = open_batch(batch.config)
    left = TimeLeft.of(opened, for_s=3600.0)
    assert [left.holds(task) for task in opened.every] == [True, False]
