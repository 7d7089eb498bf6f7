"""3D Tiles: where Gaussians lie on the globe, what a tile holds, and what is left out from afar."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_batch import SHARED
from foreign_formats import COMPRESSION, glb_parts, glb_places, spz_places
from letters import letters
from made_splat import write_scene
from splat_tool import tool_or_skip
from tiled import random_splat

from splatbatch.errors import ConfigError, TrainerError
from splatbatch.output.records.publication import TiledPatch
from splatbatch.publish.tiles import geodesy
from splatbatch.publish.tiles.geodesy import on_globe, upright
from splatbatch.publish.tiles.glb import glb, leaves, pack, unpack
from splatbatch.publish.tiles.tree import (
    REFINED_AT_PX,
    USUAL_ERROR_PX,
    Tile,
    Tiling,
    box_of,
    halved,
    importance,
    some,
    usual_size,
)
from splatbatch.publish.tiles.write import of_patch, of_scene
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.rotations import to_quats
from splatbatch.splats import Gaussians, read_splat
from splatbatch.splats.ply import covariances
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera

UTM = np.array([532_000.0, 5_000_200.0, 310.0])
Y_UP_TO_Z_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
"""What readers of 3D Tiles do to the axes of a glTF."""


def tiles_of(gaussians: Gaussians, folder: Path, most: int = 60_000) -> Tile:
    return Tiling(gaussians, folder, most).tiles()


def on_earth(places: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """Return where a reader draws places of a glTF, by the transform of its tile."""
    matrix = transform @ Y_UP_TO_Z_UP
    return places.astype(np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


@pytest.fixture
def pyproj() -> Any:
    return pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")


@pytest.mark.parametrize("width_m", [50.0, 3000.0])
def test_gaussians_lie_within_a_millimetre_of_where_their_crs_has_them(
    pyproj: Any, tmp_path: Path, width_m: float
) -> None:
    splat = random_splat(2000, 0)
    source = splat.means.astype(np.float64) / np.abs(splat.means).max() * width_m / 2 + UTM
    frame = on_globe("EPSG:32632", UTM).around(np.round(UTM))
    tile = tiles_of(replace(splat, means=frame.places(source).astype(np.float32)), tmp_path)
    found = on_earth(glb_places(tmp_path / tile.uri), frame.transform)
    transformer = pyproj.Transformer.from_crs("EPSG:32632", "EPSG:4978", always_xy=True)
    wanted = np.stack(transformer.transform(*source.T), axis=1)
    assert np.linalg.norm(found - wanted, axis=1).max() < 1e-3


def test_the_points_of_a_real_scene_in_utm_lie_within_a_millimetre(pyproj: Any, tmp_path: Path) -> None:
    model = SHARED / "data/caliterra/sparse"
    if not model.is_dir():
        pytest.skip("the real scene (shared/data/caliterra) is not here")
    found_in = next(path.parent for path in sorted(model.rglob("points3D.*")))
    source = read_reconstruction(found_in).points.xyz + UTM
    splat = random_splat(len(source), 0)
    stored = (source - UTM).astype(np.float32)  # as a splat with this offset has them
    frame = on_globe("EPSG:32632", UTM).around(np.round(np.median(source, axis=0)))
    places = frame.places(stored.astype(np.float64) + UTM).astype(np.float32)
    tile = tiles_of(replace(splat, means=places), tmp_path, most=len(source))
    transformer = pyproj.Transformer.from_crs("EPSG:32632", "EPSG:4978", always_xy=True)
    wanted = np.stack(transformer.transform(*source.T), axis=1)
    assert np.linalg.norm(on_earth(glb_places(tmp_path / tile.uri), frame.transform) - wanted, axis=1).max() < 1e-3


def test_up_leads_away_from_the_earth_and_north_to_the_pole(pyproj: Any) -> None:
    middle = np.array([500_000.0, 5_000_000.0, 100.0])  # on the middle meridian, where the grid's north is north
    ground = on_globe("EPSG:32632", middle)
    east, north, up = ground.rotation.T
    place = ground.convert(middle[None])[0]
    assert up @ place / np.linalg.norm(place) > 0.9999
    assert north[2] > 0.5 and abs(east[2]) < 1e-6
    assert ground.scale == pytest.approx(1 / 0.9996, rel=1e-3)


def test_a_local_model_is_not_taken_for_one_around_the_centre_of_the_earth(pyproj: Any) -> None:
    with pytest.raises(ConfigError, match=r"scene.crs: EPSG:4978: .* would be 6,3\d\d km below the ground") as caught:
        on_globe("EPSG:4978", np.array([3.0, -2.0, 1.0]))
    assert "leave scene.crs out" in caught.value.hint
    place = on_globe("EPSG:32632", UTM).convert(UTM[None])[0]
    assert on_globe("EPSG:4978", place).scale == pytest.approx(1)


def test_feet_are_metres_in_the_tileset(pyproj: Any) -> None:
    ground = on_globe("EPSG:2263", np.array([987_000.0, 205_000.0, 30.0]))  # New York, in US feet
    assert ground.scale == pytest.approx(0.3048, rel=1e-3)


@pytest.mark.parametrize(
    ("crs", "middle", "words"),
    [
        ("EPSG:99999999", UTM, "PROJ knows no such coordinate system"),
        ("somewhere", UTM, "PROJ knows no such coordinate system"),
        ("EPSG:4326", np.array([9.0, 45.0, 0.0]), "counts degrees"),
        ("EPSG:32632", np.array([0.0, 0.0, 3.0]), "outside the area that it is made for"),
        ("EPSG:32632", np.array([1e12, 1e12, 0.0]), "nowhere on Earth"),
    ],
)
def test_a_crs_that_does_not_fit_is_refused(pyproj: Any, crs: str, middle: np.ndarray, words: str) -> None:
    with pytest.raises(ConfigError, match=r"scene\.crs") as refused:
        on_globe(crs, middle)
    assert words in refused.value.message and "EPSG:32632" in refused.value.hint


def test_without_pyproj_a_crs_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyproj", None)
    with pytest.raises(TrainerError) as refused:
        on_globe("EPSG:32632", UTM)
    assert "splatbatch[geo]" in refused.value.hint


def test_without_a_crs_the_sky_is_above() -> None:
    ground = upright((0.0, -1.0, 0.0))
    frame = ground.around(np.zeros(3))
    shown = on_earth(frame.places(np.array([[0.0, -2.0, 0.0]])), frame.transform)
    assert np.allclose(shown, [[0, 0, 2]]) and np.linalg.det(ground.rotation) == pytest.approx(1)


@pytest.mark.contract
def test_the_splat_of_a_tile_is_what_the_tool_reads_too(tmp_path: Path) -> None:
    tool, wanted = tool_or_skip(), letters(degree=2)
    (tmp_path / "own.spz").write_bytes(pack(wanted))
    tool.must([str(tmp_path / "own.spz"), str(tmp_path / "back.ply")], "read back")
    found = read_splat(tmp_path / "back.ply")
    assert np.allclose(found.means, wanted.means, atol=1e-5) and np.allclose(found.scales, wanted.scales, atol=0.032)
    assert np.allclose(found.sh0, wanted.sh0, atol=0.02) and np.allclose(found.shN, wanted.shN, atol=0.005)
    assert np.allclose(found.opacities, wanted.opacities, atol=0.05)
    one, other = (quats / np.linalg.norm(quats, axis=1, keepdims=True) for quats in (found.quats, wanted.quats))
    assert np.abs((one * other).sum(axis=1)).min() > 0.999


def test_what_is_packed_comes_back() -> None:
    wanted = letters(degree=3)
    found = unpack(pack(wanted))
    assert np.allclose(found.means, wanted.means, atol=1e-5) and np.allclose(found.scales, wanted.scales, atol=0.032)
    assert np.allclose(found.sh0, wanted.sh0, atol=0.02) and np.allclose(found.shN, wanted.shN, atol=0.005)
    assert np.allclose(found.opacities, wanted.opacities, atol=0.05)
    assert np.allclose(*(covariances(wanted.scales, one.quats) for one in (found, wanted)), atol=1e-3)
    with pytest.raises(ValueError, match="SPZ"):
        unpack(pack(wanted)[:-20])
    with pytest.raises(ValueError, match="SPZ"):
        unpack(b"no SPZ at all")


def test_opacities_of_none_and_all_come_back_finite() -> None:
    wanted = replace(letters(), opacities=np.linspace(-40, 40, len(letters()), dtype=np.float32))
    found = unpack(pack(wanted)).opacities
    assert np.isfinite(found).all() and found[0] < -10 and found[-1] > 10


@pytest.mark.parametrize("crs", ["", "EPSG:32632", "EPSG:2263"])
def test_the_finest_tiles_lead_back_to_the_splat(tmp_path: Path, crs: str) -> None:
    if crs:
        pytest.importorskip("pyproj", reason="pyproj is not installed (extra geo)")
    offset = np.array([987_000.0, 205_000.0, 30.0]) if crs == "EPSG:2263" else UTM
    places = np.random.default_rng(2).normal(scale=9, size=(2000, 3)).astype(np.float32)
    splat = replace(random_splat(2000, 1), means=places)
    ground = on_globe(crs, offset) if crs else upright((0.0, -1.0, 0.0))
    frame = ground.around(offset)
    places = frame.places(splat.means.astype(np.float64) + offset).astype(np.float32)
    tile = tiles_of(replace(splat, means=places), tmp_path, most=300)
    (tmp_path / "tileset.json").write_text(json.dumps(of_patch(tile, frame)))
    found = list(leaves(tmp_path / "tileset.json", ground, offset))
    assert len(found) == sum(not one.children for one in tile.every()) > 4
    means = np.concatenate([one.means for one in found])
    apart = np.linalg.norm(means[:, None] - splat.means[None], axis=2)
    assert len(means) == len(splat) and apart.min(axis=0).max() < 1e-3 and apart.min(axis=1).max() < 1e-3
    order = apart.argmin(axis=1)
    assert np.allclose(np.concatenate([one.sh0 for one in found]), splat.sh0[order].clip(-3.34, 3.34), atol=0.03)


@pytest.mark.parametrize("degree", [0, 3])
def test_a_tile_says_what_it_holds(degree: int) -> None:
    document, binary = glb_parts(glb(letters(degree)))
    primitive = document["meshes"][0]["primitives"][0]
    assert document["extensionsRequired"] == ["KHR_gaussian_splatting", COMPRESSION]
    assert len(primitive["attributes"]) == 4 + (degree + 1) ** 2 - 1
    assert {one["count"] for one in document["accessors"]} == {len(letters())}
    assert np.allclose(document["accessors"][0]["max"], letters().means.max(axis=0))
    assert len(spz_places(binary)) == len(letters())


def test_a_splat_of_one_gaussian_is_one_tile(tmp_path: Path) -> None:
    alone = some(letters(), slice(0, 1))
    tile = tiles_of(alone, tmp_path)
    record = of_patch(tile, upright((0.0, -1.0, 0.0)).around(np.zeros(3)))
    assert (tile.error, tile.children) == (0.0, ()) and record["geometricError"] > 0
    assert all(abs(record["root"]["boundingVolume"]["box"][place]) > 0 for place in (3, 7, 11))


def every(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    for child in record.get("children", ()):
        yield from every(child)


def test_tiles_are_small_and_each_is_less_wrong_than_the_one_above(tmp_path: Path) -> None:
    splat = random_splat(4000, 1)
    tile = tiles_of(splat, tmp_path, most=600)
    leaves = [one for one in tile.every() if not one.children]
    assert sum(one.num_gaussians for one in leaves) == len(splat) and {one.error for one in leaves} == {0.0}
    for one in tile.every():
        assert one.num_gaussians <= 600 and (tmp_path / one.uri).stat().st_size == one.num_bytes
        for child in one.children:
            assert child.error < one.error
            assert (child.box[0] >= one.box[0]).all() and (child.box[1] <= one.box[1]).all()
    found = np.concatenate([glb_places(tmp_path / one.uri) for one in leaves])
    order, wanted = np.lexsort(found.T), splat.means[np.lexsort(splat.means.T)]
    assert np.allclose(np.sort(found[order], axis=0), np.sort(wanted, axis=0), atol=1e-3)


def test_a_gaussian_far_out_makes_no_other_place_coarse(tmp_path: Path) -> None:
    splat = random_splat(500, 0)
    splat.means[7] = 300_000.0
    tile = tiles_of(splat, tmp_path)
    near, far = tile.children
    assert (near.num_gaussians, far.num_gaussians) == (499, 1)
    found = glb_places(tmp_path / near.uri)
    assert np.abs(found - np.delete(splat.means, 7, axis=0)).max() < 1e-3
    splat.means[7] = 1e9
    with pytest.raises(ValueError, match="too far for 3D Tiles"):
        tiles_of(splat, tmp_path)


def test_the_box_of_a_tile_leaves_stray_gaussians_out() -> None:
    splat = random_splat(5000, 0)
    splat.means[0], splat.opacities[0] = 1e6, -9.0
    low, high = box_of(splat)
    assert high.max() < 1000
    inside = ((splat.means >= low) & (splat.means <= high)).all(axis=1)
    weights = importance(splat)
    assert weights[inside].sum() > 0.999 * weights.sum()


def test_half_as_many_gaussians_cover_as_much() -> None:
    flat = letters(degree=2)
    opacities = np.linspace(-3, -1, len(flat), dtype=np.float32)
    flat = replace(flat, scales=np.full_like(flat.scales, math.log(0.05)), opacities=opacities)
    half = halved(flat)
    assert len(half) == len(flat) / 2
    assert importance(half).sum() == pytest.approx(importance(flat).sum(), rel=0.02)
    assert usual_size(half) > 1.1 * usual_size(flat)
    middles = [np.average(one.means, axis=0, weights=importance(one)) for one in (half, flat)]
    assert np.allclose(*middles, atol=0.05)
    strongest = importance(flat).argsort()[-len(flat) // 5 :]
    assert {*map(tuple, flat.means[strongest].tolist())} <= {*map(tuple, half.means.tolist())}
    assert half.shN.shape[1] == 8 and not half.shN[:, 3:].any() and half.shN[:, :3].any()


def drawn(gaussians: Gaussians, away: float, height_px: int, fov_rad: float) -> np.ndarray:
    """Return what our rasteriser draws of a splat from so far away, aslant from above, COLMAP's y leading down."""
    focal = height_px / 2 / math.tan(fov_rad / 2)
    matrix = torch.eye(4)
    matrix[:3, :3] = torch.tensor([[1, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]])
    matrix[2, 3] = away
    calibration = torch.tensor([[focal, 0, height_px / 2], [0, focal, height_px / 2], [0, 0, 1]])
    values = {name: torch.from_numpy(value) for name, value in vars(gaussians).items()}
    with torch.inference_mode():
        view = RenderCamera(matrix, calibration, height_px, height_px)
        return rasterize({**values, "sh0": values["sh0"][:, None]}, view, RasterOptions(0)).colors.clamp(0, 1).numpy()


