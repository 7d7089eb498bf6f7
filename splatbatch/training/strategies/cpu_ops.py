"""Let gsplat's MCMCStrategy run on CPU tensors, and leave CUDA tensors to gsplat."""

from functools import cache

from torch import Tensor

from splatbatch.training.cpu import compute_relocation


@cache
def use_cpu_ops() -> None:
    """Teach `gsplat.strategy.ops` to look at the device; the first call does it, further ones do nothing.

    That module imports two CUDA-only functions by value, so they are replaced in it and nowhere else (gsplat 1.5.3).
    DefaultStrategy uses neither.
    """
    from gsplat.cuda._torch_impl import _quat_scale_to_covar_preci
    from gsplat.strategy import ops

    relocation_cuda, covariances_cuda = ops.compute_relocation, ops.quat_scale_to_covar_preci

    def relocation(opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor) -> tuple[Tensor, Tensor]:
        on_device = relocation_cuda if opacities.is_cuda else compute_relocation
        new_opacities, new_scales = on_device(opacities, scales, ratios, binoms)
        return new_opacities, new_scales

    def covariances(quats: Tensor, *arguments: object, **options: bool) -> tuple[Tensor | None, Tensor | None]:
        on_device = covariances_cuda if quats.is_cuda else _quat_scale_to_covar_preci
        covars, precis = on_device(quats, *arguments, **options)
        return covars, precis

    ops.compute_relocation, ops.quat_scale_to_covar_preci = relocation, covariances
