"""What a split leaves on the disk: whole models, links, hold-out; cut again, interrupted, refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import vast_scene
from command_line import invoke
from fake_batch import ROOT, SHARED
from PIL import Image
from published_shapes import checked

from splatbatch.config import Evaluation, Scene
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import IndexedModel, read_sightings
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.rigs import read_rigs
from splatbatch.scene.colmap.types import NONE
from splatbatch.scene.holdout import choose_holdout, in_one_piece
from splatbatch.scene.partition import split as split_folder
from splatbatch.scene.partition.files import SPLIT_READY
from splatbatch.scene.partition.plan import PartitionPlan, SplitOptions, plan_split
from splatbatch.scene.partition.record import read_partition
from splatbatch.scene.partition.split import SplitFacts, SplitRequest, finish, split
from splatbatch.scene.patches import find_patches

pycolmap = pytest.importorskip("pycolmap")
QUARRY = ROOT / "examples" / "quarry"
CALITERRA = SHARED / "data" / "caliterra"
TWO = SplitOptions(grid=(2, 1))


@dataclass(frozen=True)
class Cut:
    """A split, with the plan that it was made by."""

    plan: PartitionPlan
    facts: SplitFacts

    @property
    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.facts.patches}

    def photographs(self, patch: str) -> list[str]:
        chosen = self.plan.parts[patch].photos
        return [image.name for image, is_in in zip(self.plan.observations.images, chosen, strict=True) if is_in]


def cut(scene: Path, out: Path, wish: SplitOptions = TWO) -> Cut:
    if not scene.is_dir():
        pytest.skip(f"{scene} is not here")
    source = scene / "sparse" / "0"
    finish(out)
    return Cut(plan_split(source, out, wish), split(SplitRequest(source, None, out, wish)))


def contents(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def looks(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file that the fingerprint of a patch looks at."""
    files = [*folder.glob("p*/sparse/0/*"), *folder.glob("p*/patch.json")]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Return the quarry where it may be changed, photographs by a link."""
    shutil.copytree(QUARRY / "sparse", tmp_path / "scene" / "sparse")
    (tmp_path / "scene" / "images").symlink_to(QUARRY / "images")
    (tmp_path / "scene" / "masks").mkdir()
    return tmp_path / "scene"


@pytest.mark.parametrize(
    ("source", "wish"), [(QUARRY, TWO), (CALITERRA, SplitOptions(max_images=40))], ids=["quarry", "caliterra"]
)
def test_patches_are_models_that_pycolmap_takes_for_valid(source: Path, wish: SplitOptions, tmp_path: Path):
    done = cut(source, tmp_path / "patches", wish)
    theirs = pycolmap.Reconstruction(source / "sparse" / "0")
    for core in done.plan.partition.cores:
        model = pycolmap.Reconstruction(tmp_path / "patches" / core.name / "sparse" / "0")
        assert model.is_valid()
        assert (model.num_reg_images(), model.num_points3D()) == (core.num_images, core.num_points)
        assert {image.name for image in model.images.values()} == set(done.photographs(core.name))
        assert all(theirs.rigs[number].todict() == rig.todict() for number, rig in model.rigs.items())
        assert model.num_frames() == len({image.frame_id for image in model.images.values()})


def test_tracks_and_keypoints_of_a_patch_name_each_other_and_nothing_else(tmp_path: Path):
    done = cut(QUARRY, tmp_path / "patches")
    source = pycolmap.Reconstruction(QUARRY / "sparse" / "0")
    model = pycolmap.Reconstruction(tmp_path / "patches" / "p0" / "sparse" / "0")
    for number, point in model.points3D.items():
        elements = {(one.image_id, one.point2D_idx) for one in point.track.elements}
        before = {(one.image_id, one.point2D_idx) for one in source.points3D[number].track.elements}
        assert elements == {one for one in before if one[0] in model.images}
        assert len(elements) >= 2
        assert all(model.images[image].points2D[index].point3D_id == number for image, index in elements)
    for number, image in model.images.items():
        assert len(image.points2D) == len(source.images[number].points2D)
        assert all(one.point3D_id in model.points3D for one in image.points2D if one.has_point3D())
    assert done.plan.partition.core("p0").num_points == model.num_points3D()


def test_a_rig_of_which_one_eye_is_kept_stays_valid(tmp_path: Path):
    sightings = read_sightings(QUARRY / "sparse" / "0")
    left = np.array([image.name.startswith("left/") or image.name.endswith("03.jpg") for image in sightings.images])
    Subset(sightings, left, sightings.seen_by(left), read_rigs(QUARRY / "sparse" / "0")).write(tmp_path)
    model = pycolmap.Reconstruction(tmp_path)
    assert model.is_valid()
    assert (model.num_reg_images(), model.num_frames(), model.num_rigs()) == (int(left.sum()), 16, 1)
    theirs = pycolmap.Reconstruction(QUARRY / "sparse" / "0")
    for number, image in model.images.items():
        np.testing.assert_array_equal(image.cam_from_world().matrix(), theirs.images[number].cam_from_world().matrix())


def test_text_is_read_as_well(scene: Path, tmp_path: Path):
    text = tmp_path / "text" / "sparse" / "0"
    text.mkdir(parents=True)
    pycolmap.Reconstruction(scene / "sparse" / "0").write_text(text)
    (tmp_path / "text" / "images").symlink_to(QUARRY / "images")
    assert read_rigs(text) == read_rigs(scene / "sparse" / "0")
    binary, spelt = cut(scene, tmp_path / "a"), cut(tmp_path / "text", tmp_path / "b")
    for one, other in zip(binary.plan.partition.cores, spelt.plan.partition.cores, strict=True):
        assert one.core.upper == pytest.approx(other.core.upper)
        assert (one.num_images, one.num_points, one.cost) == (other.num_images, other.num_points, other.cost)
    assert pycolmap.Reconstruction(tmp_path / "b" / "p1" / "sparse" / "0").is_valid()


def test_two_splits_are_the_same_byte_for_byte(scene: Path, tmp_path: Path):
    wish = SplitOptions(grid=(2, 1), block=0.2)
    cut(scene, tmp_path / "a", wish)
    cut(scene, tmp_path / "b", wish)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert {"partition.json", "partition.svg"} < contents(tmp_path / "a").keys()


def test_photographs_and_masks_are_links_that_move_with_the_scene(scene: Path, tmp_path: Path):
    (scene / "images_2").mkdir()
    cut(scene, scene / "patches")
    links = {path.name: str(path.readlink()) for path in (scene / "patches" / "p0").iterdir() if path.is_symlink()}
    assert links == {"images": "../../images", "images_2": "../../images_2", "masks": "../../masks"}
    moved = scene.rename(tmp_path / "elsewhere")
    assert (moved / "patches" / "p1" / "images" / "left" / "0001.jpg").is_file()


def test_a_photograph_is_test_everywhere_or_nowhere(tmp_path: Path):
    done = cut(CALITERRA, tmp_path / "patches", SplitOptions(max_images=40))
    names = sorted(image.name for image in read_images(CALITERRA / "sparse" / "0"))
    assert done.plan.partition.test == set(names[::8])
    for patch in find_patches(Scene(patches=tmp_path / "patches")):
        held = set(choose_holdout(patch, Evaluation()))
        assert held == done.plan.partition.test & set(done.photographs(patch.name))
        uncut = replace(patch, partition=None, source=CALITERRA / "sparse" / "0")  # as other programs cut a scene
        assert set(choose_holdout(uncut, Evaluation())) == held
        assert choose_holdout(patch, Evaluation(holdout_every=0)) == ()


def test_a_block_of_photographs_side_by_side_can_be_held_out_instead(tmp_path: Path):
    done = cut(CALITERRA, tmp_path / "patches", SplitOptions(max_images=45, block=0.12))
    block = done.plan.partition.contiguous
    assert len(block) == 9
    names = [image.name for image in done.plan.observations.images]
    centers = done.plan.observations.centers()
    away = np.linalg.norm(centers - centers[:, None], axis=2)
    around = [{names[index] for index in np.argsort(row)[:9]} for row in away]
    assert block in around  # one of them with those that stand nearest
    patches = find_patches(Scene(patches=tmp_path / "patches"))
    chosen = [set(choose_holdout(patch, Evaluation(holdout="contiguous"))) for patch in patches]
    assert set.union(*chosen) == block
    both = [set(choose_holdout(patch, Evaluation(holdout="both"))) for patch in patches]
    assert set.union(*both) == block | done.plan.partition.test
    assert {in_one_piece(patch, Evaluation(holdout="both")) for patch in patches} == {block}
    assert not in_one_piece(patches[0], Evaluation())


def test_a_block_that_nobody_chose_is_refused_where_it_is_asked_for(scene: Path):
    cut(scene, scene / "patches")
    patch = find_patches(Scene(patches=scene / "patches"))[0]
    with pytest.raises(SceneError, match=r"evaluation.holdout: contiguous: .*partition\.json has no block of held-out"):
        choose_holdout(patch, Evaluation(holdout="contiguous"))
    (uncut,) = find_patches(Scene(patches=scene))
    with pytest.raises(SceneError, match="not cut by `splatbatch split`"):
        choose_holdout(uncut, Evaluation(holdout="contiguous"))


def test_what_no_split_has_cut_can_hold_out_a_tenth_side_by_side_beside_every_eighth(scene: Path):
    (uncut,) = find_patches(Scene(patches=scene))
    images = read_images(uncut.sparse)
    every, piece = set(choose_holdout(uncut, Evaluation())), in_one_piece(uncut, Evaluation(holdout="both"))
    assert len(piece) == 4  # a tenth of 32, in whole frames of the rig
    assert set(choose_holdout(uncut, Evaluation(holdout="both"))) == every | piece
    centers = {image.name: image.center() for image in images}
    middle = np.mean([centers[name] for name in piece], axis=0)
    away = sorted(centers, key=lambda name: float(np.linalg.norm(centers[name] - middle)))
    assert piece & set(away[: len(piece)])  # neighbours, not spread ones


def test_a_scene_in_utm_has_one_offset_for_all_patches(scene: Path, tmp_path: Path):
    from far_away import UTM, move

    near = cut(scene, tmp_path / "near")
    move(scene / "sparse" / "0")
    for name in ("rigs.bin", "frames.bin"):
        (scene / "sparse" / "0" / name).unlink()
    far = cut(scene, tmp_path / "far")
    assert np.allclose(far.plan.partition.offset, UTM, atol=50)
    assert [core.num_images for core in far.plan.partition.cores] == [c.num_images for c in near.plan.partition.cores]
    assert near.plan.partition.offset == (0, 0, 0)


def without(made: IndexedModel, photos: np.ndarray) -> Subset:
    return Subset(made, photos, made.seen_by(photos))


@pytest.fixture
def growing(tmp_path: Path) -> tuple[Path, IndexedModel]:
    """Return a scene of which the last photographs are not there yet, cut in four."""
    made = vast_scene.flight(120, 8000)
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    (tmp_path / "images").mkdir()
    for image in made.images:
        (tmp_path / "images" / image.name).touch()
    without(made, np.arange(120) < 114).write(tmp_path / "sparse" / "0")
    cut(tmp_path, tmp_path / "patches", SplitOptions(max_images=60))
    return tmp_path, made


def test_cut_again_patches_without_new_photographs_stay_as_they_are(growing: tuple[Path, IndexedModel]):
    folder, made = growing
    before, were = read_partition(folder / "patches" / "partition.json"), looks(folder / "patches")
    without(made, np.ones(120, bool)).write(folder / "sparse" / "0")
    again = cut(folder, folder / "patches", SplitOptions())
    now = read_partition(folder / "patches" / "partition.json")
    stays = [name for name, state in again.states.items() if state == "stays"]
    assert stays
    assert "changes" in again.states.values()
    for path, look in looks(folder / "patches").items():
        assert (were[path] == look) == (path.partition("/")[0] in stays)
    assert [core.core for core in now.cores] == [core.core for core in before.cores]
    assert (now.axes, now.offset) == (before.axes, before.offset)
    known = before.test | before.train
    assert now.test & known == before.test
    assert now.test - known == {"00114.jpg"}


@pytest.mark.parametrize(
    "wish", [SplitOptions(grid=(2, 2)), SplitOptions(up=(0.0, 0.0, 2.0), max_images=70)], ids=["grid", "axis"]
)
def test_the_same_command_again_keeps_the_cores_it_made(growing: tuple[Path, IndexedModel], wish: SplitOptions):
    folder, made = growing
    before = cut(folder, folder / "patches", wish).plan.partition
    without(made, np.ones(120, bool)).write(folder / "sparse" / "0")
    again = cut(folder, folder / "patches", wish)
    assert [core.core for core in again.plan.partition.cores] == [core.core for core in before.cores]
    assert again.plan.partition.axes == before.axes
    assert {"stays", "changes"} == set(again.states.values())


def test_cut_again_without_a_change_nothing_is_touched(growing: tuple[Path, IndexedModel]):
    folder, _ = growing
    were, held = looks(folder / "patches"), contents(folder / "patches")
    again = cut(folder, folder / "patches", SplitOptions())
    assert set(again.states.values()) == {"stays"}
    assert looks(folder / "patches") == were
    assert contents(folder / "patches") == held


def test_a_patch_that_has_become_too_large_is_halved_and_the_others_stay(growing: tuple[Path, IndexedModel]):
    folder, _ = growing
    before = read_partition(folder / "patches" / "partition.json")
    most = max(core.num_images for core in before.cores)
    again = cut(folder, folder / "patches", SplitOptions(max_images=most - 1))
    assert again.states[f"p{len(before.cores)}"] == "new"
    assert "stays" in again.states.values()
    assert all(core.num_images < most for core in again.plan.partition.cores)


def test_a_patch_somebody_has_changed_is_cut_again(growing: tuple[Path, IndexedModel]):
    folder, _ = growing
    spoilt = folder / "patches" / "p1" / "sparse" / "0" / "points3D.bin"
    whole = spoilt.read_bytes()
    spoilt.write_bytes(whole[:-1] + b"\x07")
    (folder / "patches" / "p1" / "notes.txt").write_text("mine")
    again = cut(folder, folder / "patches", SplitOptions())
    assert [name for name, state in again.states.items() if state == "changes"] == ["p1"]
    assert spoilt.read_bytes() == whole
    assert (folder / "patches" / "p1" / "notes.txt").read_text() == "mine"


def test_another_grid_leaves_no_patch_of_the_earlier_one(growing: tuple[Path, IndexedModel]):
    folder, _ = growing
    gone = cut(folder, folder / "patches", SplitOptions(grid=(2, 1))).facts.gone
    left = sorted(path.name for path in (folder / "patches").iterdir() if path.is_dir())
    assert left == ["p0", "p1"]
    assert "p2" in gone


def test_a_look_writes_nothing(scene: Path):
    done = split(SplitRequest(scene / "sparse" / "0", None, scene / "patches", TWO), dry_run=True)
    assert len(done.patches) == 2
    assert sorted(path.name for path in scene.iterdir()) == ["images", "masks", "sparse"]


@pytest.mark.parametrize("name", ["photo.jpg", "partition.json"])
def test_a_folder_of_somebody_else_is_refused(scene: Path, name: str):
    (scene / "patches").mkdir()
    (scene / "patches" / name).write_text('{"note": "mine"}')
    with pytest.raises(SceneError, match=f"--out .*patches: not empty, and not made by splatbatch split .{name}"):
        cut(scene, scene / "patches")
    assert [path.name for path in (scene / "patches").iterdir()] == [name]


def test_a_split_that_fails_leaves_nothing(scene: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("splatbatch.scene.partition.split.write_partition", full)
    with pytest.raises(OSError, match="No space"):
        cut(scene, scene / "patches")
    assert sorted(path.name for path in scene.iterdir()) == ["images", "masks", "sparse"]


@pytest.mark.contract
def test_what_a_killed_split_has_left_is_swept_by_the_next(scene: Path):
    killed = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    mine = split_folder.path_beside(scene / "patches").name.rpartition(".")[0]
    left, alive = scene / f"{mine}.{killed.stdout.strip()}", scene / f"{mine}.{os.getppid()}"
    for path in (left, alive):
        path.mkdir()
    cut(scene, scene / "patches")
    assert not left.exists()
    assert alive.exists()


@pytest.mark.all(but="2")
@pytest.mark.parametrize("moves", range(1, 5))
def test_a_split_interrupted_while_it_puts_patches_in_place_is_finished_by_the_next(
    growing: tuple[Path, IndexedModel], monkeypatch: pytest.MonkeyPatch, moves: int
):
    folder, made = growing
    without(made, np.ones(120, bool)).write(folder / "sparse" / "0")
    whole = folder / "whole"
    for part in ("sparse", "images", "patches"):
        shutil.copytree(folder / part, whole / part, symlinks=True)
    cut(whole, whole / "patches", SplitOptions())
    left, rename = [moves], Path.rename

    def until_killed(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", until_killed)
        cut(folder, folder / "patches", SplitOptions())
    assert (folder / "patches" / SPLIT_READY).is_dir()
    with pytest.raises(SceneError, match="a split was interrupted while its patches were put in place"):
        find_patches(Scene(patches=folder / "patches"))
    assert set(cut(folder, folder / "patches", SplitOptions()).states.values()) == {"stays"}
    assert contents(folder / "patches") == contents(whole / "patches")


def test_a_source_with_loose_ends_makes_sound_patches(scene: Path, tmp_path: Path):
    sparse = scene / "sparse" / "0"
    points = bytearray((sparse / "points3D.bin").read_bytes())
    points[8 + 8 : 8 + 16] = np.float64(np.nan).tobytes()  # the first point lies nowhere
    points[8 + 51 : 8 + 55] = np.uint32(4_000_000).tobytes()  # and is seen by an image that there is not
    (sparse / "points3D.bin").write_bytes(points)
    images = bytearray((sparse / "images.bin").read_bytes())
    images[8 + 36 : 8 + 44] = np.float64(np.inf).tobytes()  # the first image stands nowhere
    (sparse / "images.bin").write_bytes(images)
    done = cut(scene, tmp_path / "patches")
    assert any("1 photograph see no point and are in no patch" in note for note in done.facts.notes)
    assert any("1 point of the source left out: no finite position" in note for note in done.facts.notes)
    for name in ("p0", "p1"):
        assert pycolmap.Reconstruction(tmp_path / "patches" / name / "sparse" / "0").is_valid()
    assert (done.plan.observations.point_of_keypoint != NONE).sum() == len(done.plan.observations.photo)


@pytest.mark.parametrize("name", ["rigs.bin", "frames.bin"])
def test_rigs_that_cannot_be_used_are_left_out_and_told(scene: Path, tmp_path: Path, name: str):
    path = scene / "sparse" / "0" / name
    path.write_bytes(path.read_bytes()[:-5])
    done = cut(scene, tmp_path / "patches")
    assert any("COLMAP makes trivial ones" in note for note in done.facts.notes)
    assert not (tmp_path / "patches" / "p0" / "sparse" / "0" / "frames.bin").exists()
    assert pycolmap.Reconstruction(tmp_path / "patches" / "p0" / "sparse" / "0").is_valid()


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_a_cut_source_is_refused_by_file(scene: Path, name: str):
    path = scene / "sparse" / "0" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SceneError, match=name):
        cut(scene, scene / "patches")
    assert not (scene / "patches").exists()


def test_photographs_that_lie_elsewhere_are_asked_for(scene: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SceneError, match=r"none of the model's 32 photographs lies there, such as left/0001\.jpg"):
        split(SplitRequest(scene / "sparse" / "0", tmp_path / "empty", scene / "patches", TWO))
    (scene / "images").unlink()
    with pytest.raises(SceneError, match="no folder near this model holds its photographs"):
        cut(scene, scene / "patches")


def test_as_a_user_split_init_verify_plan(scene: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(scene)
    ended = invoke("split", "--source", "sparse/0", "--out", "patches", "--grid", "2x1")
    assert (ended.code, ended.err) == (0, "")
    assert "2 patches of 32 photographs, 4 photographs held out in every patch" in ended.out
    drawn = (scene / "patches/partition.svg").read_text()
    assert (drawn[:4], drawn.count("<circle"), drawn.count("<rect")) == ("<svg", 32, 1 + 2 * 2)
    assert invoke("init", ".").code == 0
    audited = invoke("verify-dims", "--strict", "--json")
    assert (audited.code, json.loads(audited.out)["findings"]) == (0, [])
    assert "p0: train: not trained yet" in invoke("plan").out


@pytest.mark.all
def test_mended_copies_stay_patches_of_their_partition(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(scene)
    cut(scene, scene / "patches")
    (scene / "images").unlink()
    for path in sorted((QUARRY / "images").rglob("*.jpg")):  # half the size that the cameras say
        target = scene / "images" / path.relative_to(QUARRY / "images")
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as photo:
            photo.reduce(2).save(target)
    assert invoke("init", ".").code == 0
    ended = invoke("verify-dims", "--fix", "scale", "--out", "mended")
    assert (ended.code, ended.err) == (0, "")
    mended, before = (read_partition(scene / name / "partition.json") for name in ("mended", "patches"))
    assert (mended.cores, mended.test) == (before.cores, before.test)
    assert mended.source == scene / "mended" / "source" / "sparse" / "0"
    assert (scene / "mended" / "p1" / "patch.json").is_file()


def test_the_schema_of_a_partition_is_printed():
    assert json.loads(invoke("config", "schema", "partition.json").out)["title"] == "PartitionForm"


def test_a_look_can_be_read_by_programs(scene: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(scene)
    asked = ("split", "--source", "sparse/0", "--out", "patches", "--grid", "2x1", "--dry-run", "--json")
    assert checked("split", invoke(*asked).out)["evenness"] <= 1.6
    assert not (scene / "patches").exists()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--max-images", "5"), 2, "Nearest possible: --max-images"),
        (("--grid", "3by4"), 2, "--grid 3by4: should be two numbers"),
        (("--axis", "0,0,0"), 2, "--axis"),
        (("--overlap", "7"), 2, "nearest: 0.5"),
        (("--overlap", "nan"), 2, "--overlap nan"),
        (("--holdout-block", "0.9"), 2, "nearest: 0.3"),
        (("--boxes", "no.json"), 2, "--boxes no.json: cannot be read"),
        (("--source", "nowhere"), 3, "nowhere"),
    ],
)
def test_wrong_options_end_in_a_message(scene: Path, monkeypatch: pytest.MonkeyPatch, options, code: int, words: str):
    monkeypatch.chdir(scene)
    ended = invoke("split", "--source", "sparse/0", "--images", "images", "--out", "patches", *options)
    assert ended.code == code
    assert words in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.all
def test_the_size_that_is_named_as_possible_is_always_the_same_and_is_kept_to(
    scene: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(scene)
    asked = ("split", "--source", "sparse/0", "--images", "images", "--out", "patches", "--dry-run", "--max-images")
    named = {re.search(r"--max-images (\d+), (\d+ patch)", invoke(*asked, one).err).groups() for one in ("4", "7")}
    [(most, num)] = named
    assert f"{num}" in invoke(*asked, most).out


SPLIT = """
import runpy, sys
sys.argv[0] = "splatbatch"
try:
    runpy.run_module("splatbatch", run_name="__main__")
