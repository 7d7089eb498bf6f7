"""A sweep in the report: means that may be compared, the best of each column, figures against settings."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from drawn import drawn
from made_output import MadeOutput

from splatbatch.config import Recipe, Variant
from splatbatch.files import read_json
from splatbatch.output.records.result import Result
from splatbatch.report import to_markdown, write_report
from splatbatch.report.comparison import HEADINGS, compare, is_best, setting_charts, spelt
from splatbatch.report.facts import ReportedPatch, SweepFacts
from splatbatch.report.outliers import outliers
from splatbatch.report.todo import verdict
from splatbatch.report.units import photographs
from splatbatch.tasks.status import PatchStatus, State

CAP = "training.cap_max"
STRATEGY = "training.strategy"


def variant(name: str, **settings: Any) -> Variant:
    return Variant(name, settings, {CAP: settings.get("cap", 9), STRATEGY: settings.get("strategy", "mcmc")}, Recipe())


VARIANTS = [variant("a", cap=5), variant("b", cap=7), variant("c", cap=5, strategy="default")]


def unit(patch: str, name: str, psnr: float | None, **more: Any) -> ReportedPatch:
    figures = {"psnr": psnr, "ssim": 0.9, "num_gaussians": 10, "bytes": 1 << 20, "seconds": 60.0}
    state: State = "trained" if psnr is not None else "failed"
    return ReportedPatch(f"{patch}@{name}", state, of_patch=patch, variant=name, **{**figures, **more})


def made(*psnrs: tuple[float | None, float | None, float | None], **more: Any) -> SweepFacts:
    """Return a comparison of p0, p1, … under a, b, c."""
    pairs = [(f"p{i}", name, value) for i, row in enumerate(psnrs) for name, value in zip("abc", row, strict=True)]
    found = compare([unit(*pair, **more) for pair in pairs], VARIANTS)
    assert found is not None
    return found


def test_a_variant_without_a_name_of_its_own_is_called_by_its_values(output: MadeOutput) -> None:
    made = [variant("base", cap=5), variant("strategy-default_0a4bde", cap=5, strategy="default"), VARIANTS[1]]
    report = write_report(output.output, [], made)
    assert report.sweep and [row.label for row in report.sweep.variants] == ["5, mcmc", "5, default", "b"]
    assert "splats trained: 2 patches x 3 settings" in verdict(report)
    assert "| 5, mcmc |" in to_markdown(report) and "<td>5, default</td>" in output.output.report("html").read_text()


def test_without_a_sweep_nothing_is_compared() -> None:
    assert compare([unit("p0", "", 30)], []) is None


def test_means_are_over_patches_and_the_best_is_named() -> None:
    found = made((30, 31, 29), (26, 29, 24))
    assert [row.mean.psnr for row in found.variants] == [28, 30, 26.5]
    assert found.best["psnr"] == "b"
    assert found.best_of_patch == {"p0": "b", "p1": "b"}


def test_what_is_alike_has_no_best() -> None:
    assert made((30, 30, 30)).best["psnr"] is None
    assert made((30, 30, 30)).best_of_patch == {"p0": None}


def test_of_two_that_read_alike_both_are_marked_as_the_best() -> None:
    found = made((30.001, 30.004, 29))
    assert [is_best(found, row, "psnr") for row in found.variants] == [True, True, False]


def test_a_mean_over_fewer_patches_is_not_compared() -> None:
    found = made((30, 31, 40), (26, 29, None))
    assert [row.is_comparable for row in found.variants] == [True, True, False]
    assert (found.best["psnr"], found.best_of_patch["p0"]) == ("b", "c")


def test_a_patch_that_fails_everywhere_leaves_the_others_comparable() -> None:
    found = made((30, 31, 29), (None, None, None))
    assert [(row.trained, row.of, row.is_comparable) for row in found.variants] == [(1, 2, True)] * 3


def test_more_quality_and_less_of_anything_else_is_better() -> None:
    rows = [unit("p0", name, 30 - i, seconds=60.0 - i, bytes=100 - i) for i, name in enumerate("abc")]
    found = compare(rows, VARIANTS)
    assert found is not None
    assert [found.best[key] for key in ("psnr", "seconds", "bytes")] == ["a", "c", "c"]


def test_a_figure_that_one_patch_lacks_has_no_mean() -> None:
    rows = [unit("p0", "a", 30, ssim=None), unit("p1", "a", 30)]
    found = compare(rows, VARIANTS[:1])
    assert found is not None
    assert found.variants[0].mean.ssim is None
    assert found.variants[0].mean.psnr == 30


def test_variants_that_were_taken_out_and_units_not_begun_do_no_harm() -> None:
    found = compare([unit("p0", "a", 30), unit("p0", "old", 50)], VARIANTS)
    assert found is not None
    assert [row.patches["p0"].state for row in found.variants] == ["trained", "waiting", "waiting"]


def test_charts_draw_a_line_per_combination_of_the_other_settings() -> None:
    charts = dict(setting_charts(made((30, 31, 29))))
    assert list(charts) == [CAP, STRATEGY]
    drawing = drawn("drawings", "against", charts[CAP][0])
    assert drawing.count("<polyline") == 2
    assert drawing.count("<circle") == 3
    assert f"{STRATEGY}=default" in drawing


def test_values_stand_in_order_and_heights_in_proportion() -> None:
    drawing = drawn("drawings", "against", dict(setting_charts(made((30, 32, 28))))[CAP][0])
    assert re.findall(r'class="tick x"[^>]*>([^<]*)<', drawing) == ["5", "7"]
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawing)]
    assert heights[0] - heights[1] == pytest.approx(heights[2] - heights[0], abs=0.2)


def test_only_variants_of_the_same_variant_are_outliers_to_each_other() -> None:
    low = [PatchStatus(f"p{i}@low", "trained", psnr=20 + i / 10, num_gaussians=10, seconds=1) for i in range(4)]
    high = [PatchStatus(f"p{i}@high", "trained", psnr=30 + i / 10, num_gaussians=10, seconds=1) for i in range(8)]
    assert not any(outliers([*low, *high]).values())
    odd = PatchStatus("p9@high", "trained", psnr=22, num_gaussians=10, seconds=1)
    assert outliers([*low, *high, odd])["p9@high"]


@pytest.fixture
def output(tmp_path: Path) -> MadeOutput:
    """Two patches under two variants, and what the trainer says of the photographs."""
    made = MadeOutput(tmp_path)
    made.output.create()
    for patch in ("p0", "p1"):
        made.trained(f"{patch}@a", "GPU 0", 60, 28.0)
        made.trained(f"{patch}@b", "GPU 0", 90, 30.0, changes={"training.seed": 1})
    made.finish()
    for path in tmp_path.glob("patches/*/result.json"):
        result = read_json(path) or {}
        result["metrics"]["resolution"] = {"used": "1/8", "folder": "images_8", "shrunk_by": 1, "largest": [618, 411]}
        path.write_text(json.dumps({**result, "bytes": 3 << 20}))
    return made


def test_the_same_comparison_stands_in_all_three_reports(output: MadeOutput) -> None:
    report = write_report(output.output, [], [variant("a", cap=5), variant("b", cap=7)])
    assert report.sweep and report.sweep.best == {
        "psnr_covered": None,
        "psnr": "b",
        "ssim": "b",
        "num_gaussians": None,
        "bytes": None,
        "seconds": "a",
    }
    assert report.schema == 1
    text, page = to_markdown(report), output.output.report("html").read_text()
    assert "| b | 7 | mcmc | 2 of 2 | **30.00** | **0.938** | 998,000 | 3.0 | 1:30 min |" in text
    for words in ("Comparison", "the best of this column", "p0 under b, p1 under b", "1/8, 618x411, images_8"):
        assert words in page
    assert (report.patches[0].of_patch, report.patches[0].variant) == ("p0", "a")


def test_a_page_with_a_comparison_has_no_style_of_its_own(output: MadeOutput) -> None:
    write_report(output.output, [], [variant('<b>"x', cap=5), variant("b", cap=7)])
    page = output.output.report("html").read_text()
    assert " style=" not in page
    assert '<b>"x' not in page


@pytest.mark.parametrize("said", [None, "x", {"used": 3, "largest": "x"}, {"largest": [1]}, {"largest": [None, 2]}])
def test_a_resolution_of_any_kind_is_read_without_trust(output: MadeOutput, said: Any) -> None:
    folder = output.output.patch("p0@a")
    folder.result.write_text(json.dumps({"metrics": {"resolution": said}}))
    assert isinstance(photographs((folder.read_result() or Result()).metrics.resolution), str)


@pytest.mark.parametrize(
    ("value", "words"),
    [(1e-4, "0.0001"), (True, "true"), (None, ""), ((1, 2), "[1, 2]"), ("1/2", "1/2"), (Path("/a"), "/a")],
)
def test_values_are_written_as_in_the_yaml(value: Any, words: str) -> None:
    assert spelt(value) == words


def test_every_figure_that_is_compared_is_in_the_status_of_a_patch(output: MadeOutput) -> None:
    report = write_report(output.output, [])
    assert set(HEADINGS) <= {one.name for one in fields(report.patches[0])}
    assert report.sweep is None
