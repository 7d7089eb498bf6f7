"""Projection of Gaussians onto the image (EWA splatting) and their view-dependent colours, differentiable by autograd.

Colours are real spherical harmonics up to degree 3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# A Gaussian is drawn where its alpha reaches a step of an 8-bit image (3DGS, Kerbl 2023, appendix C; gsplat).
ALPHA_MIN = 1.0 / 255.0
# Variance in px^2 added to every ellipse, so that none is thinner than a pixel (3DGS and gsplat).
LOW_PASS_PX2 = 0.3
# No ellipse reaches further than this many standard deviations (gsplat, ProjectionEWA3DGSFused.cu).
MAX_EXTENT = 3.33
MAX_DEGREE = 3


@dataclass(frozen=True)
class Ellipsoids:
    """N Gaussians in the frame of the training, after activation: scales are lengths, opacities are in (0, 1)."""

    means: Tensor  # [N, 3]
    quats: Tensor  # [N, 4], w first, of any length
    scales: Tensor  # [N, 3], standard deviations
    opacities: Tensor  # [N]


@dataclass(frozen=True)
class PinholeCameras:
    """C pinhole cameras of one image size, which look along +z as COLMAP's do; pixel centres are at half integers.

    Width and height are in px. Gaussians nearer than `near_plane` or farther than `far_plane`, in the unit of the
    Gaussians, are not rendered.
    """

    viewmats: Tensor  # [C, 4, 4], world to camera
    Ks: Tensor  # [C, 3, 3], px
    width: int
    height: int
    near_plane: float = 0.01
    far_plane: float = 1e10

    def intrinsics(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return `fx, fy, cx, cy` in px, each `[C, 1]`, so that they broadcast over `[C, N]` Gaussians."""
        Ks = self.Ks[..., None]
        return Ks[:, 0, 0], Ks[:, 1, 1], Ks[:, 0, 2], Ks[:, 1, 2]


@dataclass(frozen=True)
class ProjectedGaussians:
    """Projections of N Gaussians onto the images of C cameras.

    A radius of 0 means that the Gaussian is not rendered; its other values have no meaning then.
    """

    means2d: Tensor  # [C, N, 2], px
    conics: Tensor  # [C, N, 3], the inverse covariance's xx, xy, yy in 1/px^2
    opacities: Tensor  # [C, N], compensated when antialiased
    depths: Tensor  # [C, N], along the optical axis
    radii: Tensor  # [C, N, 2] int32, px: the box outside which alpha is below ALPHA_MIN


def project(gaussians: Ellipsoids, cameras: PinholeCameras, *, antialiased: bool = False) -> ProjectedGaussians:
    """Project Gaussians onto images, with the conventions of `gsplat.fully_fused_projection`; differentiable.

    With `antialiased`, the opacity of an ellipse is lowered as much as the low-pass filter enlarges the ellipse
    (Mip-Splatting, Yu 2024, eq. 9). Depths and radii have no gradient.
    """
    rotation, translation = cameras.viewmats[:, :3, :3], cameras.viewmats[:, :3, 3]
    centres = gaussians.means @ rotation.transpose(1, 2) + translation[:, None]  # [C, N, 3]
    depths = centres[..., 2]
    is_ahead = (depths >= cameras.near_plane) & (depths <= cameras.far_plane)
    # Whatever is culled must stay finite: its gradient is zero, and zero times infinity would be NaN.
    rays = centres / torch.where(is_ahead, depths, 1.0)[..., None]  # [C, N, 3], z = 1

    fx, fy, cx, cy = cameras.intrinsics()
    means2d = torch.stack((fx * rays[..., 0] + cx, fy * rays[..., 1] + cy), -1)
    xx, xy, yy = _covariances2d(gaussians, cameras, rays, torch.where(is_ahead, depths, 1.0))
    determinants = xx * yy - xy * xy
    xx, yy = xx + LOW_PASS_PX2, yy + LOW_PASS_PX2
    blurred = xx * yy - xy * xy
    is_ellipse = blurred > 0  # rounding can break this for the longest needles
    blurred = torch.where(is_ellipse, blurred, 1.0)

    opacities = gaussians.opacities.expand(depths.shape)
    if antialiased:
        # The floor keeps the square root's gradient finite; at 1e-6 nothing is visible anyway.
        opacities = opacities * (determinants / blurred).clamp_min(1e-12).sqrt()
    radii = _radii(means2d, torch.stack((xx, yy), -1), opacities, cameras)
    return ProjectedGaussians(
        means2d=means2d,
        conics=torch.stack((yy, -xy, xx), -1) / blurred[..., None],
        opacities=opacities,
        depths=depths.detach(),
        radii=torch.where((is_ahead & is_ellipse)[..., None], radii, 0).int(),
    )


