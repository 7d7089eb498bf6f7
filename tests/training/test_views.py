"""Photographs and cameras as tensors: the same rays as COLMAP's, in a frame of sensible size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from fake_batch import write_photos
from PIL import Image as Pillow

from splatbatch.config import Training
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.training.photos.dataset import PhotoFolders, TrainingImages, decode_views

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.fixture
def sparse(batch: FakeBatch) -> Path:
    batch.make("p0")
    return batch.folder / "patches/p0/sparse/0"


@pytest.fixture
def images(batch: FakeBatch) -> Path:
    return batch.folder / "images"


def load(sparse: Path, images: Path, *holdout: str) -> TrainingImages:
    return decode_views(read_reconstruction(sparse), PhotoFolders(images), frozenset(holdout), Training())


def pose(sparse: Path, places: list[tuple[float, float, float]]) -> Reconstruction:
    """Put the cameras elsewhere, turned; `places` are translations."""
    norm = np.linalg.norm([0.9, 0.1, -0.3, 0.2])
    lines = [
        f"{i + 1} {0.9 / norm} {0.1 / norm} {-0.3 / norm} {0.2 / norm} {x} {y} {z} 1 img{i}.png\n10 10 1\n"
        for i, (x, y, z) in enumerate(places)
    ]
    (sparse / "images.txt").write_text("".join(lines))
    return read_reconstruction(sparse)


def test_photographs_are_decoded_once_as_they_are(sparse: Path, images: Path) -> None:
    views = load(sparse, images, "img0.png", "img8.png")
    assert [photo.name for photo in views.holdout] == ["img0.png", "img8.png"]
    assert len(views.training) == 7
    photo = views.training[0]
    assert (photo.pixels.dtype, tuple(photo.pixels.shape)) == (torch.uint8, (24, 32, 3))
    assert np.array_equal(photo.pixels.numpy(), np.asarray(Pillow.open(images / photo.name)))
    assert views.warnings == ()


def test_a_point_is_seen_at_the_same_pixel_in_either_frame(sparse: Path, images: Path) -> None:
    model = pose(sparse, [(i * 5.0, 3.0 - i, 20.0 + i * i) for i in range(6)])
    views = decode_views(model, PhotoFolders(images), frozenset(), Training())
    point = np.array([3.0, -2.0, 60.0])
    for image, photo in zip(model.images, views.training, strict=True):
        world = image.world_to_camera()
        theirs = model.cameras[image.camera_id].K @ (world[:3, :3] @ point + world[:3, 3])
        trained = torch.tensor((point - views.frame.origin) / views.frame.scale, dtype=torch.float32)
        ours = photo.view.K @ (photo.view.viewmat[:3, :3] @ trained + photo.view.viewmat[:3, 3])
        assert np.allclose((ours / ours[2]).numpy(), theirs / theirs[2], rtol=1e-4)


def test_the_cameras_stand_around_the_origin_at_distance_one(sparse: Path, images: Path) -> None:
    model = pose(sparse, [(1000 + 50.0 * i, 7.0 * i * i, -3.0 * i) for i in range(7)])
    views = decode_views(model, PhotoFolders(images), frozenset(), Training())
    centers = torch.stack([-p.view.viewmat[:3, :3].T @ p.view.viewmat[:3, 3] for p in views.training])
    distances = centers.norm(dim=1)
    assert centers.mean(0).norm() < 1e-4
    assert distances.median() == pytest.approx(1, rel=1e-4)
    assert views.frame.scene_scale == pytest.approx(1.1 * float(distances.max()), rel=1e-4)


@pytest.mark.parametrize("place", [(0.0, 0.0, 0.0), (3.1, -2.2, 7.3), (5e6, 4e5, 123.4)])
@pytest.mark.parametrize("num", [1, 2, 9])
def test_cameras_in_one_place_leave_the_unit_as_it_is(
    sparse: Path, images: Path, place: tuple[float, float, float], num: int
) -> None:
    frame = decode_views(pose(sparse, [place] * num), PhotoFolders(images), frozenset(), Training()).frame
    assert (frame.scale, frame.scene_scale) == (1.0, 1.0)


def test_one_camera_apart_from_a_crowd_sets_the_unit(sparse: Path, images: Path) -> None:
    frame = decode_views(
        pose(sparse, [(0, 0, 0)] * 8 + [(9, 0, 0)]), PhotoFolders(images), frozenset(), Training()
    ).frame
    assert 1 <= frame.scale <= 9
    assert frame.scene_scale < 20


@pytest.mark.parametrize("size", [(16, 12), (64, 48), (33, 24)])
def test_a_photograph_of_another_size_has_its_intrinsics_rescaled_and_a_warning(
    sparse: Path, images: Path, size: tuple[int, int]
) -> None:
    Pillow.new("RGB", size).save(images / "img3.png")
    views = load(sparse, images)
    photo = next(photo for photo in views.training if photo.name == "img3.png")
    wanted = [30 * size[0] / 32, 30 * size[1] / 24, size[0] / 2, size[1] / 2]
    K = photo.view.K
    assert torch.stack([K[0, 0], K[1, 1], K[0, 2], K[1, 2]]).tolist() == pytest.approx(wanted)
    assert (photo.view.width, photo.view.height) == size
    resized = "1 photograph differs in size from its camera, as img3.png: the intrinsics were rescaled"
    assert views.warnings == (resized,)


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "1", "LA"])
def test_every_kind_of_picture_becomes_rgb(sparse: Path, images: Path, mode: str) -> None:
    picture = Pillow.new("RGB", (32, 24), (200, 200, 200)).convert(mode)
    picture.save(images / "img3.png", format="TIFF" if mode == "CMYK" else "PNG")
    photo = load(sparse, images).training[3]
    assert tuple(photo.pixels.shape) == (24, 32, 3)
    assert photo.pixels.float().mean() > 150


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", None])
def test_a_photograph_that_cannot_be_read_is_named(sparse: Path, images: Path, content: bytes | None) -> None:
    path = images / "img3.png"
    path.write_bytes(path.read_bytes()[:300] if content is None else content)
    with pytest.raises(SceneError, match=r"img3.png: cannot identify image file, or it is truncated"):
        load(sparse, images)


def test_a_missing_photograph_is_named(sparse: Path, images: Path) -> None:
    (images / "img3.png").unlink()
    with pytest.raises(SceneError, match=r"img3.png: missing image"):
        load(sparse, images)


def test_a_camera_with_distortion_becomes_a_pinhole_of_the_size_that_is_left(sparse: Path, images: Path) -> None:
    (sparse / "cameras.txt").write_text("1 OPENCV 32 24 30 30 16 12 0.1 0 0 0\n")
    view = load(sparse, images).training[0].view
    assert (view.width, view.height) < (32, 24)
    assert view.K[0, 0] == 30


def test_a_smaller_copy_has_its_own_ratio_in_k(sparse: Path, images: Path) -> None:
    model = read_reconstruction(sparse)
    write_photos(images.with_name("images_4"), [image.name for image in model.images], (8, 6))
    views = decode_views(model, PhotoFolders(images), frozenset(), Training(resolution="1/4"))
    assert torch.equal(views.training[0].view.K, torch.tensor([[7.5, 0, 4], [0, 7.5, 3], [0, 0, 1]]))
    assert views.loaded == {"used": "1/4", "folder": "images_4", "shrunk_by": 1, "largest": [8, 6]}


def mask_out(folder: Path, name: str, black: tuple[int, int, int, int]) -> None:
    folder.mkdir(exist_ok=True)
    mask = Pillow.new("L", (32, 24), 255)
    mask.paste(0, black)
    mask.save(folder / f"{name}.png")


def test_masks_come_with_their_photographs_and_gaps_are_told(sparse: Path, images: Path, tmp_path: Path) -> None:
    mask_out(tmp_path / "m", "img1.png", (0, 0, 16, 24))
    mask_out(tmp_path / "m", "img2.png", (0, 0, 32, 24))
    views = decode_views(read_reconstruction(sparse), PhotoFolders(images, tmp_path / "m"), frozenset(), Training())
    masks = {photo.name: photo.mask for photo in views.training}
    assert masks["img0.png"] is None
    assert masks["img1.png"] is not None and int(masks["img1.png"].sum()) == 16 * 24
    assert "img2.png" not in masks
    assert views.warnings == (
        "7 of 9 photographs have no mask, as img0.png: all of their pixels are used",
        "1 photograph is left out since its mask ignores every pixel, as img2.png",
    )


def test_with_everything_held_out_there_is_nothing_to_train_on(sparse: Path, images: Path) -> None:
    with pytest.raises(SceneError, match="0 of 9 photographs are left"):
        load(sparse, images, *(f"img{i}.png" for i in range(9)))


@pytest.mark.parametrize(("resolution", "size"), [("1/2", (16, 12)), ("1/4", (8, 6)), ("1/8", (4, 3))])
def test_a_smaller_resolution_averages_pixels_and_divides_k(
    batch: FakeBatch, resolution: str, size: tuple[int, int]
) -> None:
    batch.make("p0")
    model = read_reconstruction(batch.folder / "patches/p0/sparse/0")
    full = decode_views(model, PhotoFolders(batch.folder / "images"), frozenset(), Training())
    small = decode_views(model, PhotoFolders(batch.folder / "images"), frozenset(), Training(resolution=resolution))
    one, other = full.training[0], small.training[0]
    shrink = one.view.width // size[0]
    assert (other.view.width, other.view.height) == size
    assert torch.equal(other.view.K[:2], one.view.K[:2] / shrink)
    corner = one.pixels[:shrink, :shrink].float().mean((0, 1))
    assert (other.pixels[0, 0].float() - corner).abs().max() <= 0.5
    assert not small.warnings


@pytest.mark.all(but="1")
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_photographs_are_the_same_however_many_threads_decode_them(batch: FakeBatch, workers: int) -> None:
    batch.make("p0")
    model = read_reconstruction(batch.folder / "patches/p0/sparse/0")
    views = decode_views(model, PhotoFolders(batch.folder / "images"), frozenset(), Training(workers=workers))
    assert [photo.name for photo in views.training] == [f"img{i}.png" for i in range(9)]
