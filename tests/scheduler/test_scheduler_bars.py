"""What the parent itself may cost, in CPU seconds of its own; scripts/bench_batch measures the same at full size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_batch import ROOT
from slowness import slowness

from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page import MOST_PATCHES, most_telling
from splatbatch.tasks.status import most_interesting, read_status

sys.path.append(str(ROOT / "scripts"))

from batch_bench import external, scheduler

MANY = 300
PARTS = ("plan_cpu_ms", "run_cpu_ms", "report_cpu_ms")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, float], dict[str, float], float]:
    """Return what one patch and many patches cost, and how slow the machine was."""
    folder, before = tmp_path_factory.mktemp("bars"), slowness()
    one, many = (scheduler.measure_in_its_own_process(number, folder) for number in (1, MANY))
    return one, many, max(before, slowness())


@pytest.mark.all
def test_a_patch_costs_the_parent_a_few_milliseconds(figures: tuple[dict[str, float], dict[str, float], float]) -> None:
    one, many, slower = figures
    beyond_the_first = (MANY * sum(many[part] for part in PARTS) - sum(one[part] for part in PARTS)) / (MANY - 1)
    assert beyond_the_first <= 20 * slower, "about 10 on a quiet machine"


@pytest.mark.all
def test_a_patch_costs_the_parent_a_few_kibibytes(figures: tuple[dict[str, float], dict[str, float], float]) -> None:
    one, many, _ = figures
    assert many["mib"] - one["mib"] <= 6


@pytest.mark.all
def test_the_status_is_there_at_once(figures: tuple[dict[str, float], dict[str, float], float]) -> None:
    assert figures[1]["status_cpu_s"] <= 1.6 * figures[2], "about 0.8 on a quiet machine"


@pytest.mark.all
def test_a_bench_finds_packages_that_only_pythonpath_names(tmp_path: Path) -> None:
    """As on a machine whose own Python has PyTorch alone; what goes wrong in its process is shown."""
    python, path = sys._base_executable, os.pathsep.join([str(ROOT), str(ROOT / "scripts"), *sys.path])
    code = f"from batch_bench import scheduler; scheduler.measure_in_its_own_process(1, {str(tmp_path)!r})"
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_figures_of_a_trained_patch_are_read_only_where_they_are_wanted(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    for name in ("p0", "p1"):
        output.patch(name).path.mkdir(parents=True)
        write_json(output.patch(name).result, {"metrics": {"final": {"psnr": 20.0}}})
        output.patch(name).splat.touch()
    found = read_status(output, ["p0", "p1", "p2"], in_full=2)
    assert [(one.state, one.psnr) for one in found] == [("trained", 20.0), ("trained", None), ("waiting", None)]
    assert [one.patch for one in most_interesting(found, 1)] == ["p2"]


def test_the_page_of_a_great_many_patches_shows_what_went_wrong_and_the_poorest() -> None:
    patches = [ReportedPatch(f"p{i}", "trained", psnr=30 - i / 1e3) for i in range(2000)]
    patches[7] = ReportedPatch("p7", "failed")
    shown = [patch.patch for patch in most_telling(patches)]
    assert (len(shown), shown[0], shown[1], shown[-1]) == (MOST_PATCHES, "p7", "p1501", "p1999")


@pytest.mark.all
def test_a_program_that_takes_no_time_costs_parent_and_supervisor_a_few_empty_interpreters(tmp_path: Path) -> None:
    """40 ms, its own `cp` included, where an interpreter takes 12; it was 185 before supervisors were forked."""
    empty_ms = 1e3 * min(scheduler.cpu_s_of([sys.executable, "-c", ""]) for _ in range(5))
    assert external.cpu_ms_per_patch(tmp_path, 11, 2) < 7 * empty_ms
