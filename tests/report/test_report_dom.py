"""The report's DOM stays what it was: of a folder as it was left behind, of refused patches, of a merged scene."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from dom import compare_dom
from report_kinds import KINDS

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report
from splatbatch.report.viewer import viewer

SAMPLES = Path(__file__).with_name("samples")


@pytest.fixture(autouse=True)
def in_utc_without_a_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "viewer_script", lambda: "")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_the_page_of_a_batch_that_was_killed_has_the_recorded_dom(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "killed", tmp_path / "output")
    output = OutputFolder(tmp_path / "output")
    write_report(output, [])
    compare_dom(output.report("html").read_text(), SAMPLES / "killed.dom", tmp_path)


@pytest.mark.parametrize("kind", ["refused", "scene"])
def test_the_page_of_a_made_up_folder_has_the_recorded_dom(tmp_path: Path, kind: str) -> None:
    page = KINDS[kind](tmp_path).page
    compare_dom(page.read_text(), SAMPLES / f"{kind}.dom", tmp_path)
