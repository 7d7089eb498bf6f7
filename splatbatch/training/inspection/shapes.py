"""What the Gaussians themselves are, weighed with what they paint: floaters, needles, giants; and ballast."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import Parameter

from splatbatch.training.gaussians import SH_C0
from splatbatch.training.inspection.subject import Look, Subject
from splatbatch.training.inspection.surface import Fronts
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.spread import spread

MOST_VIEWS = 16
NEEDLE = 12.0
"""Times its second axis that the longest axis of a needle measures; a disc is none."""
GIANT = 0.4
"""Times the size of the scene that both long axes of a giant measure."""
TAILS = (1.0, 99.0)
"""Percent of the points between which the scene lies: what is large beyond it is a background."""
FAINT = 0.02
"""Opacity below which a Gaussian alone does not change the picture by more than a few steps of 255."""
OPAQUE = 0.1
"""Opacity from which on a floater counts."""


@dataclass(frozen=True)
class Painted:
    """Shares of what pictures show, in the mean over pictures."""

    needles: float
    giants: float


def floaters(subject: Subject, found: Fronts) -> float:
    """Return which share of the opaque mass stands in front of the points in most pictures that show it."""
    opacities = subject.own["opacities"].double().sigmoid().cpu().numpy()
    opaque = opacities > OPAQUE
    is_floater = opaque & (found.num_seen > 0) & (2 * found.num_front >= found.num_seen)
    return float(opacities[is_floater].sum() / max(opacities[opaque].sum(), 1e-9))


def ballast(subject: Subject) -> float:
    """Return which share of the Gaussians is near-invisible."""
    return float((subject.own["opacities"].sigmoid() < FAINT).double().mean())


@torch.inference_mode()
def painted(subject: Subject) -> Painted:
    """Return how much of the pictures needles and giants paint: they are drawn red and green among black ones."""
    colors = marks(subject)
    shares = np.array([_shares(subject, look, colors) for look in spread(subject.looks, MOST_VIEWS)])
    needles, giants = shares.mean(axis=0) if len(shares) else (0.0, 0.0)
    return Painted(float(needles), float(giants))


def marks(subject: Subject) -> Parameter:
    """Return the colours by which needles and giants are told from others, [N, 1, 3]."""
    lengths = subject.own["scales"].exp().sort(dim=1, descending=True).values  # [N, 3]
    size = float(np.linalg.norm(subject.points.std(axis=0)))
    low, high = torch.from_numpy(np.percentile(subject.points, TAILS, axis=0)).to(subject.own["means"])
    is_within = ((subject.own["means"] >= low) & (subject.own["means"] <= high)).all(dim=1)
    is_needle, is_giant = lengths[:, 0] > NEEDLE * lengths[:, 1], is_within & (lengths[:, 1] > GIANT * size)
    marks = torch.zeros_like(subject.drawn["sh0"][:, 0])
    marks[: len(lengths), 0], marks[: len(lengths), 1] = is_needle.float(), is_giant.float()
    return Parameter(((marks - 0.5) / SH_C0)[:, None].contiguous(), requires_grad=False)


def _shares(subject: Subject, look: Look, marks: Parameter) -> tuple[float, float]:
    drawn = rasterize({**subject.drawn, "sh0": marks}, look.small.view, replace(subject.options, sh_degree=0))
    whole = drawn.alphas.sum().clamp_min(1e-9)
    return float(drawn.colors[..., 0].sum() / whole), float(drawn.colors[..., 1].sum() / whole)