finally:
    from memory import peak_bytes
    print(peak_bytes(), file=sys.stderr)
"""


def spent(scene: Path, most: int) -> tuple[float, float, int]:
    """Return CPU seconds, MiB at the peak and the number of patches of a split in a process of its own."""
    command = [sys.executable, "-c", SPLIT, "split", "--source", "sparse/0", "--out", "patches", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    before = os.times()
    ended = subprocess.run(
        [*command, "--max-images", str(most)], cwd=scene, capture_output=True, text=True, check=True, env=environment
    )
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    peak_mib = int(ended.stderr.split()[-1]) / (1 << 20)
    return cpu_s, peak_mib, len(json.loads(ended.stdout)["patches"])


@pytest.mark.all
def test_a_tenth_of_a_vast_scene_is_cut_in_a_tenth_of_the_memory(tmp_path: Path):
    vast_scene.write(vast_scene.flight(500, 500_000), tmp_path)
    cpu_s, peak_mib, num_patches = spent(tmp_path, 85)
    assert num_patches >= 12
    assert cpu_s <= 30  # seconds of which the start and trials on a sample take most, whatever the size
    assert peak_mib <= 512


@pytest.mark.long
def test_a_vast_scene_is_cut_within_a_minute(tmp_path: Path, record_property):
    vast_scene.write(vast_scene.flight(5000, 5_000_000), tmp_path)
    cpu_s, peak_mib, num_patches = spent(tmp_path, 600)
    record_property("figure", f"{num_patches} patches, {cpu_s:.0f} s of CPU, {peak_mib:,.0f} MiB")
    assert num_patches >= 12
    assert cpu_s <= 120  # of two cores, for a minute
    assert peak_mib <= 4096
