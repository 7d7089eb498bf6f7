"""What the report shows of the colours of photographs: words, and thumbnails of those that differ most."""

from __future__ import annotations

import base64
import io
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browser import artifacts_folder, browser
from command_line import invoke
from fake_batch import FakeBatch
from PIL import Image

from splatbatch.output.layout import OutputFolder
from splatbatch.report import write_report
from splatbatch.report.facts import OutlierPhotograph
from splatbatch.report.pictures import PictureBudget
from splatbatch.report.strip import color_strip
from splatbatch.tasks.batch import open_batch

NAMES = [f"img{i}.png" for i in range(9)]
GAINS = {name: round(1.1**number / 1.1**4, 4) for number, name in enumerate(NAMES)}
EVIL = '"><script>alert(1)</script>.png'


@pytest.fixture
def batch_of(batch: FakeBatch) -> FakeBatch:
    """Two patches, nothing trained, and nine grey photographs that are as bright as GAINS says."""
    batch.make("p0", "p1")
    for name, gain in GAINS.items():
        Image.new("RGB", (640, 480), (round(100 * gain),) * 3).save(batch.folder / "images" / name)
    return batch


def tell(batch: FakeBatch, tones: dict[str, list[float]], **facts: Any) -> None:
    solved = {"tones": tones, "residual_before": 20.0, "residual_after": 5.0, "is_even": True, **facts}
    batch.output.mkdir(exist_ok=True)
    (batch.output / "colors.json").write_text(json.dumps({"together": solved, "scenes": {}}))


def three(gain: float) -> list[float]:
    return [gain] * 3


def page(batch: FakeBatch) -> str:
    assert invoke("report", batch=batch).code in (0, 1)
    return OutputFolder(batch.output).report("html").read_text()


