"""How each photograph was exposed: a small colour transform per photo, learned beside the splat and gone at the end.

As 3DGS's exposure optimisation (Kerbl 2024, "A Hierarchical 3D Gaussian Representation", section 5.1, and its reference
program): colour' = A colour + b, with A [3, 3] and b [3] per photo that start at the identity, and Adam with a rate
that falls from 0.01 to 0.001. Two things differ. Adam looks only at the photo of the step, where one Adam over all of
them would go on pushing those that are not shown. And what all photographs have in common belongs to the Gaussians:
after every pass the mean transform is made the identity again, so that views without a transform of their own, held-out
and new ones, are rendered as the photographs are on average.

Where photographs have tones, a rendering is compared with the evened photograph: the transforms are what is left on top
of the tones, start from them, and keep their gauge, so that patches of one scene cannot drift apart in colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.training.photos.views import Photo

FIRST_RATE, LAST_RATE = 0.01, 0.001


class Exposures:
    """The transforms of the training photographs."""

    def __init__(self, photos: Sequence[Photo], max_steps: int) -> None:
        device = photos[0].view.viewmat.device
        self._identity = torch.eye(3, 4, device=device)
        self._values = self._identity.repeat(len(photos), 1, 1)  # [n, 3, 4]: A, and b in the last column
        # each a parameter of its own, in the memory of all: Adam skips those without a gradient
        self._own = {photo.name: Parameter(value) for photo, value in zip(photos, self._values, strict=True)}
        self._adam = torch.optim.Adam(self._own.values(), lr=FIRST_RATE)
        self._decay = (LAST_RATE / FIRST_RATE) ** (1 / max_steps)
        self._steps = 0

    def apply(self, colors: Tensor, name: str) -> Tensor:
        """Return a rendering [H, W, 3] as the photo of this name would have exposed it."""
        own = self._own[name]
        return colors @ own[:, :3].T + own[:, 3]

    @torch.no_grad()
    def step(self) -> None:
        """Move the transform of the photo that was shown; after a pass over all make their mean the identity."""
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        for group in self._adam.param_groups:
            group["lr"] *= self._decay
        self._steps += 1
        if self._steps % len(self._own) == 0:
            self._values += self._identity - self._values.mean(dim=0)

    def state(self) -> dict[str, Any]:
        """Return all that a step changes, as tensors and plain values, for a checkpoint."""
        return {"values": self._values, "adam": self._adam.state_dict(), "steps": self._steps}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what a checkpoint says."""
        self._values.copy_(state["values"])
        self._adam.load_state_dict(state["adam"])
        self._steps = state["steps"]
