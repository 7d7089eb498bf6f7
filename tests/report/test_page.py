"""report.html: one file, nothing foreign in it, and everything one wants to see."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from drawn import drawn
from made_output import EVENING, NASTY, OOM, MadeOutput, night, pictures
from report_kinds import begun, green, written
from slowness import slowness

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report
from splatbatch.report.curves import MOST_POINTS, Chart, thin
from splatbatch.report.facts import Report, ReportedPatch, ReportedRun
from splatbatch.report.pictures import (
    ERROR_STOPS,
    FULL_ERROR,
    PictureBudget,
    attempt_folder,
    error_color,
    small_render,
    views_of,
)
from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.report.workers import ran_in_words
from splatbatch.text import moment


class Page(HTMLParser):
    """What stands in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> OutputFolder:
    output = night(tmp_path_factory.mktemp("night"))
    write_report(output, ["p9"])
    return output


@pytest.fixture(scope="module")
def text(output: OutputFolder) -> str:
    return output.report("html").read_text()


def test_nothing_in_the_page_comes_from_elsewhere_or_runs_but_our_script(text: str) -> None:
    page = Page(text)
    assert len(page.of("script")) == 1
    assert not {"iframe", "link", "object", "i", "base"} & {name for name, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    sources = [attributes["src"] or "" for attributes in page.of("img")]
    # photograph, render, error of the worst, median and best view of the trained ones, and one on the contact sheet
    assert len(sources) == 7 * (9 + 1)
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert all((attributes["href"] or "").startswith("#patch-") for attributes in page.of("a"))


def test_the_policy_allows_exactly_the_script_and_the_style_that_are_there(text: str) -> None:
    policy = next(meta["content"] for meta in Page(text).of("meta") if meta.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none';")
    for name in ("script", "style"):
        content = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}';" in policy


def test_a_report_of_nine_patches_is_small(output: OutputFolder) -> None:
    assert output.report("html").stat().st_size < 3_000_000


@pytest.mark.all
def test_so_is_one_with_pictures_of_all_nine_and_the_viewer(tmp_path: Path) -> None:
    assert green(tmp_path).page.stat().st_size + len(viewer_gz()) * 4 // 3 < 3_000_000


@pytest.mark.parametrize(
    "words",
    [
        "7 of 9 patches trained; failed: p8; refused: p9",
        "PSNR 6.2 dB under the median of the patches",
        "CUDA out of memory. Tried to allocate 2.10 GiB",
        "Then again after 10.0 s with training.images=host",
        "Then given up in this run, the next `train` tries it again: nan_loss twice at the same place",
        "p6 trained in between: the GPU is not to blame",
        "IMG_0031.JPG: 4000 x 3000, its camera says 3000 x 4000.",
        "hold-out PSNR, dB",
        "GPU temperature, °C",
        "torch 2.13",
        "p3: img7.jpg: &lt;i&gt;dark&lt;/i&gt;",
        "max_steps: 30000",
        "p5 ✕ GPU memory ran out",
        "waited 3.5 s until its GPU was ready: 900 MiB more GPU memory in use than before",
        'class="wait"',
        "p5 ↻2 ✓",
    ],
)
def test_the_page_tells(text: str, words: str) -> None:
    assert words in text


def test_the_same_facts_are_in_the_json(output: OutputFolder) -> None:
    report = json.loads(output.report("json").read_text())
    patches = {patch["patch"]: patch for patch in report["patches"]}
    assert report["schema"] == 1
    assert patches["p5"]["outliers"] == [
        "PSNR 6.2 dB under the median of the patches",
        "number of Gaussians 0.31 times the median of the patches",
        "training time 2 times the median of the patches",
    ]
    assert [one["outcome"] for one in patches["p5"]["attempts"]] == ["failed", "trained"]
    assert patches["p5"]["attempts"][0]["next"]["changes"] == {"training.images": "host"}
    assert patches["p8"]["attempts"][1]["next"]["decision"] == "gave_up"
    assert patches["p0"]["attempts"][0]["setup_s"] == 12.0
    assert patches[NASTY]["outliers"] == []
    assert "PSNR 6.2 dB under the median of the patches" in output.report("md").read_text()


def test_a_retry_that_differs_but_for_its_settings_says_in_what(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    made.attempt("p0", "GPU 0", 20, outcome="failed", diagnosis=None)
    made.tell(2.0, "retry", patch="p0", wait_s=0.0, ladder="", changes={}, how="with the GPU to itself")
    write_report(made.finish(), ["p0"])
    assert "Then again, with the GPU to itself" in made.output.report("html").read_text()


def test_every_evil_in_the_files_stays_text(tmp_path: Path) -> None:
    evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
    made = MadeOutput(tmp_path)
    made.output.create()
    diagnosis = {"cause": evil, "advice": evil, "evidence": [evil]}
    made.tell(1.0, "batch_started", slots=[evil], changes={evil: evil})
    facts = {"phase": evil, "step": evil, "seconds": evil, "gpu_peak_mib": evil, "changes": {evil: evil}}
    made.attempt("p0", evil, 20, outcome="failed", diagnosis=diagnosis)
    made.events[-1] |= facts
    made.tell(2.0, "retry", patch="p0", wait_s=evil, changes={evil: evil}, trained_in_between=[evil], how=evil)
    made.tell(3.0, "audit", verified=evil, refused={evil: evil}, warnings=[evil])
    write_report(made.finish(), [evil.replace("/", "")])
    page = Page(made.output.report("html").read_text())
    assert (len(page.of("script")), len(page.of("img"))) == (1, 0)


@pytest.mark.parametrize("value", [None, "x", [], {}, 5, True, 1e300, -1, [None], {"a": 1}])
def test_events_with_anything_in_them_can_be_reported(tmp_path: Path, value: object) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    keys = ["t", "slot", "slots", "attempt", "changes", "diagnosis", "outcome", "phase", "step", "seconds", "adopted"]
    keys += [
        "waited_s",
        "gpu_peak_mib",
        "warnings",
        "refused",
        "reason",
        "wait_s",
        "trained_in_between",
        "how",
        "verified",
    ]
    kinds = ["batch_started", "audit", "gate", "attempt_started", "attempt_ended", "retry", "gave_up", "refused"]
    for kind in kinds:
        made.events.append({"event": kind, "patch": "p0", **dict.fromkeys(keys, value)})
        made.events.append({"event": kind, "patch": "p0", **dict.fromkeys(keys, value), "attempt": 1, "t": 5.0})
    assert write_report(made.finish(), ["p0"]).schema == 1


@pytest.mark.parametrize("value", ["null", '"x"', "[]", "{}", "5", "true", "1e300", "NaN"])
def test_a_manifest_with_anything_in_it_can_be_reported(tmp_path: Path, value: str) -> None:
    output = OutputFolder(tmp_path)
    output.create()
    folder = output.patch("p0").new_attempt()
    output.patch("p0").splat.touch()
    keys = ("attempt", "step", "num_gaussians", "seconds", "changes", "warnings", "version", "metrics")
    output.patch("p0").result.write_text("{" + ", ".join(f'"{key}": {value}' for key in keys) + "}")
    for path in (folder.start, folder.exit, folder.job, folder.progress, folder.gpu_samples):
        path.write_text(value)
    assert write_report(output, []).patches[0].state in ("trained", "stopped", "running")


def test_the_psnr_of_evened_photographs_stands_beside_that_of_photographs_as_they_are(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    made.trained("p0", "GPU 0", 600, 26.3)
    path = made.output.patch("p0").result
    result = json.loads(path.read_text())
    result["metrics"]["final"]["psnr_even"] = 27.31
    path.write_text(json.dumps(result))
    report = write_report(made.finish(), [])
    assert [patch.psnr_even for patch in report.patches] == [27.31]
    page = made.output.report("html").read_text()
    assert ">evened</button>" in page and "PSNR 26.30 dB, 27.31 with corrected colours" in page
    assert "PSNR 27.31 dB in the evened space" in made.output.report("md").read_text()


def test_what_an_early_end_saved_is_said(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    made.trained("p0", "GPU 0", 600, 26.3)
    path = made.output.patch("p0").result
    result = json.loads(path.read_text())
    # a result of 0.2.0 has the gains of two halves, too, which are not read any more
    halves = {"chosen_by": {"gain_db": 0.2134}, "checked_by": {"gain_db": 0.1751}}
    result["metrics"]["early_stopping"] = {"max_steps": 30_000, "ended_at": 18_000, "saved_s": 200, **halves}
    path.write_text(json.dumps(result))
    (patch,) = write_report(made.finish(), []).patches
    (words,) = patch.ended_early
    assert words == "ended early, when it improved no more, after 18,000 of 30,000 steps and saved about 0:03:20"
    for kind in ("html", "md"):
        assert words[1:] in made.output.report(kind).read_text()


def test_without_tones_there_is_no_column_for_it(text: str) -> None:
    assert ">evened</button>" not in text


def test_the_page_says_from_when_to_when_the_latest_run_went(tmp_path: Path) -> None:
    made = begun(tmp_path)
    made.trained("p0", "GPU 0", 3000, 26.0)
    page = written(made).page.read_text()
    assert f", ran {moment(EVENING)[11:16]}-{moment(EVENING + 3009)[11:16]} on {moment(EVENING)[:10]}, " in page
    assert ", ran " in made.output.report("md").read_text()
    assert "running since" in ran_in_words(
        Report(runs=(ReportedRun(EVENING, None, (), {}, ""),), counts={"running": 1})
    )


def test_only_failed_patches_are_open_and_no_note_is_left_out(tmp_path: Path) -> None:
    made = begun(tmp_path)
    for number in range(6):
        made.attempt("p5", "GPU 0", 60, outcome="failed", phase="train", step=7, diagnosis=OOM) if number == 5 else None
        made.trained(f"p{number}", "GPU 0", 60 + 900 * (number == 5), 26.0)
    made.attempt("p6", "GPU 0", 60, outcome="failed", phase="train", step=7, diagnosis=OOM)
    path = made.output.patch("p5").result
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warnings": [f"note {number}" for number in range(5)]}))
    page = written(made).page.read_text()
    assert [one["id"] for one in Page(page).of("details") if "open" in one and one.get("id")] == ["patch-6"]
    table = page.partition('aria-label="Patches"')[2].partition("</table>")[0]
    assert "time " in table and all(f"note {number}" in table for number in range(5))


def test_a_batch_of_nothing_has_a_page(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    output.create()
    write_report(output, [])
    assert "0 of 0 patches trained" in output.report("html").read_text()


COSTS = """
import sys, time
from pathlib import Path
from made_output import MadeOutput
from splatbatch.report import write_report
made = MadeOutput(Path(sys.argv[1]))
made.output.create()
for index in range(15):
    made.trained(f"p{index}", "GPU 0", 600, 26 + index % 3)
output = made.finish()
write_report(output, [])  # what it imports is paid once, not per patch
started = time.process_time()
write_report(output, [])
print((time.process_time() - started) / 15)
"""


@pytest.mark.all
def test_a_page_of_many_patches_is_quickly_made(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command, before = (
        [sys.executable, "-c", COSTS, tmp_path],
        slowness(),
    )  # a process of its own: its lines are not counted
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(said.stdout) < 0.05 * max(before, slowness())  # s of CPU time per patch; 0.017 on two idle cores


def test_pictures_are_left_out_when_the_page_is_full(tmp_path: Path) -> None:
    output = night(tmp_path)
    patch = ReportedPatch("p0", "trained", attempt="attempt-01")
    folder = attempt_folder(output, patch)
    assert len(list(views_of(folder, PictureBudget(1 << 20)))) == 3
    assert [view.photo for view in views_of(folder, PictureBudget(1000))] == [""]
    assert attempt_folder(output, replace(patch, attempt="../x")) is None


def test_pictures_that_are_none_are_left_out(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    folder = made.output.patch("p0").new_attempt()
    pictures(folder, 20.0)
    folder.picture("worst", "render").write_bytes(b"<svg onload=alert(1)>")
    folder.picture("best", "photo").unlink()
    assert len(list(views_of(folder, PictureBudget(1 << 20)))) == 1


def test_a_curve_is_thinned_but_keeps_its_peaks() -> None:
    points = [(float(i), 1.0 if i != 777 else 99.0) for i in range(5000)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS
    assert (777.0, 99.0) in kept
    assert [x for x, _ in kept] == sorted({x for x, _ in kept})


@pytest.mark.parametrize("at", [1, 2, 4997, 4998])
def test_a_thinned_curve_keeps_a_peak_beside_its_ends(at: int) -> None:
    points = [(float(i), 99.0 if i == at else float(i % 2)) for i in range(5000)]
    kept = thin(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert points[at] in kept


def test_a_constant_curve_has_a_middle() -> None:
    page = drawn("drawings", "chart", Chart("x", "", "step", ((1, ((0.0, 5.0), (10.0, 5.0))),)))
    assert 'points="0,50.00 10,50.00"' in page


def test_text_is_escaped_and_tags_are_not() -> None:
    page = drawn("macros", "picture", '"<', 'a<b"', {"width": None, "height": 3})
    assert page.strip() == '<img src="&#34;&lt;" alt="a&lt;b&#34;" loading="lazy" height="3">'


def test_error_maps_are_explained_in_the_colours_in_which_the_training_draws_them() -> None:
    from splatbatch.training.evaluation import pictures as drawn

    assert drawn.FULL_ERROR == FULL_ERROR and drawn.RAMP.tolist() == [list(stop) for stop in ERROR_STOPS]
    assert (error_color(0), error_color(1), error_color(0.5)) == ("#000004", "#fcffa4", "#bc3754")


def test_the_picture_of_a_patch_is_small_and_made_of_what_its_attempt_left(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    folder = made.output.patch("p0").new_attempt()
    pictures(folder, 20.0)
    source = small_render(folder, PictureBudget(1 << 20))
    assert source.startswith("data:image/jpeg;base64,") and len(source) < 16_000
    assert small_render(folder, PictureBudget(100)) == ""
    folder.picture("median", "render").write_bytes(b"\xff\xd8 cut")
    assert small_render(folder, PictureBudget(1 << 20)) == ""


@pytest.mark.journey
def test_once_loaded_a_report_compiles_and_imports_nothing_of_size(tmp_path: Path) -> None:
    """The last patch of a night waits for the report: what it needs is loaded while patches train."""
    output = night(tmp_path)
    program = (
        "import sys; from pathlib import Path; from splatbatch.output.layout import OutputFolder\n"
        "from splatbatch.report import load, write_report; import jinja2.environment\n"
        "load(); before = set(sys.modules); jinja2.environment.Environment.compile = None\n"
        f"write_report(OutputFolder(Path({str(output.path)!r})), ['p9'])\n"
        "print({name.partition('.')[0] for name in set(sys.modules) - before} & {'PIL', 'jinja2'})"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
