"""A disk that is full for a while costs no night: nothing is lost, nothing is given up, all is trained."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from full_disk import FullDisk, planned, spend

SEED, NIGHTS, AT_ONCE = 20261127, 20, 5

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


@needs_root
@pytest.mark.all
def test_a_disk_that_is_full_while_two_slots_write_gives_no_patch_up(tmp_path: Path) -> None:
    assert spend(FullDisk(0, after_s=2.0, for_s=4.0), tmp_path / "night") == []


@needs_root
@pytest.mark.long
def test_twenty_nights_on_a_disk_that_fills_up_lose_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    nights = [planned(number, SEED) for number in range(NIGHTS)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda night: spend(night, tmp_path / str(night.number)), nights)
        wrong = {night: lost for night, lost in zip(nights, found, strict=True) if lost}
    record_property("figure", f"{NIGHTS - len(wrong)} of {NIGHTS} nights (seed {SEED}): nothing lost, nothing given up")
    assert wrong == {}
