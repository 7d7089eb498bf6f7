"""Border of a patch with a core, and the backdrop that is rendered behind the patch's own Gaussians.

The reach of a patch is a finite box, the core and a margin around; the means of its Gaussians stay within reach. Of the
backdrop, the splat of the whole scene, Gaussians outside the reach are rendered behind. A patch without a core has
neither border nor backdrop. Gaussians that are too large near the border are kept small, so that none shines across
(measured: docs/benchmarks.md, "The border of a cut scene").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from splatbatch.config import Offset, Training
from splatbatch.errors import TrainerError
from splatbatch.hashing import sha256_of
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.memory_estimate import every
from splatbatch.scene.partition.border import Border
from splatbatch.splats import read_header, read_splat
from splatbatch.training.cpu.projection import scaled_rotations
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import select, values_of

MOST_PARTS = 1024
"""Largest number of parts into which one Gaussian of the backdrop is split."""
SHARE_OF_CAP = 3
"""Divisor of the cap: at most a third of a patch's cap is initialised from the backdrop."""
SEED = 1

EXTENT_SIGMAS = 3.0
"""Extent of a Gaussian in standard deviations; at that distance from its mean the alpha is 1 % of its opacity."""

ALONE = "no backdrop was ready, so the patch is trained without a border: merging will crop more of its Gaussians"