def pictures(text: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def test_each_that_differs_is_shown_as_it_is_and_evened_the_farthest_first(batch_of: FakeBatch) -> None:
    tell(batch_of, {name: three(gain) for name, gain in GAINS.items()})
    text = page(batch_of)
    shown = pictures(text)
    assert len(shown) == 2 * 8  # img4 is as bright as the mean
    assert [round(one.mean()) for one in shown[1::2]] == pytest.approx([100] * 8, abs=1)
    assert {round(one.mean()) for one in shown[:4:2]} == {
        round(100 * GAINS["img8.png"]),
        round(100 * GAINS["img0.png"]),
    }
    assert max(shown[0].shape) <= 176
    assert "1.46x brighter than the mean" in text and "1.46x darker than the mean" in text


def test_outliers_come_first_and_in_the_words_of_train(batch_of: FakeBatch) -> None:
    outlier = {"name": "img5.png", "times": 1.25, "gain": three(1.1)}
    tell(batch_of, {name: three(gain) for name, gain in GAINS.items()}, outliers=[outlier])
    text = page(batch_of)
    assert round(pictures(text)[0].mean()) == 110
    assert "1.25x brighter than its neighbours" in text
    assert "img5.png is 1.25x brighter than its neighbours" in (batch_of.output / "report.md").read_text()


def test_no_more_than_24_are_shown(batch_of: FakeBatch) -> None:
    many = {f"{number:03d}.png": three(1.2 + number / 100) for number in range(90)}
    for name in many:
        Image.new("RGB", (64, 48), (120, 110, 100)).save(batch_of.folder / "images" / name)
    tell(batch_of, many)
    text = page(batch_of)
    assert len(pictures(text)) == 48
    assert 'alt="089.png as it is"' in text


def missing(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def floats(path: Path) -> None:
    Image.fromarray(np.full((48, 64), 0.5, np.float32)).save(path, "TIFF")


@pytest.mark.parametrize("spoil", [missing, cut, folder, floats])
def test_a_photograph_that_cannot_be_read_is_skipped(batch_of: FakeBatch, spoil: Any) -> None:
    tell(batch_of, {name: three(GAINS[name]) for name in ("img0.png", "img8.png")})
    spoil(batch_of.folder / "images/img0.png")
    text = page(batch_of)
    assert len(pictures(text)) == 2
    assert "1 more photograph could not be pictured here" in text


def test_hostile_names_stay_text_and_lead_nowhere(batch_of: FakeBatch) -> None:
    Image.new("RGB", (64, 48)).save(batch_of.folder / "outside.png")
    tell(
        batch_of, {name: three(1.5) for name in (EVIL, "../outside.png", str(batch_of.folder / "outside.png"), "a\0b")}
    )
    text = page(batch_of)
    assert pictures(text) == [] and EVIL not in text
    assert "4 more photographs could not be pictured" in text


def test_without_what_says_where_they_lie_words_are_left(batch_of: FakeBatch) -> None:
    tell(batch_of, {name: three(gain) for name, gain in GAINS.items()})
    write_report(OutputFolder(batch_of.output), ["p0"])
    text = OutputFolder(batch_of.output).report("html").read_text()
    assert pictures(text) == []
    assert "photographs differ in colour by 20.0 %, by 5.0 % once corrected" in text


def test_photographs_that_are_alike_need_no_pictures(batch_of: FakeBatch) -> None:
    tell(batch_of, {name: three(1.01) for name in NAMES}, is_even=False)
    text = page(batch_of)
    assert pictures(text) == [] and "no correction is needed" in text


def test_a_batch_without_colors_has_no_such_section(batch_of: FakeBatch) -> None:
    assert "<h2>Colours</h2>" not in page(batch_of)


def test_scenes_and_sweeps_have_a_strip_of_each_scene(batch_of: FakeBatch) -> None:
    batch_of.change(sweep={"matrix": {"training.seed": [1, 2]}})
    solved = {"tones": {"img8.png": three(1.46)}, "residual_before": 20.0, "residual_after": 5.0}
    batch_of.output.mkdir(exist_ok=True)
    scenes = {"p0": solved, "p1": {"problem": "the model has no tracks"}}
    (batch_of.output / "colors.json").write_text(json.dumps({"together": {}, "scenes": scenes}))
    report = write_report(OutputFolder(batch_of.output), [], standing=open_batch(batch_of.config).standing())
    assert [(one.scene, len(one.photographs)) for one in report.colors] == [("p0", 1), ("p1", 0)]
    text = OutputFolder(batch_of.output).report("html").read_text()
    assert len(pictures(text)) == 2 and "<h3>p0</h3>" in text
    assert "photographs are not corrected: the model has no tracks" in text


def test_where_one_folder_has_a_damaged_photograph_another_is_asked(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    (tmp_path / "first/a.png").write_bytes(b"no picture")
    Image.new("RGB", (64, 48)).save(tmp_path / "second/a.png")
    scene: Any = SimpleNamespace(photographs=[OutlierPhotograph("a.png", (1.0,) * 3, (1.0,) * 3, "")])
    folders = [tmp_path / "first", tmp_path / "second"]
    ((photo, urls, size),) = color_strip(scene, folders, PictureBudget(1 << 20), time.monotonic() + 10)
    assert photo.name == "a.png" and len(urls) == 2 and size == {"width": 64, "height": 48}


@pytest.mark.all
def test_a_report_of_large_photographs_takes_seconds_and_little_room(batch_of: FakeBatch) -> None:
    import time

    random = np.random.default_rng(0)
    small = Image.fromarray(random.integers(0, 255, (300, 400, 3), dtype=np.uint8))
    small.resize((5472, 3648)).save(batch_of.folder / "images/large.jpg", quality=90)
    names = {f"{number:02d}.jpg": three(1.3) for number in range(24)}
    for name in names:
        (batch_of.folder / "images" / name).symlink_to("large.jpg")
    tell(batch_of, names)
    standing, output = open_batch(batch_of.config).standing(), OutputFolder(batch_of.output)
    started = time.process_time()
    write_report(output, [], standing=standing)
    assert time.process_time() - started < 6
    assert len(pictures(output.report("html").read_text())) >= 20  # on a machine that does nothing else, all 48
    assert output.report("html").stat().st_size < 1_500_000


@pytest.mark.long
def test_the_strip_in_a_browser(batch_of: FakeBatch, tmp_path: Path) -> None:
    tell(batch_of, {name: three(gain) for name, gain in GAINS.items()})
    page(batch_of)
    with browser() as chromium:
        seen = chromium.new_page(viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        seen.on("console", lambda said: said.type in ("error", "warning") and errors.append(said.text))
        seen.goto((batch_of.output / "report.html").as_uri())
        seen.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
        seen.locator(".strip").scroll_into_view_if_needed()
        seen.screenshot(path=artifacts_folder(tmp_path) / "strip.png", full_page=True)
        widths = seen.evaluate("[...document.querySelectorAll('.strip img')].map(image => image.naturalWidth)")
    assert (errors, len(widths), min(widths)) == ([], 16, 176)
