"""Little overlap is told before anything is trained: by the share of the surface that fewer than three places see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from cut_quarry import thinned_quarry

from splatbatch.scene.audit.model import OVERLAP_TOLD
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import Camera, Floats, Image, Points
from splatbatch.scene.overlap import share_seen_by_few, surface_cells

DOWN = (0.0, 1.0, 0.0, 0.0)
"""Half a turn about x: it looks along -z."""
LENGTH, WIDTH = 200.0, 20.0
"""Of the ground that is flown over, along x and y."""


def flight(spacing: float, far: Floats | None = None) -> Reconstruction:
    """Return a strip of level ground, flown over once at a height of 50; a photograph shows 50 along, 50 across."""
    camera = Camera(1, "PINHOLE", 100, 100, (100.0, 100.0, 50.0, 50.0))
    along = np.arange(0.0, LENGTH + 0.1, spacing)
    images = tuple(  # x and -y, -z: the camera's own coordinates of the middle of the world
        Image(number, f"{number:03}.jpg", 1, DOWN, (-float(x), WIDTH / 2, 50.0)) for number, x in enumerate(along, 1)
    )
    ground = np.random.default_rng(0).uniform((0, 0, -0.5), (LENGTH, WIDTH, 0.5), (20_000, 3))
    xyz = ground if far is None else np.vstack([ground, far])
    return Reconstruction(Path("flown"), {1: camera}, images, points_at(xyz))


def points_at(xyz: Floats) -> Points:
    ids = np.arange(len(xyz))
    return Points(xyz, np.zeros((len(xyz), 3), np.uint8), np.zeros(len(xyz)), ids, ids.astype(np.uint64))


@pytest.mark.parametrize(("spacing", "share"), [(5.0, 0.0), (10.0, 0.0), (20.0, 0.55), (25.0, 1.0), (60.0, 1.0)])
def test_the_share_is_what_fewer_than_three_photographs_of_a_strip_show(spacing: float, share: float) -> None:
    """Of 50 that a photograph shows, 20 apart: 10 of each 20 are seen three times; at the ends it is less."""
    assert share_seen_by_few(flight(spacing)) == pytest.approx(share, abs=0.06)


def test_photographs_from_one_place_are_one() -> None:
    assert share_seen_by_few(flight(5.0)) == pytest.approx(0.0, abs=0.02)
    model = flight(60.0)
    again = [replace(one, id=one.id + 100 * n, name=f"{n}{one.name}") for n in range(4) for one in model.images]
    assert share_seen_by_few(replace(model, images=tuple(again))) == 1.0


def test_held_out_photographs_do_not_count() -> None:
    model = flight(10.0)
    names = [one.name for one in model.images]
    assert share_seen_by_few(model, names[1::2]) == share_seen_by_few(flight(20.0))


def test_the_background_is_not_asked_for() -> None:
    """Far hills are seen from one direction alone, and they fill most of the space."""
    far = np.random.default_rng(1).uniform((-2000, -2000, 0), (2000, 2000, 300), (1_000, 3))
    assert share_seen_by_few(flight(5.0, far)) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("num", [0, 1, 40])
def test_of_hardly_any_points_nothing_is_said(num: int) -> None:
    model = flight(20.0)
    assert share_seen_by_few(replace(model, points=points_at(model.points.xyz[:num]))) is None


def test_points_that_are_no_numbers_or_lie_on_each_other_make_no_cells() -> None:
    for points, centers in ((np.nan, 1.0), (1.0, 1.0), (1.0, np.nan), (1.0, 2.0)):
        assert len(surface_cells(np.full((10, 3), points), np.full((5, 3), centers))[0]) == 0


def test_it_is_told_before_training_with_what_mends_it(tmp_path: Path) -> None:
    folder = thinned_quarry(tmp_path / "quarry", 3)
    share = share_seen_by_few(read_reconstruction(folder / "patches/p1/sparse/0"))
    assert share is not None and share > OVERLAP_TOLD / 2
    found = json.loads(invoke("verify-dims", "--json", "--config", str(folder)).out)["findings"]
    told = {one["patch"]: one for one in found if one["kind"] == "little_overlap"}
    assert set(told) == {"p1"} and told["p1"]["severity"] == "warning"
    assert "more steps do not help" in told["p1"]["message"]
    assert "splatbatch plan-capture p1" in told["p1"]["remedy"]
    planned = json.loads(invoke("plan", "--json", "--config", str(folder)).out)["patches"]
    assert {one["patch"]: one["overlap"] for one in planned} == {
        "p0": "", "p1": f"overlap: {told['p1']['message']}. {told['p1']['remedy']}",
    }  # fmt: skip
    assert "p1: overlap: training photographs see" in invoke("plan", "--config", str(folder)).out


def test_usual_overlap_is_no_finding(tmp_path: Path) -> None:
    found = json.loads(invoke("verify-dims", "--json", "--config", str(thinned_quarry(tmp_path / "quarry", 1))).out)
    assert "little_overlap" not in {one["kind"] for one in found["findings"]}
