"""Figures of the Gaussians' shapes and places: floaters, needles, giants and near-invisible ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.training.inspection.subject import BlendedView, InspectedSplat
from splatbatch.training.inspection.surface import FrontCounts
from splatbatch.training.photos.dataset import evenly_spaced

MOST_VIEWS = 16
FAINT = 0.02
"""Opacity below which a Gaussian is near-invisible: alone it changes a picture by a few steps of 255 at most."""
OPAQUE = 0.1
"""Opacity above which a Gaussian can be a floater."""


@dataclass(frozen=True)
class PictureShares:
    """Shares of the pictures' opacity that needles and giants contribute, in the mean over pictures."""

    needles: float
    giants: float


def floaters(subject: InspectedSplat, found: FrontCounts) -> float:
    """Return the share of floaters in the summed opacity of opaque Gaussians.

    A floater stands in front of the model's points in at least half of the pictures that show it.
    """
    opacities = subject.own["opacities"].double().sigmoid().cpu().numpy()
    opaque = opacities > OPAQUE
    is_floater = opaque & (found.num_seen > 0) & (2 * found.num_front >= found.num_seen)
    return float(opacities[is_floater].sum() / max(opacities[opaque].sum(), 1e-9))


def transparent_share(subject: InspectedSplat) -> float:
    """Return the share of Gaussians with an opacity below `FAINT`."""
    return float((subject.own["opacities"].sigmoid() < FAINT).double().mean())


def label_colors(subject: InspectedSplat) -> PictureShares:
    """Return the shares of needles and giants in renderings from at most `MOST_VIEWS` photographs."""
    shares = np.array([_shares(subject.shown(look)) for look in evenly_spaced(subject.looks, MOST_VIEWS)])
    needles, giants = shares.mean(axis=0) if len(shares) else (0.0, 0.0)
    return PictureShares(float(needles), float(giants))


def _shares(shown: BlendedView) -> tuple[float, float]:
    whole = shown.alphas.sum().clamp_min(1e-9)
    return float(shown.needles.sum() / whole), float(shown.giants.sum() / whole)
