"""The CPU rasteriser against a dense float64 reference."""

from dataclasses import replace

import pytest
import torch
from cpu_scenes import HEIGHT, WIDTH, cameras, ellipsoids, relative_error, trainable, view, weighted
from torch import Tensor

from splatbatch.training.cpu import ProjectedGaussians, project, raster, view_colors
from splatbatch.training.cpu.raster import pixel_basis
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


def leaves(footprints: ProjectedGaussians) -> ProjectedGaussians:
    """The same footprints, cut off from the projection, to look at the rasteriser's own gradients."""
    fields = {name: getattr(footprints, name).detach().clone() for name in ("means2d", "conics", "opacities")}
    return replace(footprints, **{name: values.requires_grad_() for name, values in fields.items()})


def drawn(num: int, dtype: torch.dtype, **options: float) -> tuple[ProjectedGaussians, Tensor]:
    """Footprints and colours, as leaves."""
    footprints = leaves(project(ellipsoids(trainable(num, dtype, **options)), cameras(dtype=dtype)))
    generator = torch.Generator().manual_seed(1)
    return footprints, torch.rand(1, num, 3, generator=generator, dtype=dtype).requires_grad_()


def dense(footprints: ProjectedGaussians, colors: Tensor, width: int, height: int) -> tuple[Tensor, Tensor]:
    """Every Gaussian on every pixel of the first camera, nearest first: `[H, W, 3]` and `[H, W, 1]`.

    `means2d` may also be `[1, N, 2, H, W]`: then each pixel has its own, and its own gradient.
    """
    rows, columns = (torch.arange(size, dtype=colors.dtype) + 0.5 for size in (height, width))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    image, transmittance = colors.new_zeros(height, width, 3), colors.new_ones(height, width, 1)
    is_done = torch.zeros(height, width, 1, dtype=torch.bool)
    visible = (footprints.radii[0] > 0).all(-1).nonzero().squeeze(1)
    for i in visible[footprints.depths[0, visible].argsort(stable=True)].tolist():
        dx, dy = x - footprints.means2d[0, i, 0], y - footprints.means2d[0, i, 1]
        a, b, c = footprints.conics[0, i]
        alpha = footprints.opacities[0, i] * torch.exp(-0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy)
        alpha = torch.where(alpha < 1 / 255, 0.0, alpha.clamp_max(0.999))[..., None]
        is_done = is_done | (transmittance * (1 - alpha) <= 1e-4)
        alpha = torch.where(is_done, 0.0, alpha)
        image, transmittance = image + colors[0, i] * alpha * transmittance, transmittance * (1 - alpha)
    return image, 1 - transmittance


def errors(
    footprints: ProjectedGaussians, colors: Tensor, width: int = WIDTH, height: int = HEIGHT
) -> tuple[float, float]:
    """Of the image or alpha, and the largest relative one of a gradient, against the dense reference in float64."""
    exact = {name: getattr(footprints, name).double() for name in ("means2d", "conics", "opacities")}
    reference, exact_colors = leaves(replace(footprints, **exact)), colors.detach().double().requires_grad_()
    ours = [result[0] for result in raster(footprints, colors, width, height)]
    theirs = dense(reference, exact_colors, width, height)
    weighted(*ours).backward()
    weighted(*theirs).backward()
    names = "means2d", "conics", "opacities"
    pairs = [(getattr(footprints, name).grad, getattr(reference, name).grad) for name in names]
    pairs.append((colors.grad, exact_colors.grad))
    image_error = max(float((mine - other).detach().abs().max()) for mine, other in zip(ours, theirs, strict=True))
    return image_error, max(relative_error(*pair) for pair in pairs)


@pytest.mark.parametrize("opacity", [0.0, 5.0])
@pytest.mark.parametrize(("width", "height"), [(48, 32), (45, 27), (5, 3)])
def test_image_and_gradients_equal_a_dense_float64_reference(opacity, width, height):
    image, gradient = errors(*drawn(200, torch.float64, opacity=opacity), width, height)
    assert image < 1e-12
    assert gradient < 1e-11


def test_more_gaussians_than_a_block_still_equal_the_dense_reference():
    image, gradient = errors(*drawn(700, torch.float64, opacity=-3.0), 16, 16)  # faint, so all blocks of 96 count
    assert image < 1e-12
    assert gradient < 1e-11


def test_an_image_has_the_size_that_was_asked_for():
    images, alphas = raster(*drawn(20, torch.float32), 45, 27)
    assert (images.shape, alphas.shape) == ((1, 27, 45, 3), (1, 27, 45, 1))


HARD_SCENES = {
    "opaque": lambda g: g["opacities"].add_(12.0),
    "huge": lambda g: g["scales"].add_(2.5),
    "tiny": lambda g: g["scales"].sub_(4.0),
    "needles": lambda g: g["scales"].add_(torch.tensor([2.0, -4.0, -4.0])),
    "camera inside": lambda g: g["means"].mul_(0.4).sub_(torch.tensor([0.0, 0.0, 1.6])),
}


