"""What a seam's figures say of a planted step is what was planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cut_quarry import cut_quarry, part, quarry_splat, stretched, tinted

from splatbatch.config import Training
from splatbatch.output.records.evaluation import SeamMeasurement
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.partition.border import looks_across, reach_of, seams_of, shares_of
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition
from splatbatch.splats.blocks import index_blocks
from splatbatch.splats.ply import Gaussians, write_splat
from splatbatch.training.photos.dataset import PhotoFolders
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.scene.block_cache import BlockCache
from splatbatch.training.scene.loaded_scene import Backdrop, PatchPlacement, PatchRenderer
from splatbatch.training.scene.measure import SeamSides
from splatbatch.training.scene.photographs import CameraView, ScenePhotographs

CPU = torch.device("cpu")
UNIT = 20.0


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    return cut_quarry(tmp_path_factory.mktemp("cut") / "quarry")


@pytest.fixture(scope="module")
def shots(partition: Partition) -> list[CameraView]:
    model = read_reconstruction(partition.source, tracks=True)
    shares = shares_of(partition, model)
    names = [name for name in sorted(shares) if looks_across(shares[name], 0, 1)][::6]
    images = partition.path.parents[1] / "images"
    photographs = ScenePhotographs(model, PhotoFolders(images), Training(resolution="1/2"), names)
    return list(photographs.shots(names, UNIT, CPU))


@pytest.fixture(scope="module")
def whole() -> Gaussians:
    return quarry_splat()


@pytest.fixture
def seen(partition: Partition, tmp_path: Path):
    def seen(one: Gaussians, other: Gaussians, shots: list[CameraView]) -> SeamMeasurement:
        stores = []
        for name, gaussians in (("one", one), ("other", other)):
            write_splat(tmp_path / f"{name}.ply", gaussians, 1)
            stores.append(BlockCache(index_blocks(tmp_path / f"{name}.ply", most=2000), CPU, most=10_000_000))
        sides = SeamSides(
            *map(PatchRenderer, stores),
            PatchPlacement(partition, band_of(partition), partition.offset),
            RasterOptions(),
        )
        sides.look(shots)
        return sides.figures()

    return seen


def band_of(partition: Partition) -> Box:
    (seam,) = seams_of(partition)
    return reach_of(seam.one).clipped(reach_of(seam.other))


def halves(partition: Partition, whole: Gaussians) -> tuple[Gaussians, Gaussians]:
    """Return what lies in the grown box of each of the two patches."""
    places = partition.in_axes(whole.means.astype(np.float64))
    one, other = (part(whole, core.grown.holds(places)) for core in partition.cores)
    assert len(one) < len(whole) > len(other)
    return one, other


@pytest.mark.all
def test_two_sides_that_are_the_same_differ_in_nothing(seen, whole: Gaussians, shots: list[CameraView]) -> None:
    found = seen(whole, whole, shots)
    assert (found.psnr_between, found.color_offset, found.depth_step, found.density_ratio) == (100.0, 0.0, 0.0, 1.0)
    assert found.num_views == len(shots) >= 4
    assert found.share is not None and found.share > 0.05


def test_halves_of_one_splat_have_no_step(
    seen, partition: Partition, whole: Gaussians, shots: list[CameraView]
) -> None:
    found = seen(*halves(partition, whole), shots)
    assert found.color_offset is not None and found.color_offset < 0.1
    assert found.depth_step is not None and abs(found.depth_step) < 5e-4
    assert found.density_ratio == 1.0


@pytest.mark.all
@pytest.mark.parametrize("planted", [(0.0, 4.0, 0.0), (-6.0, -6.0, -6.0), (2.0, 0.0, -1.0)])
def test_a_planted_colour_offset_is_found_by_its_figure(
    seen, partition: Partition, whole: Gaussians, shots: list[CameraView], planted: tuple[float, float, float]
) -> None:
    one, other = halves(partition, whole)
    found = seen(one, tinted(other, planted), shots)
    assert found.color_offsets == pytest.approx([-value for value in planted], abs=0.25)
    assert found.color_offset == pytest.approx(max(map(abs, planted)), abs=0.25)
    assert found.depth_step is not None and abs(found.depth_step) < 5e-4


@pytest.mark.all(but="0.02")
@pytest.mark.parametrize("planted", [0.02, -0.05])
def test_a_planted_depth_step_is_found_by_its_figure(
    seen, whole: Gaussians, shots: list[CameraView], planted: float
) -> None:
    shot = shots[0]  # what is stretched about a camera looks the same to it: only its depth tells
    found = seen(whole, stretched(whole, shot.frame.origin, 1 + planted), [shot])
    assert found.depth_step == pytest.approx(-planted / (1 + planted / 2), abs=2e-4)
    assert found.color_offset == pytest.approx(0, abs=0.05)


@pytest.mark.all
def test_half_of_the_gaussians_are_half_as_dense(seen, whole: Gaussians, shots: list[CameraView]) -> None:
    found = seen(whole, part(whole, np.arange(len(whole)) % 2 == 0), shots)
    assert found.density_ratio == pytest.approx(2, abs=0.1)


def test_too_little_in_common_is_no_figure(
    seen, partition: Partition, whole: Gaussians, shots: list[CameraView]
) -> None:
    places = partition.in_axes(whole.means.astype(np.float64))
    apart = [
        part(whole, core.core.holds(places) & ~partition.cores[0].grown.clipped(partition.cores[1].grown).holds(places))
        for core in partition.cores
    ]
    found = seen(*apart, shots)
    assert found.color_offset is None and found.depth_step is None
    assert "pixels" in found.problem


@pytest.mark.all
def test_the_backdrop_stands_behind_a_patch_where_it_does_not_reach(
    partition: Partition, whole: Gaussians, shots: list[CameraView], tmp_path: Path
) -> None:
    reach = PatchPlacement(partition, reach_of(partition.cores[0]), partition.offset)
    inside = reach.box.holds(partition.in_axes(whole.means.astype(np.float64)))
    assert 0.2 < inside.mean() < 0.8
    stores = {}
    for name, gaussians in (("own", part(whole, inside)), ("whole", whole)):
        write_splat(tmp_path / f"{name}.ply", gaussians, 1)
        stores[name] = BlockCache(index_blocks(tmp_path / f"{name}.ply"), CPU, most=10_000_000)
    own, every = PatchRenderer(stores["own"], Backdrop(stores["whole"], reach)).seen_from(
        shots[0].frame, shots[0].photo.view
    )
    as_one = stores["whole"].seen_from(shots[0].frame, shots[0].photo.view)
    assert len(own["means"]) < len(every["means"]) == len(as_one["means"])
    pictures = [rasterize(one, shots[0].photo.view, RasterOptions(sh_degree=1)).colors for one in (every, as_one)]
    assert torch.allclose(*pictures, atol=1e-5)
