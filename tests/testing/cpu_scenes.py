"""Small scenes for the tests of the CPU rasteriser."""

import torch
from torch import Tensor

from splatbatch.training.cpu import Ellipsoids, PinholeCameras
from splatbatch.training.rendering.view import RenderCamera

WIDTH, HEIGHT = 48, 32


def trainable(num: int = 200, dtype: torch.dtype = torch.float64, opacity: float = 0.0) -> dict[str, Tensor]:
    """Gaussians in a box before the camera, a few of them beside or behind it."""
    generator = torch.Generator().manual_seed(num)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    spread = torch.tensor([1.2, 0.8, 1.5], dtype=torch.float64)
    gaussians = {
        "means": normal(num, 3) * spread + torch.tensor([0.0, 0.0, 4.0]),
        "quats": normal(num, 4),
        "scales": 0.6 * normal(num, 3) - 1.7,
        "opacities": 1.5 * normal(num) + opacity,
        "sh0": normal(num, 1, 3),
        "shN": 0.3 * normal(num, 15, 3),
    }
    return {name: values.to(dtype).requires_grad_() for name, values in gaussians.items()}


def cameras(
    num: int = 1, dtype: torch.dtype = torch.float64, width: int = WIDTH, height: int = HEIGHT
) -> PinholeCameras:
    """Cameras that stand apart and look a little to the side."""
    viewmats = torch.eye(4, dtype=torch.float64).repeat(num, 1, 1)
    for i, viewmat in enumerate(viewmats):
        turn = torch.tensor([[0.0, 0.02, 0.1], [-0.02, 0.0, 0.05], [-0.1, -0.05, 0.0]], dtype=torch.float64) * (i + 1)
        viewmat[:3, :3] = torch.linalg.matrix_exp(turn)
        viewmat[:3, 3] = torch.tensor([0.1 * i, -0.2, 0.3 * i])
    K = torch.tensor([[40.0, 0, width / 2 + 1.3], [0, 42.0, height / 2 - 0.7], [0, 0, 1]], dtype=torch.float64)
    return PinholeCameras(viewmats.to(dtype), K.repeat(num, 1, 1).to(dtype), width, height)


def ellipsoids(gaussians: dict[str, Tensor]) -> Ellipsoids:
    scales, opacities = gaussians["scales"].exp(), gaussians["opacities"].sigmoid()
    return Ellipsoids(gaussians["means"], gaussians["quats"], scales, opacities)


def view(dtype: torch.dtype = torch.float32, width: int = WIDTH, height: int = HEIGHT) -> RenderCamera:
    camera = cameras(dtype=dtype, width=width, height=height)
    return RenderCamera(camera.viewmats[0], camera.Ks[0], width, height)


def weighted(image: Tensor, alpha: Tensor) -> Tensor:
    """A loss that looks at every pixel differently."""
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(*image.shape[:-1], 4, generator=generator, dtype=torch.float64).to(image.dtype)
    return (torch.cat((image, alpha), -1) * weights).sum()


def relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach(), expected.detach()
    return float((actual - expected).abs().max() / expected.abs().max())
