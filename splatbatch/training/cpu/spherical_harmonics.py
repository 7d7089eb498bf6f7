"""Colours that change with the direction of view: real spherical harmonics up to degree 3."""

import torch
from torch import Tensor

MAX_DEGREE = 3


def view_colors(directions: Tensor, sh0: Tensor, shN: Tensor, degree: int) -> Tensor:
    """The RGB `[C, N, 3]` of N Gaussians seen by C cameras: 0.5 where all coefficients are 0, never negative (3DGS).

    `directions` `[C, N, 3]` point from the camera to the Gaussian, of any length; `sh0` is `[N, 1, 3]`, `shN`
    `[N, K, 3]`, of which what is above `degree` is ignored. Raises ValueError for a degree above 3, or above `shN`'s.
    """
    num_higher = (degree + 1) ** 2 - 1
    if degree > MAX_DEGREE or num_higher > shN.shape[1]:
        raise ValueError(
            f"sh_degree {degree} needs {num_higher} of shN's {shN.shape[1]}, and may not exceed {MAX_DEGREE}"
        )
    constant, *higher = basis(directions, degree)
    colors = constant[..., None] * sh0[:, 0]
    if higher:
        colors = colors + (torch.stack(higher, -1)[..., None] * shN[:, :num_higher]).sum(-2)
    return (colors + 0.5).clamp_min(0.0)


def basis(directions: Tensor, degree: int) -> list[Tensor]:
    """The (degree + 1)^2 functions at `directions` `[..., 3]`, `[...]` each, in the order and with the signs of 3DGS.

    The numbers are the usual normalisations of real spherical harmonics, such as 1 / (2 sqrt(pi)) for degree 0.
    """
    x, y, z = torch.nn.functional.normalize(directions, dim=-1).unbind(-1)
    functions = [torch.full_like(x, 0.28209479177387814)]
    if degree >= 1:
        functions += [-0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x]
    if degree >= 2:
        functions += [
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.31539156525252005 * (3 * z * z - 1),
            -1.0925484305920792 * x * z,
            0.5462742152960396 * (x * x - y * y),
        ]
    if degree >= 3:
        functions += [
            -0.5900435899266435 * y * (3 * x * x - y * y),
            2.890611442640554 * x * y * z,
            -0.4570457994644658 * y * (5 * z * z - 1),
            0.3731763325901154 * z * (5 * z * z - 3),
            -0.4570457994644658 * x * (5 * z * z - 1),
            1.445305721320277 * z * (x * x - y * y),
            -0.5900435899266435 * x * (x * x - 3 * y * y),
        ]
    return functions