def scaled_rotations(quats: Tensor, scales: Tensor) -> Tensor:
    """Return M = R S of each Gaussian, `[N, 3, 3]`, where M M^T is the covariance.

    `quats` `[N, 4]` are quaternions of any length, w first; `scales` `[N, 3]` are standard deviations, not logarithms.
    """
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    rotations = torch.stack([entry for row in rows for entry in row], -1).view(-1, 3, 3)
    return rotations * scales[:, None]


def _covariances2d(
    gaussians: Ellipsoids, cameras: PinholeCameras, rays: Tensor, depths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `xx, xy, yy` of the covariances on the image, `[C, N]` each, in px^2.

    Sigma' = J W Sigma W^T J^T (EWA splatting, Zwicker 2001; 3DGS eq. 5). With Sigma = M M^T its entries are the dot
    products of the two rows of J W M. J, the derivative of the projection, is taken no further out than 15% beyond the
    image border: further out the linear approximation explodes (gsplat, `persp_proj`).
    """
    fx, fy, cx, cy = cameras.intrinsics()
    margin_x, margin_y = 0.15 * cameras.width / fx, 0.15 * cameras.height / fy
    ray_x = _clamp(rays[..., 0], -cx / fx - margin_x, (cameras.width - cx) / fx + margin_x)
    ray_y = _clamp(rays[..., 1], -cy / fy - margin_y, (cameras.height - cy) / fy + margin_y)
    right, down, ahead = cameras.viewmats[:, None, :3, :3].unbind(2)  # [C, 1, 3] each
    jacobian_x = (fx / depths)[..., None] * (right - ray_x[..., None] * ahead)  # [C, N, 3], a row of J W
    jacobian_y = (fy / depths)[..., None] * (down - ray_y[..., None] * ahead)
    root = scaled_rotations(gaussians.quats, gaussians.scales)  # [N, 3, 3]
    # A product and a sum: faster on CPU than N multiplications of tiny matrices.
    row_x = (jacobian_x[..., None] * root).sum(-2)  # [C, N, 3], a row of J W M
    row_y = (jacobian_y[..., None] * root).sum(-2)
    return (row_x * row_x).sum(-1), (row_x * row_y).sum(-1), (row_y * row_y).sum(-1)


def _clamp(values: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(values, lowest), highest)


@torch.no_grad()
def _radii(means2d: Tensor, variances: Tensor, opacities: Tensor, cameras: PinholeCameras) -> Tensor:
    """Return half sizes `[C, N, 2]` in whole px of the boxes around alpha >= ALPHA_MIN; 0 if a box misses the image.

    opacity exp(-d^2/2) = ALPHA_MIN at d = sqrt(2 ln(opacity / ALPHA_MIN)) (StopThePop, Radl 2024, section B.2).
    """
    extents = (2 * torch.log((opacities / ALPHA_MIN).clamp_min(1.0))).sqrt().clamp_max(MAX_EXTENT)
    radii = torch.ceil(extents[..., None] * variances.sqrt())
    size = means2d.new_tensor((cameras.width, cameras.height))
    is_inside = ((means2d + radii > 0) & (means2d - radii < size)).all(-1)
    return torch.where((is_inside & (opacities >= ALPHA_MIN))[..., None], radii, 0.0)


def view_colors(directions: Tensor, sh0: Tensor, shN: Tensor, degree: int) -> Tensor:
    """Return the RGB `[C, N, 3]` of N Gaussians seen by C cameras, as in 3DGS.

    Colours are 0.5 where all coefficients are 0, and never negative; they may exceed 1.

    Args:
        directions: from the camera to the Gaussian, `[C, N, 3]`, of any length.
        sh0: coefficients of degree 0, `[N, 1, 3]`.
        shN: coefficients of higher degrees, `[N, K, 3]`.
        degree: highest degree to use; further coefficients are ignored.

    Raises:
        ValueError: the degree is above 3, or above that of `shN`.
    """
    num_higher = (degree + 1) ** 2 - 1
    if degree > MAX_DEGREE or num_higher > shN.shape[1]:
        raise ValueError(
            f"sh_degree {degree} needs {num_higher} coefficients, not {shN.shape[1]}; the highest is {MAX_DEGREE}"
        )
    constant, *higher = basis(directions, degree)
    colors = constant[..., None] * sh0[:, 0]
    if higher:
        colors = colors + (torch.stack(higher, -1)[..., None] * shN[:, :num_higher]).sum(-2)
    return (colors + 0.5).clamp_min(0.0)


def basis(directions: Tensor, degree: int) -> list[Tensor]:
    """Return the (degree + 1)^2 real spherical harmonics at `directions` `[..., 3]` of any length, `[...]` each.

    Order and signs are those of 3DGS, normalisations the usual, such as 1 / (2 sqrt(pi)) for degree 0. Degrees above 3
    add no functions.
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
