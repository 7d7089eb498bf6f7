"""A merged scene that is evaluated: cores, cameras in the splats' frame, and splats of patches and backdrop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from splatbatch.config import Offset, Recipe
from splatbatch.errors import SceneError
from splatbatch.files import MIB
from splatbatch.groups import grouped
from splatbatch.output.records.evaluation import EvaluationSettings
from splatbatch.processes import available_mib
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.rigs import rigs_of
from splatbatch.scene.coverage_mask import CoverageMask, coverage_mask
from splatbatch.scene.frame import shifted
from splatbatch.scene.partition.border import Shares, reach_of, shares_of
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition, read_partition
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters
from splatbatch.training.photos.dataset import boundary_mask_of, label_colors
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, drawn_as
from splatbatch.training.scene.block_cache import BlockCache, open_blocks
from splatbatch.training.scene.photographs import CameraView, usual_scale

FLOAT = 4
MOST_BYTES = 1 << 40
"""Upper limit of the free memory, in bytes, for machines that do not say how much is free."""


@dataclass(frozen=True)
class LoadedScene:
    """Settings, partition (the cut into cores) and cameras of a merged scene, by which its splats are evaluated."""

    settings: EvaluationSettings
    recipe: Recipe
    partition: Partition
    model: Reconstruction
    """The reconstruction of the whole scene, with the offset of the splats subtracted from its coordinates."""
    shares: Shares
    """Share of each photograph's points in each core, [P], by the photograph's name."""
    device: torch.device
    """Device that renders."""
    covered: CoverageMask = field(default_factory=CoverageMask)
    """Covered pixels of the held-out photographs; empty: not computed."""

    @property
    def held_out(self) -> list[str]:
        """Return the names of the held-out photographs that the model has, sorted by home patch, then by name."""
        wanted = set(self.settings.holdout)
        return self.in_order([image.name for image in self.model.images if image.name in wanted])

    def home(self, name: str) -> str:
        """Return the patch in whose core most points of a photograph lie; an empty string if none lies in a core.

        Raises:
            KeyError: the model has no such photograph.
        """
        share = self.shares[name]
        return self.partition.cores[int(share.argmax())].name if share.any() else ""

    def in_order(self, names: Sequence[str]) -> list[str]:
        """Return names of photographs sorted by home patch (see `home`), then by name; those without a home come first.

        In this order few blocks of a splat are loaded more than once.

        Raises:
            KeyError: the model has no photograph of one of the names.
        """
        order = {core.name: place for place, core in enumerate(self.partition.cores)}
        return sorted(names, key=lambda name: (order.get(self.home(name), -1), name))

    @property
    def scale(self) -> float:
        """Return the median scale of training frames, in units of the model; 1 without photographs.

        There is one frame for the photographs of each home patch, and one for those without a home. With this scale a
        camera has about the near plane of training.
        """
        groups = grouped((self.home(name), name) for name in self.shares)
        by_name = {image.name: image for image in self.model.images}
        return usual_scale([by_name[name] for name in group] for group in groups.values())

    def store(self, splat: Path, shared_by: int = 1) -> BlockCache:
        """Open a splat file as a cache of blocks on the device, sized by the free memory divided by `shared_by`.

        `settings.held_share` of the free memory is for caches of blocks, at least one Gaussian.

        Raises:
            SceneError: the file cannot be read, is no splat, or is truncated.
        """
        blocks = open_blocks(splat)
        room = self.settings.held_share * _free_bytes(self.device) / shared_by
        return BlockCache(blocks, self.device, max(1, int(room / (FLOAT * len(blocks.columns)))))

    def place(self, box: Box) -> PatchPlacement:
        """Return a box of the partition with the offset of the splats, to test which points of a frame lie inside."""
        return PatchPlacement(self.partition, box, self.settings.offset)

    def drawn(self, patch: str) -> PatchRenderer:
        """Open the splat of a patch, with the backdrop if the patch was trained with the present one.

        Patch and backdrop may each use a quarter of the memory for caches (see `store`), since a seam has two patches.

        Raises:
            KeyError: the patch has no accepted splat.
            SceneError: the splat of the patch or of the backdrop cannot be read.
        """
        own = self.store(Path(self.settings.splats[patch]), 4)
        return PatchRenderer(own, self.behind([patch]).get(patch))

    def behind(self, patches: Iterable[str]) -> dict[str, Backdrop]:
        """Return the backdrop of each given patch that was trained with the present backdrop, by patch.

        The results share one cache of blocks. Empty if there is no such patch.

        Raises:
            SceneError: the splat of the backdrop cannot be read.
        """
        cores = {name: self.partition.core(name) for name in patches if name in self.settings.before_backdrop}
        if not cores:
            return {}
        store = self.store(Path(self.settings.backdrop), 4)
        return {name: Backdrop(store, self.place(reach_of(core))) for name, core in cores.items() if core}

    def options(self, store: BlockCache) -> RasterOptions:
        """Return the raster options for a splat, with the degree of harmonics and the antialiasing of its header."""
        return RasterOptions.of(drawn_as(self.recipe, store.blocks.header))


def open_scene(settings: EvaluationSettings, recipe: Recipe, device: torch.device) -> LoadedScene:
    """Read the partition and the model of a scene, and compute the covered pixels of its held-out photographs.

    Splats and photographs are not opened yet.

    Raises:
        SceneError: the partition or the model cannot be read, or the model has no held-out photograph.
    """
    partition = read_partition(Path(settings.partition))
    world = read_reconstruction(partition.source, tracks=True)
    shares = shares_of(partition, world)
    scene = LoadedScene(settings, recipe, partition, shifted(world, settings.offset), shares, device)
    if not scene.held_out:
        raise SceneError(f"{partition.source}: the model has none of the held-out photographs: hold out others")
    return replace(scene, covered=coverage_mask(world, set(scene.held_out), rigs=rigs_of(partition.source)))


def _free_bytes(device: torch.device) -> int:
    """Return the free memory in bytes: of the GPU, or of the host for the CPU."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_mib() * MIB
    return int(min(free, MOST_BYTES))


