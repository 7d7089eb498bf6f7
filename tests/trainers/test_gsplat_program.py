"""The program that GPU tests train with, on a CPU: a dense rasteriser stands in for gsplat's kernels."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import dense_rasterization
import gsplat_program
import pycolmap
import pytest
from fake_batch import QUARRY
from PIL import Image

from splatbatch.outcome import Splat
from splatbatch.splats import check_splat

STEPS, SIZE, MOST_POINTS = 60, (32, 24), 200


def shrink(sparse: Path, images: Path, into: Path) -> None:
    """Write a patch of the quarry as tiny pictures with few points."""
    model = pycolmap.Reconstruction(sparse)
    for camera in model.cameras.values():
        camera.rescale(*SIZE)
    for number in sorted(model.points3D)[MOST_POINTS:]:
        model.delete_point3D(number)
    (into / "sparse").mkdir()
    model.write(into / "sparse")
    for image in model.images.values():
        (into / "images" / image.name).parent.mkdir(parents=True, exist_ok=True)
        with Image.open(images / image.name) as photograph:
            photograph.resize(SIZE).save(into / "images" / image.name)


def losses(said: str) -> list[float]:
    return [float(line.split()[3]) for line in said.splitlines()]


@pytest.mark.all
def test_it_is_short_and_its_splat_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Path(gsplat_program.__file__).read_text().splitlines()) <= 80
    shrink(QUARRY / "patches/p0/sparse/0", QUARRY / "images", tmp_path)
    options = Namespace(sparse=tmp_path / "sparse", images=tmp_path / "images", output=tmp_path, seed=1)
    for steps in (1, STEPS):
        options.steps = steps
        gsplat_program.main(options, "cpu", dense_rasterization.rasterization)
    splat = check_splat(tmp_path / f"splat_{STEPS}.ply")
    assert (isinstance(splat, Splat), splat.num_gaussians, splat.sh_degree) == (True, MOST_POINTS, 3)
    first, *_, last = losses(capsys.readouterr().out)
    assert last < 0.8 * first
