"""A splat larger than memory: what is seen of it is loaded, and looks as if all of it were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cut_quarry import QUARRY, quarry_splat
from wide_scene import above, write_town

from splatbatch.config import Training
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.splats.blocks import index_blocks
from splatbatch.splats.ply import write_splat
from splatbatch.training.photos.dataset import PhotoFolders
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.scene.block_cache import BlockCache
from splatbatch.training.scene.photographs import ScenePhotographs

CPU = torch.device("cpu")
DEGREE_3 = 45
"""Coefficients beside the first, of a splat as they are usually trained: 236 bytes a Gaussian."""


def test_every_gaussian_lies_in_one_block_and_none_is_larger_than_it_should_be(tmp_path: Path) -> None:
    write_town(tmp_path / "town.ply", 100_000)
    blocks = index_blocks(tmp_path / "town.ply", most=5000)
    assert blocks.counts.sum() == 100_000
    assert blocks.counts.max() <= 1.2 * 5000
    tables = blocks.rows([one for one in range(len(blocks)) if blocks.counts[one]])
    for one, rows in tables.items():
        assert (rows[:, :3] >= blocks.lower[one]).all() and (rows[:, :3] <= blocks.upper[one]).all()
    (every,) = index_blocks(tmp_path / "town.ply", most=1 << 20).rows([0]).values()
    assert (np.sort(np.concatenate([rows[:, 0] for rows in tables.values()])) == np.sort(every[:, 0])).all()


@pytest.mark.parametrize("most", [300, 10_000_000])
def test_what_is_seen_looks_as_if_everything_were_there(tmp_path: Path, most: int) -> None:
    write_splat(tmp_path / "splat.ply", quarry_splat(), 1)
    model = read_reconstruction(QUARRY / "sparse/0")
    names = [image.name for image in model.images][::9]
    photographs = ScenePhotographs(model, PhotoFolders(QUARRY / "images"), Training(resolution="1/2"), names)
    culled, whole = (BlockCache(index_blocks(tmp_path / "splat.ply", each), CPU, most) for each in (100, 1 << 20))
    assert len(culled.blocks) > 30 and len(whole.blocks) == 2
    for shot in photographs.shots(names, 20.0, CPU):
        seen, every = (
            culled.seen_from(shot.frame, shot.photo.view),
            whole.seen_from(shot.frame, shot.photo.view),
        )
        pictures = [rasterize(one, shot.photo.view, RasterOptions(sh_degree=1)).colors for one in (seen, every)]
        assert torch.allclose(*pictures, atol=1e-5)


def test_what_nobody_sees_is_not_loaded(tmp_path: Path) -> None:
    write_town(tmp_path / "town.ply", 50_000)
    store = BlockCache(index_blocks(tmp_path / "town.ply", 1000), CPU, 1_000_000)
    frame, view = above(-400.0, 300.0, 60.0)
    seen = store.seen_from(frame, view)
    assert 0 < len(seen["means"]) <= store.num_loaded < 10_000
    store.seen_from(frame, view)
    assert store.num_loaded < 10_000  # it lies there still


def test_a_view_of_nothing_is_black(tmp_path: Path) -> None:
    write_town(tmp_path / "town.ply", 5000)
    frame, view = above(9000.0, 0.0, 60.0)
    seen = BlockCache(index_blocks(tmp_path / "town.ply"), CPU, 1_000_000).seen_from(frame, view)
    assert not rasterize(seen, view, RasterOptions(sh_degree=0)).colors.any()


def test_a_file_that_becomes_shorter_is_no_crash(tmp_path: Path) -> None:
    write_town(tmp_path / "town.ply", 200_000)
    blocks = index_blocks(tmp_path / "town.ply", 10_000)
    os.truncate(tmp_path / "town.ply", (tmp_path / "town.ply").stat().st_size // 2)
    with pytest.raises(ValueError, match="cut"):
        blocks.rows([0])


def looked_at(folder: Path, num: int, num_rest: int, most: int) -> tuple[float, int, int]:
    write_town(folder / "town.ply", num, num_rest)
    write_town(folder / "little.ply", 1000, num_rest)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "wide_scene", str(folder / "town.ply"), str(most)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), int(said[1]), int(said[2])


@pytest.mark.all
def test_memory_is_bound_by_what_is_seen_and_not_by_the_file(tmp_path: Path) -> None:
    num, most = 1_500_000, 100_000
    peak_mib, num_loaded, _ = looked_at(tmp_path, num, DEGREE_3, most)
    file_mib = (tmp_path / "town.ply").stat().st_size / 2**20
    assert file_mib > 330 and num_loaded < num / 2
    assert peak_mib < file_mib / 2


@pytest.mark.long
def test_fifty_million_gaussians_fit(tmp_path: Path, record_property) -> None:
    num = 50_000_000
    peak_mib, num_loaded, num_seen = looked_at(tmp_path, num, 0, 4_000_000)
    file_mib = (tmp_path / "town.ply").stat().st_size / 2**20
    record_property(
        "figure", f"{file_mib:.0f} MiB of file, {peak_mib:.0f} MiB of memory, {num_loaded:,} read, {num_seen:,} seen"
    )
    assert peak_mib < 1000
