"""Two workers at one task, frozen after every file operation and thawed after a takeover: one acceptance each time."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from frozen_workers import TASK, Worker, frozen_after_operations, num_operations
from test_results import accept, attempt_with_splat

from splatbatch.files import read_json
from splatbatch.output import results
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.results import put_in_place, why_not_the_splat
from splatbatch.splats import check_splat


def fault_of(output: OutputFolder, workers: list[Worker]) -> str:
    """Say what is wrong once both are over; empty if one splat was accepted, and all files say so."""
    folder = output.patch(TASK)
    if errors := [f"{one.name}: {one.error!r}" for one in workers if one.error]:
        return "; ".join(errors)
    if (number := folder.newest_accepted()) != 1:
        return f"{number} acceptances"
    if sum(one.accepted is True for one in workers) != 1:
        return f"accepted by {[one.name for one in workers if one.accepted]}"
    result = folder.read_result()
    if result is None or why_not_the_splat(folder, result, "every byte"):
        return f"readers see {result and why_not_the_splat(folder, result, 'every byte')}"
    put_in_place(folder)
    made = read_json(folder.result) or {}
    num = next(one.num_gaussians for one in workers if one.accepted)
    wanted = {"accepted": 1, "attempt": result.attempt, "num_gaussians": num}
    if not made.items() >= wanted.items() or check_splat(folder.splat).num_gaussians != num:
        return f"result.json {made.get('attempt')}, splat.ply {check_splat(folder.splat)}"
    return ""


def num_gaussians_after_a_sleep(folder: PatchFolder, monkeypatch: pytest.MonkeyPatch) -> int:
    """Accept a splat of 3, and the next one, of 4, while the first sleeps; return which of them has its place."""
    late, newer = attempt_with_splat(folder, 3), attempt_with_splat(folder, 4)
    put_up = results.place_product

    def sleep(*arguments: Any) -> None:
        monkeypatch.setattr(results, "place_product", put_up)
        accept(folder, *newer, {})
        put_up(*arguments)

    monkeypatch.setattr(results, "place_product", sleep)
    accept(folder, *late, {})
    assert check_splat(folder.splat).num_gaussians == (read_json(folder.result) or {})["num_gaussians"]
    return check_splat(folder.splat).num_gaussians


@dataclass
class Count:
    """What came of all interleavings."""

    interleavings: int = 0
    in_vain: int = 0
    left_alone: int = 0
    """Workers that found nothing to do."""
    faults: list[str] = field(default_factory=list)

    def run(self, folder: Path, *, lags: bool, every: int = 1) -> None:
        """Freeze two workers after each of their operations, thaw them in both orders, and look at what is there."""
        with frozen_after_operations():
            num = num_operations(folder / "alone")
            moments = list(itertools.product(range(1, num + 1), range(1, num + 1), (False, True)))
            for first, second, is_reversed in random.Random(every).sample(moments, len(moments) // every):
                output = OutputFolder(folder / f"{first}-{second}-{is_reversed}")
                output.create()
                self._freeze(output, (first, second), is_reversed=is_reversed, lags=lags)
                shutil.rmtree(output.path)

    def _freeze(self, output: OutputFolder, moments: tuple[int, int], *, is_reversed: bool, lags: bool) -> None:
        one, other = Worker(output, "one", 5), Worker(output, "other", 6, lags=lags)
        one.go_on(moments[0])
        other.go_on(moments[1])  # takes over from one that is silent
        for thawed in (other, one) if is_reversed else (one, other):
            if not thawed.is_over:
                thawed.go_on()
        self.interleavings += 1
        self.in_vain += sum(worker.accepted is False for worker in (one, other))
        self.left_alone += sum(worker.accepted is None for worker in (one, other))
        if fault := fault_of(output, [one, other]):
            self.faults.append(f"{moments} {is_reversed}: {fault}")

    def __str__(self) -> str:
        return f"{self.interleavings} interleavings: {self.in_vain} trained in vain, {len(self.faults)} faults"


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
def test_of_two_frozen_after_each_operation_exactly_one_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty, every: int
) -> None:
    assert num_gaussians_after_a_sleep(PatchFolder(tmp_path / "asleep/patches/p0"), monkeypatch) == 4
    count = Count()
    count.run(tmp_path, lags=False, every=every)
    record_property("figure", str(count))
    assert count.faults == []
    assert count.interleavings >= 2 * 25**2 // every
    assert count.in_vain  # some did train in vain, or nothing was tried
    assert count.left_alone


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
def test_where_one_sees_late_what_the_other_did_exactly_one_is_accepted(
    tmp_path: Path, record_property: pytest.RecordProperty, every: int
) -> None:
    count = Count()
    count.run(tmp_path, lags=True, every=every)
    record_property("figure", str(count))
    assert count.faults == []
    assert count.interleavings >= 2 * 25**2 // every
    assert count.in_vain