def test_a_level_looks_like_the_one_below_from_where_they_change(tmp_path: Path) -> None:
    write_scene(tmp_path / "a.ply")
    splat = read_splat(tmp_path / "a.ply")
    half, height_px, fov_rad = halved(splat), 300, math.radians(60)
    error = usual_size(half) * USUAL_ERROR_PX / REFINED_AT_PX
    away = error * height_px / (2 * USUAL_ERROR_PX * math.tan(fov_rad / 2))  # where viewers change levels
    near, far = drawn(splat, away, height_px, fov_rad), drawn(half, away, height_px, fov_rad)
    shown = near.max(axis=2) > 0.05
    assert shown.sum() > 500
    # a chequered floor, whose edges are as hard as they can be: on its own pixels, and on the whole picture
    assert -10 * np.log10(np.square(near - far)[shown].mean()) > 23
    assert -10 * np.log10(np.square(near - far).mean()) > 28


def test_axes_become_the_rotation_that_has_them() -> None:
    quats = np.random.default_rng(3).normal(size=(200, 4)).astype(np.float32)
    quats[:4] = np.eye(4)
    ones = covariances(np.log(np.tile([1.0, 2.0, 3.0], (200, 1))).astype(np.float32), quats)
    variances, axes = np.linalg.eigh(ones.astype(np.float64))
    again = covariances((0.5 * np.log(variances)).astype(np.float32), to_quats(axes))
    assert np.allclose(ones, again, atol=1e-4)


def test_the_root_holds_all_patches(tmp_path: Path) -> None:
    ground = upright((0.0, -1.0, 0.0))
    patches = {}
    for name, at in {"p0": -50.0, "p1": 50.0}.items():
        frame = ground.around(np.array([at, 0.0, 0.0]))
        patches[name] = (f"{name}/tileset.json", of_patch(tiles_of(letters(), tmp_path), frame))
    root = of_scene(patches, dict.fromkeys(patches, TiledPatch("", 108, 1, 2000)))
    assert json.loads(json.dumps(root)) == root
    box = np.array(root["root"]["boundingVolume"]["box"])
    half = np.abs(box[3:].reshape(3, 3)).sum(axis=0)
    for child in root["root"]["children"]:
        own = np.array(child["boundingVolume"]["box"])
        reach = np.abs(own[3:].reshape(3, 3)).sum(axis=0)
        assert (np.abs(own[:3] - box[:3]) + reach <= half * 1.0001).all()
        assert child["geometricError"] <= root["geometricError"]
    assert geodesy.TO_CONTENT @ Y_UP_TO_Z_UP[:3, :3] == pytest.approx(np.eye(3))
