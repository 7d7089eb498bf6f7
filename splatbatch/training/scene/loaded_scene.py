"""A merged scene that is evaluated: partition, cameras in the splats' frame, and splats of patches and backdrop."""

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
from splatbatch.machine.slots import available_mib
from splatbatch.output.records.evaluation import EvaluationSettings
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
"""Upper limit of the free memory, in bytes, for machines that do not know it."""


@dataclass(frozen=True)
class LoadedScene:
    """Settings, partition and cameras of a merged scene, from which its splats are opened and evaluated."""

    settings: EvaluationSettings
    recipe: Recipe
    partition: Partition
    model: Reconstruction
    """The reconstruction of the whole scene, in the splats' frame (its offset is subtracted)."""
    shares: Shares
    device: torch.device
    covered: CoverageMask = field(default_factory=CoverageMask)

    @property
    def held_out(self) -> list[str]:
        """Return the names of the held-out photographs of the scene, in the order of `in_order`."""
        wanted = set(self.settings.holdout)
        return self.in_order([image.name for image in self.model.images if image.name in wanted])

    def home(self, name: str) -> str:
        """Return the patch in whose core most points of a photograph lie; an empty string if none lies in a core."""
        share = self.shares[name]
        return self.partition.cores[int(share.argmax())].name if share.any() else ""

    def in_order(self, names: Sequence[str]) -> list[str]:
        """Return photographs sorted by their home patch, then by name, so that few blocks are loaded repeatedly."""
        order = {core.name: place for place, core in enumerate(self.partition.cores)}
        return sorted(names, key=lambda name: (order.get(self.home(name), -1), name))

    @property
    def scale(self) -> float:
        """Return the median scale of the patches' training frames, so that the near plane is that of training."""
        groups: dict[str, list[str]] = {}
        for name in self.shares:
            groups.setdefault(self.home(name), []).append(name)
        by_name = {image.name: image for image in self.model.images}
        return usual_scale([by_name[name] for name in group] for group in groups.values())

    def store(self, splat: Path, shared_by: int = 1) -> BlockCache:
        """Open a splat file as a cache of blocks on the device, sized by the free memory over `shared_by`.

        Raises:
            SceneError: it cannot be read.
        """
        blocks = open_blocks(splat)
        room = self.settings.held_share * _free_bytes(self.device) / shared_by
        return BlockCache(blocks, self.device, max(1, int(room / (FLOAT * len(blocks.columns)))))

    def place(self, box: Box) -> PatchPlacement:
        """Return a box of the partition, to test points of the splats' frame against it."""
        return PatchPlacement(self.partition, box, self.settings.offset)

    def drawn(self, patch: str) -> PatchRenderer:
        """Open the splat of a patch with its backdrop, as it was trained.

        Each takes a quarter of the memory, since a seam has two patches.

        Raises:
            SceneError: its splat, or that of its backdrop, cannot be read.
        """
        own = self.store(Path(self.settings.splats[patch]), 4)
        return PatchRenderer(own, self.behind([patch]).get(patch))

    def behind(self, patches: Iterable[str]) -> dict[str, Backdrop]:
        """Return the backdrops of those patches that were trained with one; they share one cache of blocks.

        Raises:
            SceneError: the splat of the backdrop cannot be read.
        """
        cores = {name: self.partition.core(name) for name in patches if name in self.settings.before_backdrop}
        if not cores:
            return {}
        store = self.store(Path(self.settings.backdrop), 4)
        return {name: Backdrop(store, self.place(reach_of(core))) for name, core in cores.items() if core}

    def options(self, store: BlockCache) -> RasterOptions:
        """Return the raster options for a splat, with the degree and antialiasing of its header."""
        return RasterOptions.of(drawn_as(self.recipe, store.blocks.header))


def open_scene(settings: EvaluationSettings, recipe: Recipe, device: torch.device) -> LoadedScene:
    """Read the partition and the model of a scene, and compute the covered pixels of its held-out photographs.

    Raises:
        SceneError: the partition or the model cannot be read, or the model has no held-out photograph.
    """
    partition = read_partition(Path(settings.partition))
    world = read_reconstruction(partition.source, tracks=True)
    shares = shares_of(partition, world)
    scene = LoadedScene(settings, recipe, partition, shifted(world, settings.offset), shares, device)
    if not scene.held_out:
        raise SceneError(f"{partition.source}: has none of the photographs that are to be measured on")
    return replace(scene, covered=coverage_mask(world, set(scene.held_out), rigs=rigs_of(partition.source)))


def _free_bytes(device: torch.device) -> int:
    """Return the free memory in bytes: of the GPU, or of the host for the CPU."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_mib() * MIB
    return int(min(free, MOST_BYTES))


@dataclass(frozen=True)
class PatchPlacement:
    """A box of a partition, against which points of a frame within the splats' frame are tested."""

    partition: Partition
    box: Box
    offset: Offset

    def holds(self, places: Tensor, frame: LocalFrame) -> Tensor:
        """Return which points of a frame [..., 3] lie in the box, [...]."""
        there = frame.scale * places.double() + torch.from_numpy(frame.origin).to(places.device)
        flat = self.partition.in_axes(there.reshape(-1, 3).cpu().numpy(), self.offset)
        return torch.from_numpy(self.box.holds(flat)).to(places.device).reshape(places.shape[:-1])


@dataclass(frozen=True)
class Backdrop:
    """The backdrop that was rendered behind a patch in its training."""

    store: BlockCache
    reach: PatchPlacement
    """Reach of the patch; Gaussians of the backdrop within it are not rendered."""

    def boundary_mask(self, shot: CameraView) -> PosedImage:
        """Mask the pixels of a photograph that show the scene outside the patch's reach, as in its training."""
        behind = self.store.seen_from(shot.frame, shot.photo.view)
        is_outside = ~self.reach.holds(behind["means"], shot.frame)
        shown = rasterize({**behind, **label_colors(is_outside)}, shot.photo.view, RasterOptions(sh_degree=0))
        return boundary_mask_of(shot.photo, shown)


@dataclass(frozen=True)
class PatchRenderer:
    """The splat of a patch with its backdrop, rendered as in training."""

    store: BlockCache
    backdrop: Backdrop | None = None

    def seen_from(self, frame: LocalFrame, view: RenderCamera) -> tuple[Parameters, Parameters]:
        """Return the patch's own Gaussians that may be visible from a view, and these with those of the backdrop."""
        own = self.store.seen_from(frame, view)
        if self.backdrop is None:
            return own, own
        behind = self.backdrop.store.seen_from(frame, view)
        is_behind = ~self.backdrop.reach.holds(behind["means"], frame)
        num = own["shN"].shape[1]
        rest = pad(behind["shN"][:, :num], (0, 0, 0, max(0, num - behind["shN"].shape[1])))
        values = {name: torch.cat([own[name], {**behind, "shN": rest}[name][is_behind]]) for name in own}
        return own, {name: Parameter(value, requires_grad=False) for name, value in values.items()}
