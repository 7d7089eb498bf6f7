"""Whatever is flipped or cut in an output folder: no command breaks, and no broken splat is called trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tampering import SceneTampering, Tampering

SEED = 11
NUMBERS = [pytest.param(25, marks=pytest.mark.all), pytest.param(1000, marks=pytest.mark.long)]


@pytest.mark.parametrize("number", NUMBERS)
def test_tampered_files_break_no_command_and_no_broken_splat_is_called_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_PROGRAM", "")  # put back what the engine sets
    found = Tampering(tmp_path, SEED).run(number)
    record_property("figure", found.in_words())
    assert found.faults == [], found.in_words()
    assert sum(found.kinds.values()) == number


@pytest.mark.parametrize("number", [pytest.param(5, marks=pytest.mark.all), NUMBERS[1]])  # 5 s of CPU each
def test_a_spoiled_scene_is_told_mended_or_refused_and_never_passed_on_as_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_PROGRAM", "")
    found = SceneTampering(tmp_path, SEED).run(number)
    record_property("figure", found.in_words())
    assert found.faults == [], found.in_words()
