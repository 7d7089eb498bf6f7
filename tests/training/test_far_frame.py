"""A patch in map coordinates is trained like the same patch at home, and measured from the file that is left."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_batch import QUARRY
from far_away import UTM, move
from small_patch import recipe, trained

from splatbatch.config import Recipe, Training
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.frame import offset_for, shifted, span_of
from splatbatch.scene.patches import Patch
from splatbatch.splats import Gaussians, read_header, read_splat, write_splat
from splatbatch.training.evaluation.evaluate import evaluate
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import export, init_from_points, load_splat
from splatbatch.training.photos.dataset import PhotoFolders, TrainingImages, decode_views


def decoded(model: Reconstruction, images: Path) -> TrainingImages:
    return decode_views(model, PhotoFolders(images), frozenset(), Training(resolution="1/2", workers=0))


@pytest.fixture
def far_quarry(tmp_path: Path) -> Reconstruction:
    shutil.copytree(QUARRY / "sparse/0", tmp_path / "far")
    move(tmp_path / "far")
    span = span_of(read_reconstruction(tmp_path / "far"))
    assert span
    return shifted(read_reconstruction(tmp_path / "far"), offset_for([span]))


def ulps(near: torch.Tensor, far: torch.Tensor) -> float:
    """Return the largest difference in steps of float32 at the largest value: what a coordinate can tell apart."""
    return float((near - far).abs().max() / np.spacing(np.float32(near.abs().max())))


def test_first_means_and_poses_are_those_of_the_local_copy_to_one_ulp(far_quarry: Reconstruction) -> None:
    home = read_reconstruction(QUARRY / "sparse/0")
    near, far = (decoded(model, QUARRY / "images") for model in (home, far_quarry))
    means = [
        init_from_points(model.points, views.frame, Training())["means"]
        for model, views in ((home, near), (far_quarry, far))
    ]
    assert ulps(*means) <= 1
    poses = [torch.stack([photo.view.viewmat for photo in views.training]) for views in (near, far)]
    assert ulps(*poses) <= 1


@pytest.fixture
def far_patch(patch: Patch) -> Patch:
    move(patch.sparse)
    return dataclasses.replace(patch, offset=UTM)


@pytest.mark.all
def test_a_far_patch_is_trained_as_well_as_the_near_one(patch: Patch) -> None:
    _, near = trained(patch, recipe(), "near")
    move(patch.sparse)
    _, far = trained(dataclasses.replace(patch, offset=UTM), recipe(), "far")
    figures = [splat.metrics["final"]["psnr"] for splat in (near, far)]
    assert figures[0] == pytest.approx(figures[1], abs=0.05)


@pytest.mark.all
def test_its_file_says_where_it_lies_and_lies_near_the_origin(far_patch: Patch) -> None:
    folder, _ = trained(far_patch, recipe())
    assert read_header(folder.splat).offset == UTM
    assert np.abs(read_splat(folder.splat).means).max() < 100


@pytest.mark.all
def test_the_file_of_a_local_patch_has_no_new_line(patch: Patch) -> None:
    folder, _ = trained(patch, recipe())
    assert b"offset" not in folder.splat.read_bytes()[:500]


@pytest.mark.all
def test_what_counts_is_measured_from_the_file(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that loses precision, as one did at UTM northings, shows in the figures."""

    def coarse(path: Path, splat: Gaussians, *rest: object) -> None:
        write_splat(path, dataclasses.replace(splat, means=splat.means.round(0)), *rest)

    _, whole = trained(patch, recipe(), "whole")
    monkeypatch.setattr("splatbatch.training.attempt.write_splat", coarse)
    _, rounded = trained(patch, recipe(), "rounded")
    assert rounded.metrics["final"]["psnr"] < whole.metrics["final"]["psnr"] - 1


@pytest.mark.all
def test_the_file_is_as_good_as_the_splat_in_memory(patch: Patch) -> None:
    folder, splat = trained(patch, recipe())
    model = read_reconstruction(patch.sparse)
    holdout = frozenset(splat.metrics["final"]["images"])
    views = decode_views(model, PhotoFolders(patch.images), holdout, Training(workers=0))
    again = evaluate(load_splat(read_splat(folder.splat), views.frame, torch.device("cpu")), views.holdout, recipe())
    assert again and again["psnr"] == pytest.approx(splat.metrics["final"]["psnr"], abs=1e-4)


def test_reading_what_was_written_gives_the_same_gaussians_to_the_last_bits() -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "means": (50, 3),
        "scales": (50, 3),
        "quats": (50, 4),
        "opacities": (50,),
        "sh0": (50, 1, 3),
        "shN": (50, 3, 3),
    }
    gaussians = {name: torch.nn.Parameter(torch.randn(*shape, generator=generator)) for name, shape in shapes.items()}
    frame = LocalFrame(np.array([1.0, -2.0, 30.0]), scale=7.0, scene_scale=1.0)
    back = load_splat(export(gaussians, frame), frame, torch.device("cpu"))
    quats = torch.nn.functional.normalize(gaussians["quats"], dim=-1)
    for name, value in back.items():
        assert torch.allclose(value, quats if name == "quats" else gaussians[name], atol=2e-6), name


@pytest.mark.all
def test_what_was_read_lies_in_memory_as_kernels_need_it(patch: Patch) -> None:
    folder, _ = trained(patch, recipe())
    frame = LocalFrame(np.zeros(3), scale=1.0, scene_scale=1.0)
    gaussians = load_splat(read_splat(folder.splat), frame, torch.device("cpu"))
    assert all(value.is_contiguous() for value in gaussians.values())


@pytest.mark.all
def test_a_kill_while_it_is_measured_leaves_no_splat(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("splatbatch.training.attempt.picture_views", die)
    with pytest.raises(KeyboardInterrupt):
        trained(patch, recipe())
    folder = patch.images.parent / "attempt-01"
    assert not list(folder.glob("*.ply")) and not list(folder.glob(".*.ply.*"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["quarry", "caliterra-small"])
def test_over_three_seeds_a_copy_in_utm_is_within_the_spread_of_the_seeds(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, record_property: object
) -> None:
    home = QUARRY if name == "quarry" else request.getfixturevalue("real_photos")
    shutil.copytree(home / "sparse/0", tmp_path / "far/sparse/0")
    move(tmp_path / "far/sparse/0")
    span = span_of(read_reconstruction(tmp_path / "far/sparse/0"))
    assert span
    patches = {
        "near": Patch(name, home / "sparse/0", home / "images"),
        "far": Patch(name, tmp_path / "far/sparse/0", home / "images", offset=offset_for([span])),
    }
    (tmp_path / "images").symlink_to(home / "images")
    figures = {
        where: [_psnr(dataclasses.replace(patch, images=tmp_path / "images"), seed, where) for seed in (1, 2, 3)]
        for where, patch in patches.items()
    }
    record_property("figure", f"{name}: {figures}")
    spread = max(figures["near"]) - min(figures["near"])
    assert abs(np.mean(figures["near"]) - np.mean(figures["far"])) <= max(spread, 0.02)


def _psnr(patch: Patch, seed: int, where: str) -> float:
    settings = Recipe.model_validate(
        {"training": {"max_steps": 300, "device": "cpu", "cap_max": 5000, "seed": seed, "resolution": "1/4"}}
    )
    _, splat = trained(patch, settings, f"{where}-{seed}")
    return float(splat.metrics["final"]["psnr"])
