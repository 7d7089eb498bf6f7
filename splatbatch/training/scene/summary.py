"""What single photographs say, taken together: of the scene, of each patch, of those that look across a seam."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from splatbatch.store.records.evaluation import Measured, PhotoMeasured
from splatbatch.store.records.metrics import Figures

FIGURES = (
    *("psnr", "ssim", "lpips", "psnr_even", "ssim_even"),
    *("psnr_covered", "ssim_covered", "covered_share"),
)


@dataclass(frozen=True)
class Pair:
    """The merged scene on a photograph, and a patch's own splat on it, where that has been measured."""

    merged: Figures
    own: Figures | None = None
    answered_psnr: float | None = None
    """Of the merged scene on the pixels that `own` is of."""


def measured(pairs: Iterable[Pair]) -> Measured:
    """Return the means over photographs; the gain over those alone that a patch has measured itself on."""
    known = list(pairs)
    merged = {name: _mean(getattr(pair.merged, name) for pair in known) for name in FIGURES}
    own = {f"own_{name}": _mean(getattr(pair.own, name) for pair in known if pair.own) for name in ("psnr", "ssim")}
    answered = _mean(pair.answered_psnr for pair in known)
    gain = _mean(_gain(pair) for pair in known)
    return Measured(num_photos=len(known), answered_psnr=answered, gain_db=gain, **merged, **own)


def _gain(pair: Pair) -> float | None:
    own = pair.own.psnr if pair.own else None
    return None if own is None or pair.answered_psnr is None else pair.answered_psnr - own


def of_photos(photos: Mapping[str, PhotoMeasured], names: Iterable[str]) -> Measured:
    """Return the means over some photographs, beside the splats of the patches that each sees most of."""
    return measured(
        Pair(photos[name], Figures(psnr=photos[name].own_psnr), photos[name].answered.get(photos[name].home))
        for name in names
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
