"""`publish`: what lies in the folder, what stays as it was, and what is refused with nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Ended, invoke
from cut_batch import copy_of, put, trained
from fake_batch import FakeBatch
from published_shapes import checked
from splat_tool import tool_or_skip
from tileset_rules import problems_of

from splatbatch.publish import loss, rows
from splatbatch.publish import publish as publishing
from splatbatch.publish import target as targets
from splatbatch.publish.tiles import geodesy, glb, write
from splatbatch.publish.tiles.glb import pack
from splatbatch.publish.tool import FOLDER
from splatbatch.splats import read_splat

pytestmark = pytest.mark.usefixtures("made_here")

PATCHES = ("p0", "p1", "p2", "p3", "backdrop")


@pytest.fixture(scope="module")
def merged_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = trained(tmp_path_factory.mktemp("trained") / "batch")
    assert invoke("merge", batch=batch).code == 0
    return batch


@pytest.fixture
def batch(merged_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(merged_once, tmp_path / "batch")


def publish(batch: FakeBatch, *arguments: str) -> Ended:
    return invoke("publish", *arguments, "--to", str(folder(batch)), batch=batch)


def folder(batch: FakeBatch) -> Path:
    return batch.folder / "published"


def record(batch: FakeBatch) -> dict[str, Any]:
    return json.loads((folder(batch) / "publish.json").read_text())


def stamps(batch: FakeBatch) -> dict[str, int]:
    files = (path for path in folder(batch).rglob("*") if path.is_file())
    return {str(path.relative_to(folder(batch))): path.stat().st_mtime_ns for path in files}


def refused(batch: FakeBatch, code: int, *arguments: str) -> str:
    """Run a publication that must be refused, with nothing written; return what it says, on one line."""
    before = stamps(batch)
    ended = publish(batch, *arguments)
    assert ended.code == code, ended.out + ended.err
    assert stamps(batch) == before and not list(folder(batch).glob(".*"))
    assert "hint: " in ended.err
    return " ".join(ended.err.split())


@pytest.fixture
def tool() -> None:
    tool_or_skip()


@pytest.mark.all
def test_a_scene_is_written_and_what_compression_costs_is_measured(batch: FakeBatch, tool: None) -> None:
    ended = publish(batch, "scene", "--as", "ply,spz")
    assert ended.code == 0, ended.err
    num = len(read_splat(folder(batch) / "scene.ply"))
    found = record(batch)["outputs"]
    assert set(found) == {"scene.ply", "scene.spz"} and sorted(stamps(batch)) == ["publish.json", *sorted(found)]
    spz = found["scene.spz"]
    assert spz["num_gaussians"] == num and spz["bytes"] == (folder(batch) / "scene.spz").stat().st_size
    assert spz["bytes"] < spz["bytes_before"] / 3 and spz["num_photos"] == 2
    assert 20 < spz["between_db"] < 100 and abs(spz["loss_db"]) < 0.5
    before = stamps(batch)
    again = publish(batch, "scene", "--as", "ply,spz")
    assert again.code == 0 and "scene.spz: up to date, kept as it is" in again.err
    assert {**stamps(batch), "publish.json": 0} == {**before, "publish.json": 0}


@pytest.mark.all
def test_what_is_lost_in_glb_and_in_tiles_is_measured(batch: FakeBatch, tool: None) -> None:
    ended = publish(batch, "scene", "--as", "glb,tiles")
    assert ended.code == 0, ended.err
    found = record(batch)["outputs"]
    glb, tiles = found["scene.glb"], found["tiles"]
    assert abs(glb["loss_db"]) < 0.01 and glb["between_db"] > 60
    assert tiles["num_photos"] == glb["num_photos"] == 2 and abs(tiles["loss_db"]) < 0.5 and tiles["between_db"] > 20
    assert tiles["tiles"]["losses"]["scene"]["psnr"] == tiles["psnr"]
    told = checked("publish", publish(batch, "scene", "--as", "glb,tiles", "--json").out)
    assert told["outputs"]["tiles"]["tiles"] == tiles["tiles"]


@pytest.mark.all
def test_tiles_of_patches_are_measured_patch_by_patch_and_again_once_they_change(batch: FakeBatch) -> None:
    assert publish(batch, "p0", "p1", "--as", "tiles").code == 0
    before = record(batch)["outputs"]["tiles"]
    put(batch, "p1", seed=9)
    assert publish(batch, "p1", "--as", "tiles", "--no-measure").code == 0
    unmeasured = record(batch)["outputs"]["tiles"]
    assert unmeasured["psnr"] is None and set(unmeasured["tiles"]["losses"]) == {"p0"}
    assert publish(batch, "p1", "--as", "tiles").code == 0
    now = record(batch)["outputs"]["tiles"]
    old, new = before["tiles"]["losses"], now["tiles"]["losses"]
    assert set(old) == set(new) == {"p0", "p1"} and old["p0"] == new["p0"] and old["p1"] != new["p1"]
    assert now["num_photos"] == sum(one["num_photos"] for one in new.values())
    assert min(one["psnr"] for one in new.values()) <= now["psnr"] <= max(one["psnr"] for one in new.values())


def test_tiles_that_do_not_read_back_are_told_of(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glb, "pack", lambda gaussians, **options: pack(gaussians, **options)[:-30])
    ended = publish(batch, "p0", "--as", "tiles")
    assert ended.code == 6 and "p0: its tiles cannot be read back (not an SPZ file" in " ".join(ended.err.split())
    assert record(batch)["outputs"]["tiles"]["psnr"] is None


def test_a_patch_is_written_as_it_was_accepted(batch: FakeBatch) -> None:
    said = checked("publish", publish(batch, "p1", "--as", "ply", "--json").out)
    wanted = read_splat(batch.output / "patches/p1/splat.ply")
    found = read_splat(folder(batch) / "p1.ply")
    assert all(np.array_equal(vars(found)[name], values) for name, values in vars(wanted).items())
    assert said["splats"]["p1"]["num_gaussians"] == len(wanted) and said["outputs"]["p1.ply"]["kind"] == "ply"


@pytest.mark.all
def test_tiles_have_a_tileset_for_each_patch_and_counters_at_the_root(batch: FakeBatch) -> None:
    assert publish(batch, "--as", "tiles").code == 0
    root = json.loads((folder(batch) / "tiles/tileset.json").read_text())
    counters = {child["extras"]["patch"]: child["extras"] for child in root["root"]["children"]}
    parts = json.loads((batch.output / "scene/merge.json").read_text())["parts"]
    assert {name: one["num_gaussians"] for name, one in counters.items()} == {
        part["patch"]: part["num_gaussians"] for part in parts
    }
    for child in root["root"]["children"]:
        place = folder(batch) / "tiles" / child["content"]["uri"]
        assert "transform" in json.loads(place.read_text())["root"]
        assert child["extras"]["num_bytes"] == sum(path.stat().st_size for path in place.parent.iterdir())


BREAKS: dict[str, tuple[Any, str]] = {
    "no error": (lambda root: root["root"].pop("geometricError"), "geometricError: None"),
    "an error that grows": (lambda root: root["root"].update(geometricError=1e9), "geometricError"),
    "no box": (lambda root: root["root"].pop("boundingVolume"), "boundingVolume.box: None"),
    "a flat box": (lambda root: root["root"]["boundingVolume"].update(box=[0.0] * 12), "flat"),
    "a box that holds less": (lambda root: shrink(root["root"]), "sticks out of the one above"),
    "a box elsewhere": (lambda root: root["root"]["children"][0]["boundingVolume"]["box"].__setitem__(0, 1e9), "stick"),
    "no file": (lambda root: root["root"]["children"][0]["content"].update(uri="p9.json"), "there is no such file"),
    "a typing mistake": (lambda root: root["root"].update(refined="ADD"), "refined: no property of a tile"),
    "an extension": (lambda root: root.pop("extensionsUsed"), "extensionsUsed"),
    "another version": (lambda root: root["asset"].update(version="3"), "asset.version"),
}


def shrink(tile: dict[str, Any]) -> None:
    box = tile["boundingVolume"]["box"]
    box[3:] = [value / 2 for value in box[3:]]


@pytest.mark.parametrize("crs", ["", "EPSG:32632"])
def test_tiles_keep_the_rules_of_3d_tiles_and_what_breaks_them_is_found(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, crs: str
) -> None:
    if crs:
        pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")
        monkeypatch.setattr(geodesy, "_check_area", lambda *_: None)  # this scene lies around its origin
        batch.change(scene={"crs": crs})
    monkeypatch.setattr(write, "MOST_PER_TILE", 50)
    ended = publish(batch, "p0", "p1", "--as", "tiles", "--no-measure")
    assert ended.code == 0, ended.err
    tileset = folder(batch) / "tiles/tileset.json"
    assert len(list(tileset.parent.rglob("*.glb"))) > 20 and problems_of(tileset) == []
    whole = tileset.read_text()
    for name, (break_it, words) in BREAKS.items():
        root = json.loads(whole)
        break_it(root)
        tileset.write_text(json.dumps(root))
        assert words in "; ".join(problems_of(tileset)), name


@pytest.mark.all
def test_replacing_one_patch_rewrites_its_folder_and_the_roots_counters_alone(batch: FakeBatch) -> None:
    assert publish(batch, "--as", "tiles").code == 0
    before = stamps(batch)
    root = json.loads((folder(batch) / "tiles/tileset.json").read_text())
    put(batch, "p2", seed=9)
    assert invoke("merge", batch=batch).code == 0
    assert publish(batch, "--as", "tiles").code == 0
    changed = {path for path, time in before.items() if stamps(batch).get(path) != time}
    assert changed and {path for path in changed if not path.startswith("tiles/p2/")} == {
        "publish.json",
        "tiles/tileset.json",
    }
    now = json.loads((folder(batch) / "tiles/tileset.json").read_text())
    names = {child["extras"]["patch"] for child in now["root"]["children"] if child not in root["root"]["children"]}
    assert names == {"p2"} and len(list((folder(batch) / "tiles/p2").iterdir())) == 1


@pytest.mark.all
def test_patches_that_are_added_join_the_others_and_the_scene_is_none_of_them(batch: FakeBatch) -> None:
    assert publish(batch, "p0", "p1", "--as", "tiles").code == 0
    assert publish(batch, "p2", "--as", "tiles").code == 0
    assert sorted(path.name for path in (folder(batch) / "tiles").iterdir()) == ["p0", "p1", "p2", "tileset.json"]
    said = refused(batch, 6, "scene", "--as", "tiles")
    assert "holds the tiles of patches" in said and "draw everything twice" in said


def test_a_splat_cut_meanwhile_costs_its_own_files_alone(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        os.truncate(batch.output / "patches/p0/splat.ply", 3000)

    monkeypatch.setattr(targets.TargetFolder, "check_room", cut)  # between the check of the splats and the first file
    ended = publish(batch, "p0", "p1", "--as", "ply,tiles", "--no-measure")
    said = " ".join(ended.err.split())
    assert ended.code == 6 and "p0/splat.ply: cut: the file ends before" in said
    assert (folder(batch) / "p1.ply").is_file() and set(record(batch)["outputs"]) == {"p1.ply"}


def test_a_damaged_tileset_of_another_patch_is_named(batch: FakeBatch) -> None:
    assert publish(batch, "p0", "p1", "--as", "tiles", "--no-measure").code == 0
    (tileset,) = (folder(batch) / "tiles/p1").glob("*/tileset.json")
    tileset.write_text("{}")
    ended = publish(batch, "p0", "--as", "tiles", "--no-measure")
    said = " ".join(ended.err.split())
    assert ended.code == 6 and f"{tileset}: damaged" in said
    assert "Publish the tiles of p1 again, too." in said
    assert publish(batch, "p1", "--as", "tiles", "--no-measure").code == 0 and "root" in tileset.read_text()


def test_beside_the_scene_a_patch_that_it_lacks_has_no_tiles(batch: FakeBatch) -> None:
    place = batch.output / "patches/p3"
    place.rename(batch.folder / "p3")
    assert invoke("merge", "--allow-missing", batch=batch).code == 0
    (batch.folder / "p3").rename(place)
    ended = publish(batch, "p0", "p3", "scene", "--as", "tiles", "--no-measure")
    assert ended.code == 0, ended.err
    assert set(record(batch)["outputs"]["tiles"]["tiles"]["patches"]) == {"p0", "p1", "p2", "backdrop"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--as", "sogg"), 2, "--as sogg: no such format hint: Did you mean sog?"),
        ((), 2, "no format is named hint: Name at least one by --as: ply,"),
        (("p7", "--as", "ply"), 2, "p7: no such patch"),
    ],
    ids=["format", "none", "patch"],
)
def test_a_wrong_option_is_named(batch: FakeBatch, arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in refused(batch, code, *arguments)


def test_where_no_format_is_alike_all_are_listed_once(batch: FakeBatch) -> None:
    said = refused(batch, 2, "--as", "nosuch")
    assert "--as nosuch: no such format" in said and said.count("streamed") == 1


def test_a_folder_of_somebody_else_is_left_alone(batch: FakeBatch) -> None:
    folder(batch).mkdir()
    (folder(batch) / "thesis.txt").write_text("mine")
    assert "holds files that publish did not write: thesis.txt" in refused(batch, 6, "p0", "--as", "ply")
    assert publish(batch, "p0", "--as", "ply", "--force").code == 0
    assert (folder(batch) / "thesis.txt").read_text() == "mine"
    (folder(batch) / "p1.ply").write_text("mine, too")
    assert "p1.ply: exists and was not written by publish" in publish(batch, "p1", "--as", "ply").err
    assert (folder(batch) / "p1.ply").read_text() == "mine, too"


def test_the_output_folder_is_no_place_to_publish(batch: FakeBatch) -> None:
    ended = invoke("publish", "--as", "ply", "--to", str(batch.output / "site"), batch=batch)
    assert ended.code == 6 and "where only the batch itself writes" in ended.err


def test_a_stale_patch_is_refused(batch: FakeBatch) -> None:
    batch.change(training={"max_steps": 21})
    assert "p0: stale: settings have changed: training.max_steps 20 -> 21: not published" in refused(
        batch, 6, "p0", "--as", "ply"
    )
    assert "p0: stale" in refused(batch, 6, "scene", "--as", "ply")


def test_a_scene_of_other_splats_than_the_accepted_ones_is_refused(batch: FakeBatch) -> None:
    put(batch, "p2", seed=9)
    assert "p2: its splat has changed since the scene was merged" in refused(batch, 6, "scene", "--as", "ply")
    shutil.rmtree(batch.output / "scene")
    assert "no merged scene" in refused(batch, 6, "scene", "--as", "ply")


def test_a_splat_with_nan_is_refused(batch: FakeBatch) -> None:
    place = batch.output / "patches/p0/splat.ply"
    data = bytearray(place.read_bytes())
    data[-4:] = b"\xff\xff\xff\x7f"
    place.chmod(0o644)
    place.write_bytes(data)
    assert "p0: " in refused(batch, 6, "p0", "--as", "ply")


@pytest.mark.all
def test_without_node_the_formats_that_need_it_say_so_and_the_others_are_written(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ended = publish(batch, "p0", "--as", "spz,sog,ply,tiles")
    assert ended.code == 4 and "node is not installed" in ended.err and "apt-get install nodejs npm" in ended.err
    assert set(record(batch)["outputs"]) == {"p0.ply", "p0.sog", "tiles"}
    assert sorted(path.name for path in folder(batch).iterdir()) == ["p0.ply", "p0.sog", "publish.json", "tiles"]


@pytest.mark.contract
def test_an_npm_that_fails_leaves_no_tool_behind(
    batch: FakeBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, cache = tmp_path / "bin", tmp_path / "cache"
    programs.mkdir()
    for name, script in {"node": "exit 0", "npm": "mkdir -p node_modules/@playcanvas; echo E404 >&2; exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SPLATBATCH_CACHE", str(cache))
    assert "splat-transform 3.7.0 cannot be installed: exit code 1: E404" in refused_but_for_json(batch)
    assert [path for path in cache.iterdir() if "splat-transform" in path.name] == []
    place = cache / FOLDER / "node_modules/@playcanvas/splat-transform"
    (place / "bin").mkdir(parents=True)
    (place / "bin/cli.mjs").touch()
    (place / "package.json").write_text('{"version": "2.7.1"}')
    assert "cannot be installed" in refused_but_for_json(batch)  # another version is none


def refused_but_for_json(batch: FakeBatch) -> str:
    ended = publish(batch, "p0", "--as", "spz")
    assert ended.code == 6 and not list(folder(batch).glob("p0*"))
    return " ".join(ended.err.split())


def test_a_scene_that_is_too_large_for_one_file_is_written_part_by_part(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_IN_ONE", 500)
    assert publish(batch, "scene", "--as", "ply").code == 0
    assert set(record(batch)["outputs"]) == {f"scene-{name}.ply" for name in PATCHES}
    parts = [read_splat(folder(batch) / f"scene-{name}.ply") for name in PATCHES]
    assert sum(map(len, parts)) == len(read_splat(batch.output / "scene/splat.ply"))


def test_tiles_that_do_not_fit_into_memory_are_not_begun(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "available_mib", lambda: -1)
    ended = publish(batch, "scene", "--as", "tiles,ply")
    assert ended.code == 6 and "Gaussians need about" in ended.err and "smaller patches" in ended.err
    assert set(record(batch)["outputs"]) == {"scene.ply"}
    assert sorted(path.name for path in folder(batch).iterdir()) == ["publish.json", "scene.ply"]


@pytest.mark.parametrize(("crs", "words"), [("EPSG:32632", "outside the area"), ("EPSG:1", "PROJ knows no such")])
def test_a_crs_that_does_not_fit_the_scene_is_refused(batch: FakeBatch, crs: str, words: str) -> None:
    pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")
    batch.change(scene={"crs": crs})
    ended = publish(batch, "scene", "--as", "tiles")
    assert ended.code == 2 and f"scene.crs: {crs}: " in ended.err and words in ended.err
    assert [path.name for path in folder(batch).iterdir()] == ["publish.json"] and record(batch)["outputs"] == {}


def test_a_publish_that_was_killed_goes_on_where_it_was(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as moment:
        moment.setattr(publishing, "folder_bytes", killed)  # the file is in its place, and nobody has written that down
        assert publish(batch, "p0", "--as", "ply").code == 9
    assert sorted(path.name for path in folder(batch).iterdir()) == ["p0.ply", "publish.json"]
    assert publish(batch, "p0", "--as", "ply").code == 0 and record(batch)["outputs"]["p0.ply"]["key"]


@pytest.mark.all
def test_compression_that_cannot_be_measured_is_told_of_and_tried_again(
    batch: FakeBatch, tool: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "MODULE", "splatbatch.nowhere")
    ended = publish(batch, "p0", "--as", "spz")
    assert (
        ended.code == 6
        and "by compression could not be measured: exit code 1" in ended.err
        and "--no-measure" in ended.err
    )
    found = record(batch)["outputs"]["p0.spz"]
    assert (found["key"], found["psnr"], found["notes"]) == ("", None, [publishing.MEASURING_FAILED])


def test_a_disk_without_room_is_told_of_before_anything_is_written(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "free_mib", lambda _: 0)
    assert "0 MiB of disk space are free" in refused(batch, 6, "p0", "--as", "ply")


def test_what_a_killed_publish_has_left_is_swept(batch: FakeBatch) -> None:
    never = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1  # no process has that number
    left = folder(batch) / f".work.{os.uname().nodename}.{never}"
    left.mkdir(parents=True)
    (left / "half").touch()
    assert publish(batch, "p0", "--as", "ply").code == 0
    assert sorted(path.name for path in folder(batch).iterdir()) == ["p0.ply", "publish.json"]


@pytest.mark.all
def test_a_terminal_shows_how_far_it_is(batch: FakeBatch) -> None:
    ended = invoke("publish", "--as", "tiles,ply", "--to", str(folder(batch)), batch=batch, terminal=True)
    assert ended.code == 0 and "scene.ply" in ended.err and "tiles" in ended.out


def test_a_night_ends_with_what_the_yaml_asks_for(batch: FakeBatch) -> None:
    batch.change(publish={"formats": ["ply", "tiles"], "folder": "site", "measure": False})
    shutil.rmtree(batch.output / "scene")
    ended = batch.run("train")
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in (batch.folder / "site").iterdir()) == ["publish.json", "scene.ply", "tiles"]
    assert "scene.ply" in ended.stdout


def test_of_two_who_publish_at_once_one_waits_for_its_turn(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "STEP_BACK_S", 0.0)
    left = folder(batch) / f".work.{os.uname().nodename}.{os.getppid()}"  # of a process that lives
    left.mkdir(parents=True)
    said = publish(batch, "p0", "--as", "ply")
    assert said.code == 6 and "another publish is writing there" in said.err and str(os.getppid()) in said.err
    assert [path.name for path in folder(batch).iterdir()] == [left.name]
    elsewhere = left.rename(left.with_name(".work.elsewhere.17"))
    assert publish(batch, "p0", "--as", "ply").code == 6
    os.utime(elsewhere, (0, 0))
    assert publish(batch, "p0", "--as", "ply").code == 0  # nothing has changed there for an hour


def test_a_night_that_cannot_publish_has_trained_all_the_same(batch: FakeBatch) -> None:
    batch.change(publish={"formats": ["ply"], "folder": "site"})
    (batch.folder / "site").mkdir()
    (batch.folder / "site/thesis.txt").touch()
    ended = batch.run("train")
    assert ended.returncode == 0 and "not published: --to" in ended.stderr and "thesis.txt" in ended.stderr


def test_the_yaml_says_as_what_and_where(batch: FakeBatch) -> None:
    batch.change(publish={"formats": ["ply", "tiles"], "folder": "site", "measure": False})
    ended = invoke("publish", batch=batch)
    assert ended.code == 0, ended.err
    assert sorted(path.name for path in (batch.folder / "site").iterdir()) == ["publish.json", "scene.ply", "tiles"]