@dataclass(frozen=True)
class PatchBorder:
    """Border of a patch and its backdrop; all fields are empty for a patch without a core, or trained without both.

    The reach of a patch is the box that bounds its Gaussians: the core and a margin around.
    """

    bounds: Boundary | None = None
    """Core and reach in the frame of the training; None: Gaussians may be anywhere."""
    backdrop: Mapping[str, Tensor] = field(default_factory=dict)
    """Backdrop Gaussians outside the patch's reach, which are rendered but not trained; empty: no backdrop."""
    backdrop_inside: Mapping[str, Tensor] = field(default_factory=dict)
    """Backdrop Gaussians within reach, rendered only to find the pixels that show the patch.

    Empty: no backdrop, or these pixels were found already (`photos.dataset.boundary_mask`).
    """
    boundary_init: Mapping[str, Tensor] = field(default_factory=dict)
    """Parts of large backdrop Gaussians that lie within reach, a sample of which the patch is initialised with.

    Empty: there are none, or border and backdrop were moved to a device.
    """

    def to(self, device: torch.device) -> PatchBorder:
        """Return border and backdrop with their tensors on a device; `boundary_init`, used up by then, is left out."""
        backdrop, within = (
            {name: value.to(device) for name, value in values.items()}
            for values in (self.backdrop, self.backdrop_inside)
        )
        return PatchBorder(self.bounds.to(device) if self.bounds else None, backdrop, within)

    @property
    def num_behind(self) -> int:
        """Return the number of backdrop Gaussians rendered behind the patch; 0 without a backdrop."""
        return len(self.backdrop["means"]) if self.backdrop else 0

    def with_backdrop(self, gaussians: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return all Gaussians to render: those given first, then the backdrop's, which get no gradient.

        Without a backdrop `gaussians` is returned itself.
        """
        if not self.backdrop:
            return gaussians
        return {name: torch.cat((value, self.backdrop[name])) for name, value in gaussians.items()}

    def to_hash(self) -> dict[str, Tensor]:
        """Return the tensors of border and backdrop on which a training depends, for the hash in checkpoints.

        Empty without bounds and backdrop.
        """
        bounds = vars(self.bounds) | {"margin": torch.tensor(self.bounds.margin)} if self.bounds else {}
        return {**bounds, **self.backdrop, **{f"{name} within": value for name, value in self.backdrop_inside.items()}}

    @torch.no_grad()
    def out_of_bounds(self, gaussians: Mapping[str, Tensor]) -> Tensor | None:
        """Return a mask [N] of the Gaussians with a mean outside the reach; None where Gaussians may be anywhere."""
        return None if self.bounds is None else ~self.bounds.contains(gaussians["means"])

    @torch.no_grad()
    def clamp_scales(self, gaussians: Mapping[str, Tensor]) -> None:
        """Clamp, in place, the scales of Gaussians to `Boundary.largest_scales`, so that none shines across the border.

        Does nothing where Gaussians may be anywhere.
        """
        if self.bounds is not None:
            largest = self.bounds.largest_scales(gaussians["means"]).log()
            gaussians["scales"].copy_(torch.minimum(gaussians["scales"], largest[:, None]))


NONE = PatchBorder()


def read_border(settings: TrainingSettings, frame: LocalFrame, training: Training) -> PatchBorder:
    """Return border and backdrop of a patch, in host memory.

    Empty for a patch without a core, with `training.border: none`, or where the settings name no backdrop though the
    recipe wants one: the patch is then trained without a border. A border without a backdrop is no substitute.
    Auxiliary Gaussians, trained outside the reach and cropped away, shine into the core and cost 4 dB. Measured on the
    quarry cut in 2, 600 steps on the CPU: 22.1 dB; 26.0 without any border.

    For comparison, `training.border: backdrop` renders the backdrop, and Gaussians may be anywhere; `core` gives the
    border without a backdrop.

    Raises:
        TrainerError: the backdrop's file has another hash or offset than the settings say, or cannot be read.
        KeyError: the border in the settings lacks a key.
    """
    border = Border.from_record(settings.border)
    is_alone = not settings.backdrop and training.draws_behind
    if border is None or is_alone or training.border == "none":
        return NONE  # without a backdrop, the patch's own Gaussians must explain the pixels of the scene around
    bounds = Boundary.of(border, frame, settings.offset)
    if not training.draws_behind:
        return PatchBorder(bounds)
    values = _read(settings, frame, training.sh_degree)
    if not training.keeps_to_core:
        inside = bounds.contains(values["means"])
        return PatchBorder(None, select(values, ~inside), select(values, inside))
    # large backdrop Gaussians are split, since they would shine across the border into the core; of a Gaussian with its
    # mean within reach, parts outside are not rendered, since the merged scene will not have them
    pieces, origin, is_part = split_up(values, bounds)
    inside, was_inside = bounds.contains(pieces["means"]), bounds.contains(values["means"])[origin]
    behind, within, cover = (select(pieces, which) for which in (~inside & ~was_inside, inside, inside & is_part))
    return PatchBorder(bounds, behind, within, cover)


def _read(settings: TrainingSettings, frame: LocalFrame, sh_degree: int) -> dict[str, Tensor]:
    path = Path(settings.backdrop)
    if sha256_of(path) != settings.backdrop_sha256:
        raise TrainerError(f"{path}: the backdrop is missing or has changed since the patch was started: run again")
    try:
        offset: Offset = read_header(path).offset
        values = values_of(read_splat(path), frame)
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: the backdrop cannot be read ({error}): train the backdrop again") from error
    if offset != settings.offset:
        raise TrainerError(f"{path}: the backdrop has the offset {offset}, not {settings.offset}: train it again")
    num = (sh_degree + 1) ** 2 - 1
    values["shN"] = pad(values["shN"][:, :num], (0, 0, 0, max(0, num - values["shN"].shape[1])))
    return values


def as_trained(model: Reconstruction, settings: TrainingSettings, training: Training) -> Reconstruction:
    """Return the model to train on: unchanged for a patch, with fewer points and photographs for the backdrop itself.

    Points are thinned to the cap and lose their tracks; photographs are thinned evenly.
    """
    if not settings.is_backdrop:
        return model
    points, images = model.points, model.images
    rows = slice(None, None, max(1, -(-len(points) // training.cap(len(points)))))
    kept = {name: value[rows] for name, value in vars(points).items() if name != "tracks"}
    return replace(model, points=replace(points, **kept, tracks=None), images=images[:: every(len(images))])


def why_alone(settings: TrainingSettings, training: Training) -> str:
    """Return a warning for the user if a patch with a core lacks the backdrop that its recipe wants; else empty."""
    return ALONE if settings.border and not settings.backdrop and training.draws_behind else ""


@dataclass(frozen=True)
class Boundary:
    """Core of a patch and its reach, the box that bounds its Gaussians, in the frame of the training.

    All tensors are on one device.
    """

    axes: Tensor  # [3, 3], rows are unit vectors
    core: Tensor  # [2, 3], lower and upper, infinite where no other core is
    reach: Tensor  # [2, 3]
    margin: float
    """Smallest distance from the core to the end of the reach, in units of the frame; infinite without a neighbour."""

    @classmethod
    def of(cls, border: Border, frame: LocalFrame, offset: Offset) -> Boundary:
        """Return a border, given in the coordinates of the COLMAP model, in the frame of the training, in host memory.

        `offset` is what is subtracted from the coordinates of the model when it is read, in its unit.
        """
        axes = np.array(border.axes)
        middle = (frame.origin + np.array(offset)) @ axes.T

        def trained(lower: tuple[float, ...], upper: tuple[float, ...]) -> Tensor:
            return torch.from_numpy((np.array([lower, upper]) - middle) / frame.scale).float()

        core, reach = (trained(box.lower, box.upper) for box in (border.core, border.reach))
        return cls(torch.from_numpy(axes).float(), core, reach, border.margin / frame.scale)

    def to(self, device: torch.device) -> Boundary:
        """Return the boundary with its tensors on a device."""
        return replace(self, axes=self.axes.to(device), core=self.core.to(device), reach=self.reach.to(device))

    def contains(self, means: Tensor) -> Tensor:
        """Return a mask [N] of the means [N, 3] that lie within reach, a half-open box."""
        places = means @ self.axes.T
        return ((places >= self.reach[0]) & (places < self.reach[1])).all(dim=-1)

    def largest_scales(self, means: Tensor) -> Tensor:
        """Return the largest standard deviation of a Gaussian at each mean [N, 3], in units of the frame, [N].

        `EXTENT_SIGMAS` (3) of these deviations are the distance from the mean to the border of the core, at least the
        margin.
        """
        places = means @ self.axes.T
        beyond = torch.maximum(self.core[0] - places, places - self.core[1]).amax(dim=-1)  # negative inside the core
        return beyond.abs().clamp_min(self.margin) / EXTENT_SIGMAS


def split_up(values: Mapping[str, Tensor], bounds: Boundary) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Split Gaussians that exceed `Boundary.largest_scales` into small ones that fill the same volume.

    Positions of the parts are random, with a fixed seed. One Gaussian has at most `MOST_PARTS` parts, and fewer where
    all together would more than double; the parts then fill less.

    Returns:
        The M resulting Gaussians; the index of the Gaussian from which each stems, [M]; and a mask [M] of those that
        are parts of a split Gaussian. M is at most about twice the number of Gaussians.
    """
    scales = values["scales"].exp()
    largest = bounds.largest_scales(values["means"])[:, None]
    more = (scales / largest).clamp_min(1).prod(dim=1).ceil().clamp_max(MOST_PARTS) - 1
    more = more * (len(more) / more.sum().clamp_min(1)).clamp_max(1)  # at most twice as many in total
    nums = 1 + more.long()
    origin = torch.repeat_interleave(nums)
    is_part = nums[origin] > 1
    pieces = select(values, origin)
    away = torch.randn(len(origin), 3, 1, generator=torch.Generator().manual_seed(SEED)) * is_part[:, None, None]
    pieces["means"] = pieces["means"] + (scaled_rotations(pieces["quats"], scales[origin]) @ away)[:, :, 0]
    held = bounds.largest_scales(pieces["means"])[:, None]  # by part: parts of a far Gaussian may be at the border
    pieces["scales"] = torch.minimum(torch.minimum(scales, largest)[origin], held).log()
    return pieces, origin, is_part


def boundary_init(first: Mapping[str, Tensor], cover: Mapping[str, Tensor], cap: int) -> dict[str, Tensor]:
    """Return the initial Gaussians of a patch with a random sample of `cover`, parts of the backdrop, appended.

    Without the sample, ground near the border with few sparse points would stay black: Gaussians there are kept small,
    and new ones come only from others nearby. The seed is fixed; at most a third of `cap` is appended. Nothing is
    appended if `cover` is empty.
    """
    if not cover:
        return dict(first)
    order = torch.randperm(len(cover["means"]), generator=torch.Generator().manual_seed(SEED))
    rows = order[: num_covering(cover, cap)]
    return {name: torch.cat((value, cover[name][rows].to(value))) for name, value in first.items()}


def num_covering(cover: Mapping[str, Tensor], cap: int) -> int:
    """Return how many Gaussians of `cover`, parts of the backdrop, a patch with this cap is initialised with.

    All of them, but at most a third of the cap; 0 if `cover` is empty.
    """
    return min(len(cover["means"]), cap // SHARE_OF_CAP) if cover else 0