@pytest.mark.parametrize("change", HARD_SCENES.values(), ids=HARD_SCENES)
def test_hard_scenes_in_float32_stay_close_to_float64(change):
    gaussians = trainable(150, torch.float32)
    with torch.no_grad():
        change(gaussians)
    footprints = leaves(project(ellipsoids(gaussians), cameras(dtype=torch.float32)))
    colors = torch.rand(1, 150, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    image, gradient = errors(footprints, colors)
    assert image < 5e-5
    assert gradient < 1e-4


@pytest.mark.all
def test_absgrad_is_the_sum_over_pixels_of_the_absolute_gradient():
    footprints, colors = drawn(200, torch.float64)
    weighted(*(result[0] for result in raster(footprints, colors, WIDTH, HEIGHT, absgrad=True))).backward()
    per_pixel = footprints.means2d.detach()[..., None, None].repeat(1, 1, 1, HEIGHT, WIDTH).requires_grad_()
    weighted(*dense(replace(footprints, means2d=per_pixel), colors.detach(), WIDTH, HEIGHT)).backward()
    assert relative_error(footprints.means2d.absgrad, per_pixel.grad.abs().sum((-1, -2))) < 1e-10


def test_rasterize_puts_projection_colours_and_raster_together():
    gaussians, camera = trainable(), cameras(num=2)
    seen_from = torch.linalg.inv(camera.viewmats[1])[:3, 3]
    colors = view_colors((gaussians["means"] - seen_from)[None], gaussians["sh0"], gaussians["shN"], 2)
    alone = replace(camera, viewmats=camera.viewmats[1:], Ks=camera.Ks[1:])
    image, alpha = dense(project(ellipsoids(gaussians), alone), colors, WIDTH, HEIGHT)
    rendering = rasterize(
        gaussians, RenderCamera(camera.viewmats[1], camera.Ks[1], WIDTH, HEIGHT), RasterOptions(sh_degree=2)
    )
    leaves = list(gaussians.values())
    expected = torch.autograd.grad(weighted(image, alpha), leaves)
    for ours, theirs in zip(
        torch.autograd.grad(weighted(rendering.colors, rendering.alphas), leaves), expected, strict=True
    ):
        assert relative_error(ours, theirs) < 1e-10


def test_several_cameras_draw_what_each_draws_alone():
    gaussians, together = ellipsoids(trainable()), cameras(num=3)
    colors = torch.rand(3, 200, 3, dtype=torch.float64)
    images, alphas = raster(project(gaussians, together), colors, WIDTH, HEIGHT)
    for i in range(3):
        alone = replace(together, viewmats=together.viewmats[i : i + 1], Ks=together.Ks[i : i + 1])
        image, alpha = raster(project(gaussians, alone), colors[i : i + 1], WIDTH, HEIGHT)
        assert (images[i] - image[0]).abs().max() < 1e-14
        assert (alphas[i] - alpha[0]).abs().max() < 1e-14


@pytest.mark.parametrize("num", [0, 50])
def test_a_view_of_nothing_is_black_and_has_zero_gradients(num):
    gaussians = trainable(num)
    behind = RenderCamera(torch.diag(torch.tensor([-1.0, 1, -1, 1])).double(), cameras().Ks[0], WIDTH, HEIGHT)
    with torch.no_grad():
        gaussians["means"][:, 2] += 20
    rendering = rasterize(gaussians, behind)
    (rendering.colors.sum() + rendering.alphas.sum()).backward()
    assert rendering.colors.abs().max() == rendering.alphas.abs().max() == 0
    assert all((values.grad == 0).all() for values in gaussians.values())


def test_an_evaluation_before_training_does_no_harm():
    pixel_basis.cache_clear()
    gaussians = trainable(50, torch.float32)
    with torch.inference_mode():
        expected = rasterize(gaussians, view()).colors
    rendering = rasterize(gaussians, view())
    rendering.colors.sum().backward()
    assert torch.equal(rendering.colors, expected)


def test_rendering_twice_gives_the_same_bits():
    def render() -> list[Tensor]:
        gaussians = trainable(1000, torch.float32)
        rendering = rasterize(gaussians, view(width=130, height=90))
        weighted(rendering.colors, rendering.alphas).backward()
        return [rendering.colors, *(values.grad for values in gaussians.values())]

    assert all(torch.equal(first, second) for first, second in zip(render(), render(), strict=True))


def test_whatever_is_out_of_sight_leaves_all_gradients_finite():
    gaussians = trainable(300, torch.float32)
    with torch.no_grad():
        gaussians["means"][:100, 2] = torch.linspace(-0.01, 0.01, 100)  # in the plane of the camera, or nearly
        gaussians["scales"][100:200] = torch.tensor([12.0, -12.0, -12.0])  # needles as long as a town
    rendering = rasterize(gaussians, view(), RasterOptions(antialiased=True))
    weighted(rendering.colors, rendering.alphas).backward()
    assert all(values.grad.isfinite().all() for values in gaussians.values())
