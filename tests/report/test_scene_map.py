"""The map of a scene in the report: patches, seams and cameras from above, in colours, signs and words."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cut_quarry import lay_out
from drawn import drawn
from made_output import NASTY

from splatbatch.files import read_json, write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import PhotoMeasurement, SceneEvaluation, SceneMeasurement, SeamMeasurement
from splatbatch.output.records.record import in_json
from splatbatch.output.records.result import UsedPhotographs
from splatbatch.report import write_report
from splatbatch.report.facts import CameraPosition, CoreBox, ReportedPatch, ReportedSeam, SceneMap
from splatbatch.report.maps import draw_map
from splatbatch.report.scene import grade, why_it_steps
from splatbatch.scene.partition.record import Partition
from splatbatch.tasks.batch import open_batch

Line = tuple[tuple[float, float], tuple[float, float]]
STATES = ("trained", "trained", "failed", "stale", "waiting", "refused")


def town(columns: int = 3, rows: int = 2) -> SceneMap:
    """Return what the report knows of a scene of patches on a grid, whose seams are of all kinds."""
    corners = [(10.0 * column, 10.0 * row) for row in range(rows) for column in range(columns)]
    cores = tuple(CoreBox(f"p{index}", (x, y), (x + 10, y + 10)) for index, (x, y) in enumerate(corners))
    kinds = [(0.3, 0.002), (1.5, 0.004), (0.4, -0.05), (None, None)]
    seams = []
    for index in range(1, columns):
        color, depth = kinds[(index - 1) % len(kinds)]
        seams.append(_seam(f"p{index - 1}", f"p{index}", ((10.0 * index, 0.0), (10.0 * index, 10.0)), color, depth))
    for index in range(columns):
        color, depth = kinds[(index + 2) % len(kinds)]
        line = ((10.0 * index, 10.0), (10.0 * index + 10, 10.0))
        seams.append(_seam(f"p{index}", f"p{index + columns}", line, color, depth))
    cameras = [CameraPosition((0.5 + 0.7 * step, 3 + 2 * (step % 7))) for step in range(40)]
    cameras += [CameraPosition((3.0 + 5 * step, 8.0), f"left/{step}.jpg", 22.0 + step) for step in range(5)]
    return SceneMap(cores, tuple(cameras), tuple(seams))


def _seam(one: str, other: str, line: Line, color: float | None, depth: float | None) -> ReportedSeam:
    problem = "" if color is not None else "no photograph looks across"
    known = ReportedSeam(one, other, color_offset=color, depth_step=depth, problem=problem, line=line)
    return replace(known, grade=grade(known))


def patches() -> list[ReportedPatch]:
    return [
        ReportedPatch(f"p{index}", state, psnr=22.0 + index if state in ("trained", "stale") else None)
        for index, state in enumerate(STATES)
    ]


def map_of(scene: SceneMap, links: Mapping[str, str] = {}) -> str:
    return drawn("drawings", "map", draw_map(scene, patches(), links))


class Drawing(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, name: str, kind: str = "") -> list[dict[str, str | None]]:
        return [found for tag, found in self.tags if tag == name and kind in (found.get("class") or "").split()]


def test_a_patch_is_a_link_with_its_state_in_colour_sign_and_words() -> None:
    text = map_of(town(), {f"p{index}": f"patch-{index}" for index in range(5)})
    drawing = Drawing(text)
    links = [found for tag, found in drawing.tags if tag == "a"]
    assert [link["href"] for link in links] == [f"#patch-{index}" for index in range(5)]
    assert [link["class"] for link in links] == [f"patch {state}" for state in STATES[:5]]
    assert links[0]["aria-label"] == "p0: trained, 22.00 dB"
    assert drawing.of("g", "refused")[0]["aria-label"] == "p5: refused"  # the page has no section of it
    for sign in ("✓ p0", "✕ p2", "↻ p3", "· p4", "22.00 dB"):
        assert sign in text
    opacities = [float(rect["fill-opacity"] or 0) for rect in drawing.of("rect", "core")]
    assert opacities[0] < opacities[1] < opacities[3] and opacities[2] == min(opacities)


def test_a_seam_is_drawn_by_its_step_and_says_it() -> None:
    drawing = Drawing(text := map_of(town()))
    kinds = {kind: len(drawing.of("line", kind)) for kind in ("even", "slight", "step", "unknown")}
    assert kinds == {"even": 3, "slight": 2, "step": 2, "unknown": 2}  # each with a sample in the legend
    for words in ("p0|p1: even, 0.3/255, 0.2 % of depth", "p1|p2: slight, 1.5/255", "no photograph looks across"):
        assert words in text


def test_cameras_are_dots_and_held_out_ones_rings_that_say_what_they_show() -> None:
    drawing = Drawing(text := map_of(town()))
    assert len(drawing.of("circle", "test")) == 5
    assert text.count("h0") == 40 and "left/0.jpg, held out: PSNR 22.00 dB" in text
    radii = [float(ring["r"] or 0) for ring in drawing.of("circle", "test")]
    assert radii == sorted(radii, reverse=True)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_a_scene_of_any_size_fits_its_drawing(scale: float) -> None:
    scene = town()
    cores = tuple(CoreBox(one.patch, times(scale, one.lower), times(scale, one.upper)) for one in scene.cores)
    seams = tuple(replace(one, line=tuple(times(scale, end) for end in one.line or ())) for one in scene.seams)
    scene = SceneMap(cores, (CameraPosition((1e30, -1e30), "far.jpg"),), seams)
    numbers = [float(one) for one in re.findall(r'(?:x|y|cx|cy|width|height)="(-?[\d.e+-]+)"', map_of(scene))]
    assert numbers and all(-5 <= one <= 2000 for one in numbers)


def times(scale: float, place: tuple[float, float]) -> tuple[float, float]:
    return scale * place[0], scale * place[1]


@pytest.fixture
def quarry(tmp_path: Path) -> Partition:
    return lay_out(tmp_path / "quarry")


def report_of(quarry: Partition) -> tuple[dict[str, Any], str]:
    batch = open_batch(quarry.path.parents[1] / "splat_config.yml")
    report = write_report(batch.output, batch.names, previews_mib=0, standing=batch.standing())
    return in_json(report), batch.output.report("html").read_text()


def evaluation(quarry: Partition) -> SceneEvaluation:
    photos = {name: PhotoMeasurement(psnr=25.0, home="p0") for name in quarry.test}
    seams = (
        SeamMeasurement(
            "p0", "p1", SceneMeasurement(psnr=24.0, num_photos=2), 12, 0.2, 31.0, 4.5, (4.5, 0.0, 0.0), 0.03, 1.1
        ),
    )
    return SceneEvaluation(
        total=SceneMeasurement(psnr=25.0, num_photos=4), photos=photos, seams=seams, lacking={NASTY: "x"}
    )


@pytest.mark.parametrize(
    ("color", "depth", "ratio", "said"),
    [
        (4.5, 0.03, 1.1, "colours differ by 4.5 of 255, p0 lies 3.0 % farther from the cameras"),
        (0.5, -0.04, 0.3, "p1 lies 4.0 % farther from the cameras, p1 has 3.3 times as many Gaussians there"),
        (0.5, 0.01, 3.0, ""),
    ],
)
def test_a_seam_that_steps_says_by_what(color: float, depth: float, ratio: float, said: str) -> None:
    seam = SeamMeasurement("p0", "p1", color_offset=color, depth_step=depth, density_ratio=ratio)
    assert why_it_steps(seam) == said


def test_the_page_shows_the_scene_with_its_seams(quarry: Partition) -> None:
    output = OutputFolder(quarry.path.parents[1] / "output")
    write_json(output.scene.evaluation, evaluation(quarry).to_record())
    report, page = report_of(quarry)
    (seam,) = report["scene"]["seams"]
    assert seam["grade"] == "step" and seam["line"][0][0] == seam["line"][1][0]
    assert len(report["scene"]["cameras"]) == 32
    for words in ("merged scene: 25.00 dB on 4 held-out photographs", "p0|p1", "4.50", "+3.00", 'class="map"'):
        assert words in page
    assert NASTY not in page
    assert "| p0\\|p1 |" in output.report("md").read_text()


def test_a_scene_nobody_has_measured_is_shown_as_far_as_it_is_known(quarry: Partition) -> None:
    _, page = report_of(quarry)
    assert "has not been measured. Run splatbatch evaluate" in page and "not measured yet" in page


def test_until_a_scene_is_measured_the_records_of_its_patches_say_what_is_held_out(quarry: Partition) -> None:
    held_out, *trained = sorted(quarry.test)
    record = {"patch": "p0", "photographs": UsedPhotographs(tuple(trained), (held_out,)).to_record()}
    write_json(OutputFolder(quarry.path.parents[1] / "output").patch("p0").result, record)
    report, _ = report_of(quarry)
    assert [one["name"] for one in report["scene"]["cameras"] if one["name"]] == [held_out]


def test_a_batch_without_a_partition_has_a_map_of_its_cameras(quarry: Partition) -> None:
    quarry.path.unlink()
    report, page = report_of(quarry)
    assert report["scene"] is None and page.count('class="map"') == 1
    assert [core["patch"] for core in report["map"]["cores"]] == ["p0", "p1"]
    assert len(report["map"]["cameras"]) == 32 and report["map"]["lacking"] == []


def test_a_patch_whose_model_cannot_be_read_is_named_below_the_map(quarry: Partition) -> None:
    quarry.path.unlink()
    (quarry.path.parent / "p1/sparse/0/images.bin").write_bytes(b"cut")
    report, page = report_of(quarry)
    assert report["map"]["lacking"] == ["p1"]
    assert "Not on the map, for their models cannot be read: p1." in page


@pytest.mark.parametrize("text", ["[1, 2]", '{"photos": {"a": {"psnr": "?"}}, "seams": [{"one": 3}, 4]}', "not json"])
def test_an_evaluation_of_a_stranger_breaks_no_report(quarry: Partition, text: str) -> None:
    output = OutputFolder(quarry.path.parents[1] / "output")
    output.scene.evaluation.write_text(text)
    report, page = report_of(quarry)
    assert 'class="map"' in page
    assert json.loads(json.dumps(report["scene"]))["seams"][0]["color_offset"] is None


def test_a_scene_that_was_merged_again_says_so(quarry: Partition) -> None:
    output = OutputFolder(quarry.path.parents[1] / "output")
    write_json(output.scene.evaluation, evaluation(quarry).to_record())
    shutil.copy(output.scene.splat, again := output.scene.splat.with_name("again.ply"))
    again.replace(output.scene.splat)
    report, page = report_of(quarry)
    assert report["scene"]["is_stale"] and "Merged again after that" in page
    assert read_json(output.report("json"))["scene"]["is_stale"]
