"""What a patch with a core is bounded by and drawn against: its border, and the backdrop behind it.

The backdrop is the splat of the whole scene, read without what the patch itself explains. A patch without a core has
neither, and trains as if this module were not there. What is too large near the border becomes small parts, so that
neither side shines into the other (measured: docs/benchmarks.md, "The border of a cut scene").
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
"""Of one Gaussian."""
SHARE_OF_CAP = 3
"""A third of what a patch may have, at most, covers bare ground as it begins."""
SEED = 1

EXTENT_SIGMAS = 3.0
"""Standard deviations that a Gaussian counts as reaching: what is beyond has 1 % of its opacity."""

ALONE = "there is no backdrop: trained beyond its border, and less of it will survive the crop to its core"


@dataclass(frozen=True)
class PatchBorder:
    """What lies around a patch; nothing, for a patch without a core."""

    bounds: Boundary | None = None
    backdrop: Mapping[str, Tensor] = field(default_factory=dict)
    """Gaussians of the whole scene outside the patch's reach, frozen; none where there is no backdrop."""
    backdrop_inside: Mapping[str, Tensor] = field(default_factory=dict)
    """Those within reach, which are never drawn with the patch's own: they tell which pixels show the patch."""
    boundary_init: Mapping[str, Tensor] = field(default_factory=dict)
    """Some of those within, which a patch begins with: parts of what is too large near the border."""

    def to(self, device: torch.device) -> PatchBorder:
        """Return it on a device."""
        backdrop, within = (
            {name: value.to(device) for name, value in values.items()}
            for values in (self.backdrop, self.backdrop_inside)
        )
        return PatchBorder(self.bounds.to(device) if self.bounds else None, backdrop, within)

    def drawn_whole(self) -> tuple[dict[str, Tensor], Tensor] | None:
        """Return the whole backdrop, and which of its Gaussians lie out of reach, [N]; None without one."""
        if not self.backdrop:
            return None
        whole = {name: torch.cat((self.backdrop_inside[name], value)) for name, value in self.backdrop.items()}
        num = len(whole["means"])
        return whole, torch.arange(num, device=whole["means"].device) >= len(self.backdrop_inside["means"])

    @property
    def num_behind(self) -> int:
        """Return how many Gaussians the backdrop has."""
        return len(self.backdrop["means"]) if self.backdrop else 0

    def with_backdrop(self, gaussians: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return all that is drawn: the patch's own Gaussians first, then the backdrop's, which get no gradient."""
        if not self.backdrop:
            return gaussians
        return {name: torch.cat((value, self.backdrop[name])) for name, value in gaussians.items()}

    def to_hash(self) -> dict[str, Tensor]:
        """Return all that a training depends on here; nothing, for a patch without a core."""
        bounds = vars(self.bounds) | {"margin": torch.tensor(self.bounds.margin)} if self.bounds else {}
        return {**bounds, **self.backdrop, **{f"{name} within": value for name, value in self.backdrop_inside.items()}}

    @torch.no_grad()
    def out_of_bounds(self, gaussians: Mapping[str, Tensor]) -> Tensor | None:
        """Return which of the patch's own Gaussians have left its reach, [N]; None where nothing bounds it."""
        return None if self.bounds is None else ~self.bounds.contains(gaussians["means"])

    @torch.no_grad()
    def clamp_scales(self, gaussians: Mapping[str, Tensor]) -> None:
        """Make Gaussians smaller, in place, that reach too far over the border."""
        if self.bounds is not None:
            largest = self.bounds.largest_scales(gaussians["means"]).log()
            gaussians["scales"].copy_(torch.minimum(gaussians["scales"], largest[:, None]))


NONE = PatchBorder()


def read_border(settings: TrainingSettings, frame: LocalFrame, training: Training) -> PatchBorder:
    """Return what lies around a patch, in host memory; nothing without a backdrop: it then trains as others do.

    Auxiliary Gaussians instead, trained outside the reach and cropped away, shine into the core: 4 dB were lost with
    them (the quarry cut in 2, 600 steps on the CPU: 22.1 dB; 26.0 without any border).

    Against the backdrop without a border, to compare with, a patch may have Gaussians anywhere.

    Raises:
        TrainerError: the backdrop is not the one that the patch is to be trained against.
    """
    border = Border.from_record(settings.border)
    is_alone = not settings.backdrop and training.draws_behind
    if border is None or is_alone or training.border == "none":
        return NONE  # nothing but its own Gaussians would explain what lies outside
    bounds = Boundary.of(border, frame, settings.offset)
    if not training.draws_behind:
        return PatchBorder(bounds)
    values = _read(settings, frame, training.sh_degree)
    if not training.keeps_to_core:
        inside = bounds.contains(values["means"])
        return PatchBorder(None, select(values, ~inside), select(values, inside))
    # what reaches over the border would shine into the core; what the crop takes away may not be drawn behind
    pieces, origin, is_part = split_up(values, bounds)
    inside, was_inside = bounds.contains(pieces["means"]), bounds.contains(values["means"])[origin]
    behind, within, cover = (select(pieces, which) for which in (~inside & ~was_inside, inside, inside & is_part))
    return PatchBorder(bounds, behind, within, cover)


def _read(settings: TrainingSettings, frame: LocalFrame, sh_degree: int) -> dict[str, Tensor]:
    path = Path(settings.backdrop)
    if sha256_of(path) != settings.backdrop_sha256:
        raise TrainerError(f"{path}: the backdrop is missing or has changed since the patch was started")
    try:
        offset: Offset = read_header(path).offset
        values = values_of(read_splat(path), frame)
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: the backdrop cannot be read ({error})") from error
    if offset != settings.offset:
        raise TrainerError(f"{path}: the backdrop lies in another frame: offset {offset}, not {settings.offset}")
    num = (sh_degree + 1) ** 2 - 1
    values["shN"] = pad(values["shN"][:, :num], (0, 0, 0, max(0, num - values["shN"].shape[1])))
    return values


def as_trained(model: Reconstruction, settings: TrainingSettings, training: Training) -> Reconstruction:
    """Return a model as it is trained from: of a whole scene at most so many points, and photographs of all of it."""
    if not settings.is_backdrop:
        return model
    points, images = model.points, model.images
    rows = slice(None, None, max(1, -(-len(points) // training.cap(len(points)))))
    kept = {name: value[rows] for name, value in vars(points).items() if name != "tracks"}
    return replace(model, points=replace(points, **kept, tracks=None), images=images[:: every(len(images))])


def why_alone(settings: TrainingSettings, training: Training) -> str:
    """Say that nothing lies behind a patch with a core although something should; empty where all is well."""
    return ALONE if settings.border and not settings.backdrop and training.draws_behind else ""


@dataclass(frozen=True)
class Boundary:
    """A border in the frame that is trained in, on the device that trains."""

    axes: Tensor  # [3, 3], rows are unit vectors
    core: Tensor  # [2, 3], lower and upper, infinite where no other core is
    reach: Tensor  # [2, 3]
    margin: float

    @classmethod
    def of(cls, border: Border, frame: LocalFrame, offset: Offset) -> Boundary:
        """Return a border as it lies in a frame of a model whose offset was taken off."""
        axes = np.array(border.axes)
        middle = (frame.origin + np.array(offset)) @ axes.T

        def trained(lower: tuple[float, ...], upper: tuple[float, ...]) -> Tensor:
            return torch.from_numpy((np.array([lower, upper]) - middle) / frame.scale).float()

        core, reach = (trained(box.lower, box.upper) for box in (border.core, border.reach))
        return cls(torch.from_numpy(axes).float(), core, reach, border.margin / frame.scale)

    def to(self, device: torch.device) -> Boundary:
        """Return the bounds on a device."""
        return replace(self, axes=self.axes.to(device), core=self.core.to(device), reach=self.reach.to(device))

    def contains(self, means: Tensor) -> Tensor:
        """Return which places [N, 3] lie within reach, [N]."""
        places = means @ self.axes.T
        return ((places >= self.reach[0]) & (places < self.reach[1])).all(dim=-1)

    def largest_scales(self, means: Tensor) -> Tensor:
        """Return how large a Gaussian at each place may be, [N]: it reaches no further than to the nearest border or,
        close to that, than the margin over it."""
        places = means @ self.axes.T
        beyond = torch.maximum(self.core[0] - places, places - self.core[1]).amax(dim=-1)  # negative inside the core
        return beyond.abs().clamp_min(self.margin) / EXTENT_SIGMAS


def split_up(values: Mapping[str, Tensor], bounds: Boundary) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return Gaussians with those in small parts that are too large so near a border; parts fill the same place.

    Beside them which Gaussian each of the M is, or is a part of, [M], and whether it is a part, [M].
    """
    scales = values["scales"].exp()
    largest = bounds.largest_scales(values["means"])[:, None]
    more = (scales / largest).clamp_min(1).prod(dim=1).ceil().clamp_max(MOST_PARTS) - 1
    more = more * (len(more) / more.sum().clamp_min(1)).clamp_max(1)  # twice as many in all, at most
    nums = 1 + more.long()
    origin = torch.repeat_interleave(nums)
    is_part = nums[origin] > 1
    pieces = select(values, origin)
    away = torch.randn(len(origin), 3, 1, generator=torch.Generator().manual_seed(SEED)) * is_part[:, None, None]
    pieces["means"] = pieces["means"] + (scaled_rotations(pieces["quats"], scales[origin]) @ away)[:, :, 0]
    held = bounds.largest_scales(pieces["means"])[:, None]  # where each lies: parts of one far away lie at the border
    pieces["scales"] = torch.minimum(torch.minimum(scales, largest)[origin], held).log()
    return pieces, origin, is_part


def boundary_init(first: Mapping[str, Tensor], cover: Mapping[str, Tensor], cap: int) -> dict[str, Tensor]:
    """Return the first values of a patch, and with them what covers the ground near its border that has few points.

    Gaussians are held small there, and none grows where none is: black holes would stay.
    """
    if not cover:
        return dict(first)
    order = torch.randperm(len(cover["means"]), generator=torch.Generator().manual_seed(SEED))
    rows = order[: num_covering(cover, cap)]
    return {name: torch.cat((value, cover[name][rows].to(value))) for name, value in first.items()}


def num_covering(cover: Mapping[str, Tensor], cap: int) -> int:
    """Return how many Gaussians cover the ground near the border as a patch begins."""
    return min(len(cover["means"]), cap // SHARE_OF_CAP) if cover else 0
