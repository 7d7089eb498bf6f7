"""Tones are divided out where the loss reads a photograph, put on where a rendering is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cpu_scenes import trainable, view
from PIL import Image as Pillow
from small_patch import prepared, recipe, trained
from torch import Tensor
from uneven_quarry import FADING, falloff, own_light, planted, quarry, some_tones, sunny

from splatbatch.config import Recipe
from splatbatch.files import read_json
from splatbatch.outcome import Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import NEUTRAL, ColorCorrection
from splatbatch.scene.patches import Patch
from splatbatch.training.evaluation.evaluate import evaluate
from splatbatch.training.evaluation.pictures import picture_views
from splatbatch.training.gaussians import Parameters
from splatbatch.training.loss import CLIPPED_COUNTS, photometric_loss
from splatbatch.training.photos.decode import PhotoSource, decode
from splatbatch.training.photos.posed_image import (
    PosedImage,
    alike,
    in_tone,
    normalise,
    photometric_gain,
    shrink,
    shrunk,
    to_compare,
    tone_of,
)
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RenderCamera

TONE = ColorCorrection((0.8, 1.1, 1.25), (-0.2, 0.08))
CAMERA = Camera(1, "PINHOLE", 53, 31, (60.0, 60.0, 24.5, 17.25))


def decoded_tone(
    tone: ColorCorrection, camera: Camera, folder: Path, shrinking: int = 1
) -> tuple[Tensor | None, RenderCamera]:
    Pillow.new("RGB", (camera.width, camera.height)).save(folder / "a.png")
    one = decode(PhotoSource(folder / "a.png", camera, shrinking))
    seen = RenderCamera(
        torch.eye(4), torch.tensor(one.camera.K, dtype=torch.float32), one.camera.width, one.camera.height
    )
    return tone_of(tone, one), seen


def as_photo(colors: Tensor, tone: Tensor | None, seen: RenderCamera) -> PosedImage:
    pixels = (255 * in_tone(colors, tone, seen).clamp(0, 1)).round().to(torch.uint8)
    return PosedImage("a.png", seen, pixels, None, tone)


def rendered(brightness: float = 1.0) -> tuple[Parameters, RenderCamera, Tensor]:
    """Gaussians, a view of them, and what it shows."""
    gaussians, seen = trainable(dtype=torch.float32), view(width=48, height=32)
    gaussians["sh0"].data *= brightness
    return gaussians, seen, rasterize(gaussians, seen).colors.detach()


def tone_for(seen: RenderCamera, tone: ColorCorrection = TONE) -> Tensor:
    half = np.hypot(seen.width, seen.height) / 2
    gain, others = tone.values()[:3], tone.values()[3:]
    return torch.tensor([*gain, half**-2, *others])


def test_a_tone_multiplies_as_its_definition_says(tmp_path: Path) -> None:
    lit = replace(TONE, shading_grid=sunny(), shading_color=(1.2, 1.0, 0.8))
    for given in (
        TONE,
        replace(TONE, shading_gradient=(0.3, -0.2)),
        ColorCorrection((0.9, 1.0, 1.1), (), (0.1, 0.2)),
        lit,
    ):
        tone, seen = decoded_tone(given, CAMERA, tmp_path)
        assert tone is not None
        bent = falloff(given, CAMERA)
        expected = (bent if given.shading_grid else bent[..., None]) * np.array(given.gain)
        assert np.allclose(photometric_gain(tone, seen, torch.float64), expected, rtol=1e-6)


def test_an_undistorted_photograph_has_its_light_where_its_pixels_were_taken(tmp_path: Path) -> None:
    camera = Camera(1, "SIMPLE_RADIAL", 320, 240, (250.0, 158.0, 123.0, 0.09))
    tone, seen = decoded_tone(ColorCorrection(shading_grid=sunny((0.5, 0.3))), camera, tmp_path)
    assert tone is not None
    x, y = 280.5, 190.5
    ray = np.array([x - float(seen.K[0, 2]), y - float(seen.K[1, 2])]) / 250
    taken = 250 * (1 + 0.09 * float(ray @ ray)) * ray / 200
    expected = float(np.exp(own_light(sunny((0.5, 0.3)), *taken.reshape(2, 1))[0]))
    assert float(photometric_gain(tone, seen)[190, 280, 0]) == pytest.approx(expected, rel=1.5e-2)


def test_tones_of_one_patch_have_one_length_and_their_values() -> None:
    seen = view(width=48, height=32)
    tones = [tone_for(seen, ColorCorrection((0.8, 1, 1))), None, torch.cat([tone_for(seen), torch.tensor([0.1, 0.2])])]
    found = alike(tones)
    assert [None if one is None else len(one) for one in found] == [8, None, 8]
    assert torch.allclose(photometric_gain(found[0], seen), photometric_gain(tones[0], seen).expand(32, 48, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("tone", [NEUTRAL, ColorCorrection((1, 1, 1), (0.0, 0.0))])
def test_a_tone_that_changes_nothing_is_none(tmp_path: Path, tone: ColorCorrection) -> None:
    assert decoded_tone(tone, CAMERA, tmp_path)[0] is None


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_a_smaller_photograph_has_the_same_tone_at_the_same_place(tmp_path: Path, factor: int) -> None:
    tone = replace(TONE, shading_gradient=(0.2, -0.3))
    full, at_full = decoded_tone(tone, CAMERA, tmp_path)
    small, at_small = decoded_tone(tone, CAMERA, tmp_path, factor)
    assert full is not None and small is not None
    photo = PosedImage("a.png", at_full, torch.zeros(31, 53, 3, dtype=torch.uint8), None, full)
    again = shrink(photo, factor)
    assert torch.allclose(small, shrunk(full, factor)) and torch.equal(again.correction, shrunk(full, factor))  # type: ignore[arg-type, union-attr]
    whole = 53 // factor * factor, 31 // factor * factor
    blocks = (
        photometric_gain(full, at_full)[: whole[1], : whole[0]].unflatten(0, (-1, factor)).unflatten(2, (-1, factor))
    )
    for seen in (at_small, again.view):
        found = photometric_gain(small, seen)[: blocks.shape[0], : blocks.shape[2]]
        assert torch.allclose(found, blocks.mean(dim=(1, 3)), rtol=4e-3)


def test_an_undistorted_photograph_fades_as_it_did_where_its_pixels_were_taken(tmp_path: Path) -> None:
    camera = Camera(1, "SIMPLE_RADIAL", 320, 240, (250.0, 158.0, 123.0, 0.09))
    fading = ColorCorrection((1.0, 1.0, 1.0), (-0.3, -0.2))
    tone, seen = decoded_tone(fading, camera, tmp_path)
    assert tone is not None
    x, y = 3.5, 5.5
    ray = np.array([x - float(seen.K[0, 2]), y - float(seen.K[1, 2])]) / 250
    bend = 1 + 0.09 * float(ray @ ray)
    radius = float(np.linalg.norm(250 * bend * ray)) / 200
    expected = np.exp(-0.3 * radius**2 - 0.2 * radius**4)
    assert float(photometric_gain(tone, seen)[5, 3, 0]) == pytest.approx(expected, rel=5e-3)
    straight = float(np.linalg.norm(250 * ray)) / 200
    assert abs(np.exp(-0.3 * straight**2 - 0.2 * straight**4) / expected - 1) > 0.02


def pair(most: int = 250) -> tuple[Tensor, Tensor, Tensor, RenderCamera]:
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randint(0, most, (7, 12, 3), generator=generator).to(torch.uint8)
    seen = RenderCamera(torch.eye(4), torch.tensor([[20.0, 0, 5.5], [0, 20, 4], [0, 0, 1]]), 12, 7)
    colors = torch.rand(7, 12, 3, generator=generator, dtype=torch.float64) * 1.2
    return colors.requires_grad_(), pixels, tone_for(seen), seen


def test_the_gradient_of_the_loss_with_a_tone_is_the_numerical_one() -> None:
    colors, pixels, tone, seen = pair()
    assert torch.autograd.gradcheck(lambda image: photometric_loss(*to_compare(image, pixels, tone, seen), 0.3), colors)


def test_the_loss_with_a_tone_is_that_of_the_evened_photograph() -> None:
    colors, pixels, tone, seen = pair()
    colors.requires_grad_(False)
    gain = torch.tensor(TONE.gain, dtype=torch.float64)
    camera = Camera(1, "PINHOLE", 12, 7, (20.0, 20.0, 5.5, 4.0))
    target = pixels.double() / 255 / (gain * torch.from_numpy(falloff(TONE, camera))[..., None])
    expected = photometric_loss(colors, target)
    assert float(photometric_loss(*to_compare(colors, pixels, tone, seen))) == pytest.approx(float(expected), abs=1e-7)


def test_what_is_brighter_than_clipped_bytes_can_tell_counts_less_in_loss_and_gradient() -> None:
    colors, pixels, tone, seen = pair(256)
    pixels[2:5] = 255
    gap = colors.detach() - normalise(pixels, tone, seen, torch.float64)
    weight = torch.where((pixels >= 250) & (gap > 0), CLIPPED_COUNTS, 1.0).double()
    assert 0.1 < float((weight == 1)[2:5].double().mean()) < 0.9
    found = photometric_loss(*to_compare(colors, pixels, tone, seen), 0.0)
    found.backward()
    assert colors.grad is not None
    assert found.item() == pytest.approx(float((weight * gap.abs()).mean()), abs=1e-8)
    assert torch.allclose(colors.grad, weight * gap.sign() / gap.numel(), atol=1e-9)


def test_the_gradient_where_it_counts_less_is_that_of_pictures_drawn_together() -> None:
    colors, pixels, tone, seen = pair(256)
    pixels[2:5] = 255
    fixed, target = colors.detach().clone(), normalise(pixels, tone, seen, torch.float64)
    is_brighter = (pixels >= 250) & (fixed > target)

    def drawn_together(image: Tensor) -> Tensor:
        return torch.where(is_brighter, fixed + CLIPPED_COUNTS * (image - fixed), image)

    def reference(image: Tensor) -> Tensor:
        return photometric_loss(drawn_together(image), drawn_together(target), 0.3)

    assert torch.autograd.gradcheck(reference, colors)
    (expected,) = torch.autograd.grad(reference(colors), colors)
    (found,) = torch.autograd.grad(photometric_loss(*to_compare(colors, pixels, tone, seen), 0.3), colors)
    assert torch.allclose(found, expected, atol=1e-14)


@pytest.mark.all
def test_neutral_tones_give_the_very_same_splat_and_figures(patch: Patch) -> None:
    tones = {f"img{index}.png": ColorCorrection((1.0, 1.0, 1.0), (0.0,)) for index in range(9)}
    settings = recipe(max_steps=25)
    without, with_them = trained(patch, settings, "a-1")[1], trained(replace(patch, tones=tones), settings, "a-2")[1]
    assert without.path.read_bytes() == with_them.path.read_bytes()
    assert without.metrics["final"] == with_them.metrics["final"]
    assert "psnr_even" not in without.metrics["final"]


def test_a_rendering_is_judged_in_the_tone_of_its_photograph_and_in_the_evened_colours() -> None:
    gaussians, seen, colors = rendered()
    tone = tone_for(seen)
    figures = evaluate(gaussians, [as_photo(colors, tone, seen)], Recipe(), is_evened=True)
    blind = evaluate(gaussians, [replace(as_photo(colors, tone, seen), correction=None)], Recipe())
    assert figures is not None and blind is not None
    assert min(figures["psnr"], figures["psnr_even"]) > 50  # what rounding to bytes takes
    assert figures["psnr"] != figures["psnr_even"]
    assert min(figures["ssim"], figures["ssim_even"]) > 0.99
    assert blind["psnr"] < 30
    assert set(figures["images"]["a.png"]) == {"psnr", "ssim", "psnr_even", "ssim_even"}


def test_a_photograph_that_is_clipped_is_no_fault_of_the_rendering_as_it_is() -> None:
    gaussians, seen, colors = rendered(1.5)
    tone = tone_for(seen, ColorCorrection((1.6, 1.6, 1.6)))
    photo = as_photo(colors, tone, seen)
    assert float((photo.pixels == 255).float().mean()) > 0.02
    figures = evaluate(gaussians, [photo], Recipe(), is_evened=True)
    assert figures is not None
    assert figures["psnr"] > 50 > figures["psnr_even"] + 10


def test_beside_photographs_with_a_tone_neutral_ones_are_alike_in_both() -> None:
    gaussians, seen, colors = rendered()
    toned, neutral = as_photo(0.9 * colors, tone_for(seen), seen), as_photo(0.9 * colors, None, seen)
    figures = evaluate(gaussians, [toned, replace(neutral, name="b.png")], Recipe(), is_evened=True)
    assert figures is not None
    neutral_figures = figures["images"]["b.png"]
    assert (neutral_figures["psnr"], neutral_figures["ssim"]) == (
        neutral_figures["psnr_even"],
        neutral_figures["ssim_even"],
    )
    toned_figures = figures["images"]["a.png"]
    assert figures["psnr_even"] == pytest.approx((toned_figures["psnr_even"] + neutral_figures["psnr"]) / 2)


def test_what_a_mask_ignores_has_no_part_in_either_figure() -> None:
    gaussians, seen, colors = rendered()
    photo = as_photo(0.9 * colors, tone_for(seen), seen)
    photo = replace(photo, mask=torch.arange(48).expand(32, 48) < 24)
    other = replace(photo, pixels=torch.where(photo.mask[..., None], photo.pixels, 255 - photo.pixels))  # type: ignore[index]
    assert evaluate(gaussians, [photo], Recipe(), is_evened=True) == evaluate(
        gaussians, [other], Recipe(), is_evened=True
    )


def test_pictures_show_the_photograph_as_it_is_and_the_rendering_in_its_tone(tmp_path: Path) -> None:
    gaussians, seen, colors = rendered()
    photo, folder = as_photo(colors, tone_for(seen), seen), AttemptFolder(tmp_path)
    picture_views(folder, lambda _: (gaussians, photo), evaluate(gaussians, [photo], Recipe()), Recipe())
    shown = {kind: np.asarray(Pillow.open(folder.picture("worst", kind))).astype(float) for kind in ("photo", "render")}
    assert np.abs(shown["photo"] - photo.pixels.numpy()).mean() < 5
    assert np.abs(shown["photo"] - shown["render"]).mean() < 0.5


def test_the_tones_of_a_patch_reach_its_training(patch: Patch) -> None:
    tones = {"img1.png": TONE, "img2.png": ColorCorrection((0.5, 0.5, 0.5)), "elsewhere.png": TONE}
    folder = prepared(replace(patch, tones=tones), recipe())
    written = (read_json(folder.settings) or {})["tones"]
    assert written["img1.png"] == [0.8, 1.1, 1.25, -0.2, 0.08]
    assert folder.read_settings().tones == written


def planted_runs(folder: Path, max_steps: int, resolution: str) -> dict[str, Splat]:
    """Train the quarry as it is, with planted tones that are known, and with planted tones that are not."""
    plain = planted(quarry(), {}, folder / "plain")
    tones = some_tones(plain, 0.2, FADING)
    there = planted(plain, tones, folder / "planted")
    patches = {"unplanted": plain, "even": replace(there, tones=tones), "as_is": there}
    size = {"resolution": resolution, "cap_max": 20_000}
    settings = recipe(strategy="default", max_steps=max_steps, init_opacity=0.3, **size)
    return {name: trained(patch, settings, name)[1] for name, patch in patches.items()}


@pytest.mark.parametrize(
    ("max_steps", "resolution", "least_gain_db"),
    [pytest.param(20, "1/2", 1.0, marks=pytest.mark.all), pytest.param(300, "full", 2.0, marks=pytest.mark.long)],
)
def test_with_known_tones_a_scene_of_uneven_photographs_is_as_good_as_an_even_one(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    max_steps: int,
    resolution: str,
    least_gain_db: float,
) -> None:
    runs = {name: splat.metrics["final"] for name, splat in planted_runs(tmp_path, max_steps, resolution).items()}
    psnrs = {name: round(figures["psnr"], 2) for name, figures in runs.items()}
    record_property("figure", f"hold-out PSNR after {max_steps} steps: {psnrs}, even {runs['even']['psnr_even']:.2f}")
    assert min(runs["even"][name] for name in ("psnr", "psnr_even")) >= runs["unplanted"]["psnr"] - 0.3
    assert runs["even"]["psnr"] >= runs["as_is"]["psnr"] + least_gain_db
