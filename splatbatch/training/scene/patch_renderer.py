"""A patch as it was trained: its own splat, and what of the backdrop lies behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from splatbatch.config import Offset
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition
from splatbatch.training.border.boundary_mask import boundary_mask_of, label_colors
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters
from splatbatch.training.photos.posed_images import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.scene.block_cache import BlockCache
from splatbatch.training.scene.photographs import CameraView


@dataclass(frozen=True)
class PatchPlacement:
    """A box of a partition, asked of places in the splats' frame."""

    partition: Partition
    box: Box
    offset: Offset

    def holds(self, places: Tensor, frame: LocalFrame) -> Tensor:
        """Return which places of a frame [..., 3] lie there, [...]."""
        there = frame.scale * places.double() + torch.from_numpy(frame.origin).to(places.device)
        flat = self.partition.in_axes(there.reshape(-1, 3).cpu().numpy(), self.offset)
        return torch.from_numpy(self.box.holds(flat)).to(places.device).reshape(places.shape[:-1])


@dataclass(frozen=True)
class Backdrop:
    """What was drawn behind a patch."""

    store: BlockCache
    reach: PatchPlacement
    """Of the patch: what lies there the patch itself explains."""

    def boundary_mask(self, shot: CameraView) -> PosedImage:
        """Return a photograph whose pixels count where the patch answers for them."""
        behind = self.store.seen_from(shot.frame, shot.photo.view)
        is_outside = ~self.reach.holds(behind["means"], shot.frame)
        shown = rasterize({**behind, **label_colors(is_outside)}, shot.photo.view, RasterOptions(sh_degree=0))
        return boundary_mask_of(shot.photo, shown)


@dataclass(frozen=True)
class PatchRenderer:
    """The splat of a patch with what was drawn behind it as it was trained."""

    store: BlockCache
    backdrop: Backdrop | None = None

    @property
    def sh_degree(self) -> int:
        """Return the degree of its colours."""
        return self.store.blocks.header.sh_degree

    def seen_from(self, frame: LocalFrame, view: RenderCamera) -> tuple[Parameters, Parameters]:
        """Return the patch's own Gaussians that a view may show, and all that it may show."""
        own = self.store.seen_from(frame, view)
        if self.backdrop is None:
            return own, own
        behind = self.backdrop.store.seen_from(frame, view)
        is_behind = ~self.backdrop.reach.holds(behind["means"], frame)
        num = own["shN"].shape[1]
        rest = pad(behind["shN"][:, :num], (0, 0, 0, max(0, num - behind["shN"].shape[1])))
        values = {name: torch.cat([own[name], {**behind, "shN": rest}[name][is_behind]]) for name in own}
        return own, {name: Parameter(value, requires_grad=False) for name, value in values.items()}
