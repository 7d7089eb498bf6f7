"""`inspect scene`: the merged splat, beside it what was found; and what cannot be inspected."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ended, invoke
from cut_quarry import lay_out, part, quarry_splat
from PIL import Image as Pillow
from published_shapes import checked

from splatbatch.files import write_json
from splatbatch.hashing import file_fact, sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.merge import Merge, MergedPart


@pytest.fixture(scope="module")
def quarry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quarry, cut and merged."""
    folder = tmp_path_factory.mktemp("scene") / "quarry"
    lay_out(folder, part(quarry_splat(), slice(None)))
    config = folder / "splat_config.yml"
    config.write_text(config.read_text().replace("training:\n", "training:\n  device: cpu\n  resolution: 1/4\n", 1))
    return folder


def inspect(folder: Path, *arguments: str) -> Ended:
    return invoke("inspect", *arguments, "--config", str(folder / "splat_config.yml"))


@pytest.mark.all
def test_the_merged_scene_is_inspected_once_and_its_record_lies_beside_it(quarry: Path) -> None:
    first, second = inspect(quarry, "scene"), inspect(quarry, "scene", "--json")
    assert first.code == second.code == 0, first.err
    scene = OutputFolder(quarry / "output").scene
    found = scene.read_inspection()
    assert found is not None and found.splat == sha256_of(scene.splat) and found.grade in "ABCD"
    assert [*checked("inspect", second.out)] == ["scene"] and len(scene.inspecting.attempts()) == 1
    assert {figure.name for figure in found.figures if figure.value is not None} >= {"depth", "haze", "coverage"}
    assert sum("psnr" in photo for photo in found.photos.values()) == 4


@pytest.mark.all
def test_every_figure_beyond_its_limit_has_a_picture_in_the_folder_of_its_attempt(quarry: Path) -> None:
    inspect(quarry, "scene")
    scene = OutputFolder(quarry / "output").scene
    found = scene.read_inspection()
    assert found is not None
    folder = AttemptFolder(scene.inspecting.path / found.attempt).pictures
    beyond = {one.name: one.picture for one in found.found if one.name not in ("coverage", "health")}
    assert beyond and beyond == {one.name: one.picture for one in found.figures if one.picture}
    for file in beyond.values():
        with Pillow.open(folder / file) as picture:
            assert picture.format == "WEBP" and 0 < max(picture.size) <= 360
    assert {path.name for path in folder.iterdir()} == {*beyond.values(), *found.thumbnails.values()}


@pytest.mark.all
def test_the_report_says_how_good_the_scene_is(quarry: Path) -> None:
    inspect(quarry, "scene")
    output = OutputFolder(quarry / "output")
    found, page = output.scene.read_inspection(), output.report("html").read_text()
    assert found is not None and f"Grade {found.grade}" in page
    assert json.loads(output.report("json").read_text())["scene"]["quality"]["grade"] == found.grade


def verify(folder: Path, *arguments: str) -> Ended:
    return invoke("inspect", "--check", *arguments, "--config", str(folder / "splat_config.yml"))


@pytest.mark.all
def test_a_scene_has_a_certificate_that_holds_until_its_splat_changes(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry", symlinks=True)
    inspect(tmp_path / "quarry", "scene")
    ended = verify(tmp_path / "quarry", "scene")
    assert (ended.code, ended.out.strip()) == (0, "scene: the certificate holds"), ended.err
    assert (
        "scene: the certificate holds" in verify(tmp_path / "quarry").out
    )  # and of its patches, that nobody has inspected
    scene = OutputFolder(tmp_path / "quarry/output").scene
    page = scene.path.parent / "report.html"
    assert json.loads(scene.certificate.read_text())["seal"] in page.read_text()
    data = bytearray(scene.splat.read_bytes())
    data[-1] ^= 1
    scene.splat.write_bytes(data)
    ended = verify(tmp_path / "quarry", "scene")
    assert ended.code == 1 and "scene: the certificate is of another splat" in ended.out


@pytest.mark.all
def test_a_scene_of_another_patch_than_is_accepted_is_told(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry", symlinks=True)
    output = OutputFolder(tmp_path / "quarry/output")
    fact = file_fact(output.scene.splat)
    merged = Merge(bytes=fact.num_bytes, mtime_ns=fact.mtime_ns, key="k", parts=(MergedPart("p1", sha256="ab"),))
    write_json(output.scene.merge, merged.to_record())
    inspect(tmp_path / "quarry", "scene")
    assert json.loads(output.scene.certificate.read_text())["inputs"] == {"patches/p1/splat.ply": "ab"}
    ended = verify(tmp_path / "quarry", "scene")
    assert ended.code == 1 and "scene: the merged scene has another splat of p1 than the accepted one" in ended.out
    write_json(output.scene.merge, replace(merged, key="other", parts=()).to_record())
    assert "of another merge of the scene than merge.json" in verify(tmp_path / "quarry", "scene").out


def test_a_scene_that_nobody_has_inspected_has_no_certificate(tmp_path: Path) -> None:
    lay_out(tmp_path / "quarry")
    ended = verify(tmp_path / "quarry", "scene")
    assert ended.code == 1 and ended.out.strip() == "scene: no certificate; `splatbatch inspect` writes one"


def test_a_scene_that_is_not_merged_is_told(quarry: Path, tmp_path: Path) -> None:
    lay_out(tmp_path / "quarry")
    OutputFolder(tmp_path / "quarry/output").scene.splat.unlink()
    ended = inspect(tmp_path / "quarry", "scene")
    assert ended.code == 1 and "scene: " in ended.err and "splatbatch merge" in ended.err
    assert "Traceback" not in ended.err
