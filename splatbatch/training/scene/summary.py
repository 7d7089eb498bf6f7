"""What single photographs say, taken together: of the scene, of each patch, of those that look across a seam."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from splatbatch.store.records.evaluation import Measured, PhotoMeasured
from splatbatch.store.records.metrics import Figures

FIGURES = ("psnr", "ssim", "lpips", "psnr_even", "ssim_even")
Pair = tuple[Figures, Figures | None]
"""The merged scene on a photograph, and a patch's own splat on it, where that has been measured."""


def measured(pairs: Iterable[Pair]) -> Measured:
    """Return the means over photographs; the gain over those alone that a patch has measured itself on."""
    known = list(pairs)
    merged = {name: _mean(getattr(one, name) for one, _ in known) for name in FIGURES}
    own = {f"own_{name}": _mean(getattr(other, name) for _, other in known if other) for name in ("psnr", "ssim")}
    gains = [one.psnr - other.psnr for one, other in known if other and None not in (one.psnr, other.psnr)]  # type: ignore[operator]
    return Measured(num_photos=len(known), gain_db=_mean(gains), **merged, **own)


def of_photos(photos: Mapping[str, PhotoMeasured], names: Iterable[str]) -> Measured:
    """Return the means over some photographs, beside the splats of the patches that each sees most of."""
    return measured((photos[name], Figures(psnr=photos[name].own_psnr)) for name in names)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
