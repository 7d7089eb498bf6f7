"""Folders as they were left behind: by a batch that was killed in its middle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report

SAMPLES = Path(__file__).with_name("samples")


@pytest.fixture
def killed(tmp_path: Path) -> OutputFolder:
    """One patch trained, one failed and due again, one in the middle when the power went."""
    shutil.copytree(SAMPLES / "killed", tmp_path / "output")
    return OutputFolder(tmp_path / "output")


def test_a_batch_that_was_killed_is_reported_as_far_as_it_came(killed: OutputFolder) -> None:
    report = write_report(killed, [])
    states = {patch.patch: patch.state for patch in report.patches}
    assert states == {"p0": "trained", "p1": "failed", "p2": "running"}
    page = killed.report("html").read_text()
    for words in ("cuda_oom", "Then again after 0.1 s with training.images=host", "CUDA out of memory", "p2 …"):
        assert words in page


def test_what_report_json_says_of_a_folder_is_what_it_always_said(killed: OutputFolder) -> None:
    """Keys are only ever added, or retired by name."""
    write_report(killed, [])
    told = json.loads(killed.report("json").read_text().replace(str(killed.path), "OUTPUT"))
    known = json.loads((SAMPLES / "killed.report.json").read_text())
    assert as_known(told, known) == known


def as_known(told: Any, known: Any) -> Any:
    """Return of what is told now what was told then: keys that are new are left out, at every depth."""
    if isinstance(known, dict):
        return {key: as_known(told[key], known[key]) for key in known}
    if isinstance(known, list) and len(told) == len(known):
        return [as_known(one, other) for one, other in zip(told, known, strict=True)]
    return told


@pytest.mark.parametrize("pattern", ["**/*.json", "**/*.jsonl", "**/*.yaml", "**/attempt-01/*", "ledger/*"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_files_cut_or_gone_only_leave_gaps(killed: OutputFolder, pattern: str, share: float) -> None:
    for path in killed.path.glob(pattern):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)]) if share else path.unlink()
    assert {patch.patch for patch in write_report(killed, []).patches} == {"p0", "p1", "p2"}
