"""Scenes in map coordinates: one offset for all patches, told everywhere, kept, and never added to float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from fake_batch import FakeBatch
from far_away import UTM, move
from published_shapes import checked

from splatbatch.errors import OutputError
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.splats import Gaussians, write_splat
from splatbatch.splats.export import ExportOptions, export_splat
from splatbatch.splats.ply import offset_comments, read_header, read_splat

MIDDLE = [500000.0, 4500000.0, 102.0]
WORDS = "(500000, 4500000, 102)"


def sparse(batch: FakeBatch, patch: str) -> Path:
    return batch.folder / "patches" / patch / "sparse/0"


def moved_away(batch: FakeBatch) -> FakeBatch:
    batch.make("p0", "p1")
    for patch in ("p0", "p1"):
        move(sparse(batch, patch))
    return batch


@pytest.fixture
def far(batch: FakeBatch) -> FakeBatch:
    return moved_away(batch)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = moved_away(FakeBatch(tmp_path_factory.mktemp("trained") / "batch"))
    assert invoke("train", batch=batch).code == 0
    return batch


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return trained_once.copied(tmp_path / "batch")


def frame(batch: FakeBatch) -> dict[str, object]:
    return json.loads((batch.output / "frame.json").read_text())


def test_a_batch_in_utm_is_trained_around_its_own_middle(trained: FakeBatch) -> None:
    assert frame(trained) == {"format": 1, "offset": MIDDLE, "scenes": {}}
    assert [trained.result(patch)["offset"] for patch in ("p0", "p1")] == [MIDDLE, MIDDLE]


def test_a_local_batch_says_nothing_of_offsets(batch: FakeBatch) -> None:
    batch.make("p0")
    said = invoke("train", batch=batch)
    assert frame(batch) == {"format": 1, "offset": [0.0, 0.0, 0.0], "scenes": {}}
    assert "offset" not in batch.result("p0")
    assert "add (" not in said.out + (batch.output / "report.md").read_text()


@pytest.mark.parametrize("command", ["plan", "verify-dims", "train"])
def test_every_command_says_what_to_add(far: FakeBatch, command: str) -> None:
    assert f"add {WORDS}" in invoke(command, batch=far).out


def test_the_reports_say_what_to_add(trained: FakeBatch) -> None:
    assert all(f"add {WORDS}" in (trained.output / f"report.{kind}").read_text() for kind in ("md", "html", "json"))


def test_looking_writes_nothing(far: FakeBatch) -> None:
    for command in ("plan", "verify-dims", "status"):
        invoke(command, batch=far)
    assert not (far.output / "frame.json").exists()


def test_in_json_the_frame_is_told_too(far: FakeBatch) -> None:
    for command in ("plan", "verify-dims"):
        assert checked(command, invoke(command, "--json", batch=far).out)["frame"]["offset"] == MIDDLE


def test_the_second_run_finds_everything_fresh(trained: FakeBatch) -> None:
    assert invoke("train", batch=trained).code == 0
    assert len(trained.events("attempt_started")) == 2
    assert "2 of 2 patches trained" in invoke("status", batch=trained).out


def test_patches_that_are_added_come_into_the_same_frame(trained: FakeBatch) -> None:
    shutil.copytree(trained.folder / "patches/p0", trained.folder / "patches/p2")
    move(sparse(trained, "p2"), (40.0, 0.0, 0.0))
    assert invoke("train", batch=trained).code == 0
    assert trained.result("p2")["offset"] == MIDDLE
    assert len(trained.events("attempt_started")) == 3


def test_training_one_patch_settles_the_frame_of_all(far: FakeBatch) -> None:
    move(sparse(far, "p1"), (100.0, 0.0, 0.0))
    invoke("train", "p0", batch=far)
    assert far.result("p0")["offset"] == [500050.0, 4500000.0, 102.0]


def test_without_the_audit_the_offset_is_the_same(far: FakeBatch) -> None:
    far.change(scene={"images": "images"})
    invoke("train", "--no-verify", batch=far)
    assert frame(far)["offset"] == MIDDLE


def test_an_offset_of_the_yaml_counts_and_makes_results_stale(trained: FakeBatch) -> None:
    trained.change(scene={"images": "images", "offset": [500000, 4500000, 0]})
    assert f"the coordinates has changed: {WORDS} -> (500000, 4500000, 0)" in invoke("plan", batch=trained).out
    assert invoke("train", batch=trained).code == 0
    assert trained.result("p1")["offset"] == frame(trained)["offset"] == [500000, 4500000, 0]


def test_offset_none_leaves_everything_where_it_is(far: FakeBatch) -> None:
    far.change(scene={"images": "images", "offset": "none"})
    invoke("train", batch=far)
    assert "offset" not in far.result("p0")


def test_a_scene_that_moved_home_loses_its_offset(trained: FakeBatch) -> None:
    for patch in ("p0", "p1"):
        move(sparse(trained, patch), tuple(-value for value in UTM))
    assert invoke("train", batch=trained).code == 0
    assert frame(trained)["offset"] == [0.0, 0.0, 0.0]
    assert "offset" not in trained.result("p0")


@pytest.mark.parametrize("offset", ["[1, 2]", "[1, 2, .nan]", "far", "[a, b, c]", "7"])
def test_an_offset_that_is_none_is_a_mistake_with_its_line(batch: FakeBatch, offset: str) -> None:
    batch.make("p0")
    text = batch.config.read_text().replace("images: images", f"images: images\n  offset: {offset}")
    batch.config.write_text(text)
    ended = invoke("plan", batch=batch)
    assert ended.code == 2
    assert "scene.offset" in ended.err and "Traceback" not in ended.err
    assert "should be three numbers [x, y, z], or none" in ended.err and "tuple" not in ended.err


def test_scenes_have_an_offset_each(batch: FakeBatch) -> None:
    batch.make("a", "b")
    for name in ("a", "b"):
        shutil.copytree(batch.folder / "images", batch.folder / "patches" / name / "images")
    move(sparse(batch, "b"))
    batch.settings.pop("scene")
    batch.change(scene={"scenes": ["patches/*"]})
    assert f"add {WORDS} for b" in invoke("train", batch=batch).out
    assert "offset" not in batch.result("a")
    assert batch.result("b")["offset"] == MIDDLE


def splat_at(folder: Path, spread: float, offset: list[float]) -> Path:
    """Return a splat with an offset."""
    means = np.random.default_rng(3).normal(0, spread, (500, 3)).astype(np.float32)
    zeros = np.zeros((500, 3), np.float32)
    quats = np.tile(np.float32([1, 0, 0, 0]), (500, 1))
    splat = Gaussians(means, zeros, quats, zeros[:, 0], zeros, np.zeros((500, 0, 3), np.float32))
    write_splat(folder / "splat.ply", splat, 20, comments=offset_comments(offset))
    return folder / "splat.ply"


def test_an_export_keeps_the_offset_and_says_so(tmp_path: Path) -> None:
    export_splat(splat_at(tmp_path, 1.0, MIDDLE), "p0", tmp_path / "a.ply", ExportOptions(sh_degree=0))
    assert read_header(tmp_path / "a.ply").offset == tuple(MIDDLE)


def test_an_export_that_float32_would_blur_is_refused_with_the_formats_that_can(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as refused:
        export_splat(splat_at(tmp_path, 1.0, MIDDLE), "p0", tmp_path / "a.ply", ExportOptions(in_source_frame=True))
    assert "3D Tiles" in refused.value.hint and WORDS in refused.value.hint
    assert not (tmp_path / "a.ply").exists()


def test_an_export_that_float32_can_hold_has_the_coordinates_of_the_model(tmp_path: Path) -> None:
    export_splat(
        splat_at(tmp_path, 1000.0, [64.0, -32.0, 0.0]), "p0", tmp_path / "a.ply", ExportOptions(in_source_frame=True)
    )
    there, here = read_splat(tmp_path / "a.ply"), read_splat(tmp_path / "splat.ply")
    assert np.allclose(there.means - here.means, [64, -32, 0], atol=1e-3)
    assert read_header(tmp_path / "a.ply").offset == (0.0, 0.0, 0.0)


@pytest.mark.contract
def test_an_external_program_is_given_a_copy_without_the_offset(far: FakeBatch) -> None:
    program = ["python3", "-c", "import sys; print(sys.argv)", "{scene}", "{sparse}"]
    far.change(
        training={"trainer": "other", "max_steps": 20},
        trainers={"other": {"command": program, "artifact": {"ply": ["*.ply"]}}},
    )
    far.change(retry={"max_attempts": 1})
    invoke("train", "p0", batch=far)
    attempt = far.output / "patches/p0/attempt-01"
    staged = next(attempt.rglob("images.txt")).parent
    assert np.abs(read_reconstruction(staged).points.xyz).max() < 10
    assert str(staged) in (attempt / "train.log").read_text()


@pytest.fixture
def apart(batch: FakeBatch) -> FakeBatch:
    """Return a batch of which one patch lies in UTM, the others about their origin."""
    batch.make("p0", "p1", "p2")
    move(sparse(batch, "p1"))
    return batch


def test_patches_too_far_apart_for_one_offset_are_refused(apart: FakeBatch) -> None:
    said = invoke("verify-dims", "--json", batch=apart)
    [found] = [one for one in json.loads(said.out)["findings"] if one["kind"] == "far_apart"]
    assert (said.code, found["patch"]) == (3, "p1")
    assert "lies 4,527,693 units from p0" in found["message"] and "another output.folder" in found["remedy"]


@pytest.mark.all
def test_patches_that_share_an_offset_are_trained_without_the_one_that_is_too_far(apart: FakeBatch) -> None:
    invoke("train", batch=apart)
    assert [one["patch"] for one in apart.events("attempt_started")] == ["p0", "p2"]
    assert frame(apart)["offset"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_a_patch_named_alone_does_not_move_the_frame_of_the_others(apart: FakeBatch, options: tuple[str, ...]) -> None:
    assert invoke("train", "p0", batch=apart).code == 0
    said = invoke("train", "p1", *options, batch=apart)
    assert said.code == 3 and "p1" in said.err and "one coordinate system" in said.err + str(apart.events("refused"))
    assert frame(apart)["offset"] == [0.0, 0.0, 0.0]


def test_an_offset_of_the_yaml_that_serves_one_patch_alone_is_refused_for_the_other(apart: FakeBatch) -> None:
    apart.change(scene={"images": "images", "offset": list(UTM)})
    said = invoke("verify-dims", "p0", batch=apart)
    assert said.code == 3 and "units from the offset (500000, 4500000, 100)" in " ".join(said.out.split())
