"""Tones found again: planted gains and vignetting, and every scene of which nobody can tell them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coloured import GREY, coloured, shade
from fake_batch import QUARRY, SHARED
from PIL import Image
from planted import errors, plant
from scenes import HEIGHT, WIDTH, MadeScene

from splatbatch.scene.colors.observations import shots_of
from splatbatch.scene.colors.scene_corrections import SceneCorrections, solve_tones
from splatbatch.scene.patches import Patch

CALITERRA = SHARED / "data" / "caliterra-small"
NAMES = [f"{i:02d}.png" for i in range(8)]
EVEN = dict.fromkeys(NAMES, 1.0)


def tones(scene: Path, images: Path | None = None) -> SceneCorrections:
    if not scene.is_dir():
        pytest.skip(f"{scene} is not here")
    return solve_tones([Patch("p0", scene / "sparse/0", images or scene / "images")])


@pytest.mark.all(but="gains and vignetting-told")
@pytest.mark.parametrize(
    ("scene", "tells"), [(QUARRY, False), (QUARRY, True), (CALITERRA, True)], ids=["quarry", "told", "caliterra"]
)
@pytest.mark.parametrize("vignetting", [(), (-0.2, -0.1)], ids=["gains", "gains and vignetting"])
def test_planted_gains_are_found_again(scene: Path, tells: bool, vignetting: tuple[float, ...], tmp_path: Path) -> None:
    intact = tones(scene)
    planted = plant(scene, tmp_path / "images", vignetting=vignetting, tells=tells)
    found = tones(scene, tmp_path / "images")
    off = errors(found.tones, planted, intact.tones)
    assert len(found.tones) == len(planted)
    assert (np.median(off) <= 0.01, off.max() <= 0.03, found.is_even) == (True, True, True)


@pytest.mark.all
def test_planted_vignetting_is_found_again_and_none_where_there_is_none(tmp_path: Path) -> None:
    plant(QUARRY, tmp_path / "images", most=0, vignetting=(-0.2, -0.1))
    assert tones(QUARRY, tmp_path / "images").vignetting == {
        camera: pytest.approx((-0.2, -0.1), abs=0.02) for camera in ("1", "2")
    }
    assert tones(QUARRY).vignetting == {}


def test_the_intact_quarry_is_even_but_for_the_drift_it_was_rendered_with() -> None:
    found = tones(QUARRY)
    gains = np.array([tone.gain for tone in found.tones.values()])
    # exposed with a deviation of 1 %, seen through a curve of about the square root
    assert (gains.std() < 0.01, np.abs(gains - 1).max() < 0.015, found.is_even) == (True, True, False)


def test_gains_have_no_mean_and_an_outlier_is_named(tmp_path: Path) -> None:
    found = solve_tones([coloured(tmp_path, EVEN | {"03.png": 1.5}).patch()])
    gains = np.array([tone.gain for tone in found.tones.values()])
    assert np.log(gains).mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-9)
    assert found.outliers == {"03.png": pytest.approx(1.5, abs=0.01)}


def test_patches_that_share_photographs_are_solved_together(tmp_path: Path) -> None:
    gains = EVEN | {"00.png": 1.2, "07.png": 0.8}
    whole = coloured(tmp_path / "a", gains)
    parts = [
        coloured(tmp_path / "b", dict(list(gains.items())[:5])),
        coloured(tmp_path / "c", dict(list(gains.items())[3:])),
    ]
    found = solve_tones([replace(part.patch(), images=whole.photographs) for part in parts])
    assert found.tones["00.png"].gain[0] / found.tones["07.png"].gain[0] == pytest.approx(1.5, abs=0.01)


def test_groups_that_share_no_points_have_a_gauge_each(tmp_path: Path) -> None:
    parts = [
        coloured(tmp_path / "a", {f"a{i}.png": 1.2 + 0.1 * i for i in range(3)}),
        coloured(tmp_path / "b", {f"b{i}.png": 0.7 for i in range(3)}),
    ]
    found = solve_tones([part.patch() for part in parts])
    assert found.tones["b0.png"].gain == pytest.approx((1, 1, 1), abs=1e-6)
    assert "2 groups that share no points (3, 3)" in found.notes[0]


def test_photographs_of_one_name_that_differ_are_left_alone(tmp_path: Path) -> None:
    parts = [coloured(tmp_path / name, EVEN | {"02.png": 1.3}) for name in ("a", "b")]
    shade(parts[1].photographs / "01.png", 0.5)
    with (parts[1].photographs / "01.png").open("ab") as file:
        file.write(b"more")
    found = solve_tones([part.patch() for part in parts])
    assert "another photograph has the same name" in found.left_alone["01.png"]
    assert len(found.tones) == 7


# bad input: a clear line and gain 1


def no_keypoints(scene: MadeScene) -> None:
    scene.xyz = np.zeros((0, 3))
    scene.write_model()


def one_photograph(scene: MadeScene) -> None:
    scene.images = scene.images[:1]
    scene.write_model()


def all_shaded(gain: float) -> Callable[[MadeScene], None]:
    return lambda scene: [shade(scene.photographs / name, gain) for name in NAMES] and None


def broken(scene: MadeScene) -> None:
    (scene.sparse / "images.bin").write_bytes(b"\x07")


def all_missing(scene: MadeScene) -> None:
    shutil.rmtree(scene.photographs)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (no_keypoints, "the model has no tracks"),
        (one_photograph, "the model has no tracks"),
        (all_shaded(0.02), "not dark, clipped or masked"),
        (all_shaded(2.6), "not dark, clipped or masked"),
        (broken, "images.bin"),
        (all_missing, "missing"),
    ],
    ids=["no tracks", "one photograph", "all black", "all burnt", "broken model", "no photographs"],
)
def test_where_nothing_can_be_told_it_is_said_why(
    tmp_path: Path, spoil: Callable[[MadeScene], None], problem: str
) -> None:
    scene = coloured(tmp_path, EVEN)
    spoil(scene)
    found = solve_tones([scene.patch()])
    assert (found.tones, found.is_even) == ({}, False)
    assert problem in found.problem


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: shade(path, 0.02), "0 points that others see, too, and that are not dark"),
        (lambda path: shade(path, 2.6), "0 points that others see, too, and that are not dark"),
        (Path.unlink, "missing"),
        (cut, "cannot be decoded"),
        (lambda path: Image.new("RGB", (WIDTH, WIDTH), (90, 90, 90)).save(path), "not the aspect ratio of its camera"),
        (lambda path: path.write_bytes(b""), "cannot be decoded"),
    ],
    ids=["black", "burnt", "missing", "cut", "another shape", "empty"],
)
def test_a_photograph_of_which_nobody_can_tell_is_named_and_the_others_are_solved(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    scene = coloured(tmp_path, EVEN | {"01.png": 1.3})
    spoil(scene.photographs / "05.png")
    found = solve_tones([scene.patch()])
    assert (len(found.tones), list(found.left_alone)) == (7, ["05.png"])
    assert reason in found.left_alone["05.png"]
    assert found.tones["01.png"].gain[0] / found.tones["02.png"].gain[0] == pytest.approx(1.3, abs=0.01)


def test_a_grey_photograph_is_as_good_as_any(tmp_path: Path) -> None:
    scene = coloured(tmp_path, EVEN)
    Image.new("L", (WIDTH, HEIGHT), round(1.2 * GREY)).save(scene.photographs / "05.png")
    found = solve_tones([scene.patch()])
    assert found.tones["05.png"].gain[0] / found.tones["02.png"].gain[0] == pytest.approx(1.2, abs=0.01)


def test_what_a_mask_hides_tells_nothing(tmp_path: Path) -> None:
    scene = coloured(tmp_path, EVEN)
    half = np.full((HEIGHT, WIDTH, 3), GREY, np.uint8)
    half[:, : WIDTH // 2] = 200
    Image.fromarray(half).save(scene.photographs / "05.png")
    (tmp_path / "masks").mkdir()
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    mask[:, : WIDTH // 2] = 0
    Image.fromarray(mask).save(tmp_path / "masks" / "05.png.png")
    found = solve_tones([replace(scene.patch(), masks=tmp_path / "masks")])
    assert found.tones["05.png"].gain == pytest.approx((1, 1, 1), abs=0.01)


def test_samples_are_kept_until_a_photograph_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, cache = coloured(tmp_path, EVEN), tmp_path / "cache.npz"
    first = solve_tones([scene.patch()], cache)
    decoded: list[str] = []
    from splatbatch.scene.colors import observations

    read = observations.sample
    monkeypatch.setattr(observations, "sample", lambda shot: decoded.append(shot.name) or read(shot))
    assert (solve_tones([scene.patch()], cache), decoded) == (first, [])
    shade(scene.photographs / "02.png", 1.25)
    solve_tones([scene.patch()], cache)
    assert decoded == ["02.png"]
    cache.write_bytes(b"PK\x03\x04 torn")
    assert solve_tones([scene.patch()], cache).tones.keys() == first.tones.keys()


def test_a_patch_without_images_keeps_no_other_from_its_colours(tmp_path: Path) -> None:
    scene, empty = coloured(tmp_path / "scene", EVEN | {"01.png": 1.3}), coloured(tmp_path / "empty", {})
    assert shots_of([empty.patch()]) == {}
    tones = solve_tones([empty.patch(), replace(scene.patch(), name="p1")]).tones
    assert tones.keys() == solve_tones([scene.patch()]).tones.keys() != set()


def test_a_scene_of_few_tracks_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from splatbatch.scene.colors import observations

    monkeypatch.setattr(observations, "sample", lambda shot: pytest.fail(f"{shot.name} was decoded"))
    found = solve_tones([coloured(tmp_path, EVEN, num_points=20).patch()])
    assert "no two photographs have 50 points" in found.problem


def test_a_system_that_cannot_be_solved_leaves_all_photographs_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def splu(*_: object) -> None:
        raise RuntimeError("Factor is exactly singular")

    monkeypatch.setattr("splatbatch.scene.colors.solve.DENSE", 0)
    monkeypatch.setattr("scipy.sparse.linalg.splu", splu)
    found = solve_tones([coloured(tmp_path, EVEN).patch()])
    assert found.problem == "the system of equations cannot be solved (Factor is exactly singular)"
    assert not found.tones and not found.is_even


@pytest.mark.parametrize("num_patches", [1, 3])
def test_a_photograph_tells_no_more_where_more_patches_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_patches: int
) -> None:
    scene = coloured(tmp_path, EVEN | {"01.png": 1.3}, num_points=2400)
    patches = [replace(scene.patch(), name=f"p{number}") for number in range(num_patches)]
    monkeypatch.setattr("splatbatch.scene.colors.observations.MOST_EACH", 900)
    shots = shots_of(patches)
    assert len(shots) * 450 <= sum(len(shot.points) for shot in shots.values()) <= len(shots) * 900
    gains = {name: tone.gain[0] for name, tone in solve_tones(patches).tones.items()}
    assert gains["01.png"] / gains["02.png"] == pytest.approx(1.3, abs=0.01)


def test_of_more_tracks_than_memory_should_hold_whole_ones_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = coloured(tmp_path, EVEN | {"01.png": 1.3}, num_points=900)
    every = shots_of([scene.patch()])
    monkeypatch.setattr("splatbatch.scene.colors.observations.MOST", 4_000)
    some = shots_of([scene.patch()])
    counts = [sum(len(shot.points) for shot in shots.values()) for shots in (every, some)]
    assert counts[0] > 6_000 and 1_600 < counts[1] <= 4_000
    seen_by = np.bincount(np.concatenate([shot.points for shot in some.values()]))
    assert seen_by[seen_by > 0].min() > 1
    gains = {name: tone.gain[0] for name, tone in solve_tones([scene.patch()]).tones.items()}
    assert gains["01.png"] / gains["02.png"] == pytest.approx(1.3, abs=0.01)