@dataclass(frozen=True)
class PatchPlacement:
    """A box of a partition, in its axes, that tests which points of a local frame lie inside."""

    partition: Partition
    box: Box
    offset: Offset
    """Offset of the local frames: what was subtracted from the coordinates of the partition's model."""

    def holds(self, places: Tensor, frame: LocalFrame) -> Tensor:
        """Return a mask [...] of the points [..., 3] of a local frame that lie in the half-open box."""
        there = frame.scale * places.double() + torch.from_numpy(frame.origin).to(places.device)
        flat = self.partition.in_axes(there.reshape(-1, 3).cpu().numpy(), self.offset)
        return torch.from_numpy(self.box.holds(flat)).to(places.device).reshape(places.shape[:-1])


@dataclass(frozen=True)
class Backdrop:
    """The backdrop as rendered behind a patch in its training: without the Gaussians within the patch's reach."""

    store: BlockCache
    """Blocks of the backdrop's splat."""
    reach: PatchPlacement
    """Reach of the patch, the box around its core that bounds its Gaussians; no backdrop is rendered within."""

    def boundary_mask(self, shot: CameraView) -> PosedImage:
        """Return a photograph whose mask ignores the pixels that show the scene outside the patch's reach.

        These pixels, which training ignores too, are found by a rendering of the whole backdrop.

        Raises:
            TrainerError: there are no kernels for the GPU.
            ValueError: the splat file of the backdrop has become shorter.
            OSError: the splat file cannot be read.
        """
        behind = self.store.seen_from(shot.frame, shot.photo.view)
        is_outside = ~self.reach.holds(behind["means"], shot.frame)
        shown = rasterize({**behind, **label_colors(is_outside)}, shot.photo.view, RasterOptions(sh_degree=0))
        return boundary_mask_of(shot.photo, shown)


@dataclass(frozen=True)
class PatchRenderer:
    """The splat of a patch with its backdrop, rendered as in training."""

    store: BlockCache
    """Blocks of the patch's splat."""
    backdrop: Backdrop | None = None
    """Backdrop of the patch; None: the patch was not trained with the present backdrop."""

    def seen_from(self, frame: LocalFrame, view: RenderCamera) -> tuple[Parameters, Parameters]:
        """Return the patch's own Gaussians that may be visible from a view, and all to render: own and backdrop.

        `view` and Gaussians are in the local frame `frame`.

        Raises:
            ValueError: a splat file has become shorter.
            OSError: a splat file cannot be read.
        """
        own = self.store.seen_from(frame, view)
        if self.backdrop is None:
            return own, own
        behind = self.backdrop.store.seen_from(frame, view)
        is_behind = ~self.backdrop.reach.holds(behind["means"], frame)
        num = own["shN"].shape[1]
        rest = pad(behind["shN"][:, :num], (0, 0, 0, max(0, num - behind["shN"].shape[1])))
        values = {name: torch.cat([own[name], {**behind, "shN": rest}[name][is_behind]]) for name in own}
        return own, {name: Parameter(value, requires_grad=False) for name, value in values.items()}
