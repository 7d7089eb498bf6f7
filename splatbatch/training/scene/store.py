"""The Gaussians of a splat file that a camera sees: their blocks are loaded, the latest used are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.splats.blocks import SIGMAS, Blocks
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.view import View
from splatbatch.training.scene.frustum import boxes_met, may_be_seen

FAINTEST_LOGIT = -20.0


@dataclass(frozen=True)
class Standpoint:
    """Where a camera stands in the frame of the splat, and what is one unit for it."""

    place: tuple[float, float, float]
    """As float32 has it: it is taken off the Gaussians' places, which then are as fine as the file has them."""
    unit: float


@dataclass
class Store:
    """Blocks of a splat file on the device that renders, as rows of their properties; the latest used stay there."""

    blocks: Blocks
    device: torch.device
    most: int
    """Gaussians that may lie there at once, besides those that are drawn; one block always does."""
    _held: dict[int, Tensor] = field(default_factory=dict)
    num_loaded: int = 0
    """Gaussians read so far."""

    def seen_from(self, standpoint: Standpoint, view: View) -> Parameters:
        """Return the Gaussians that a view may show, around its standpoint and in its unit.

        Raises:
            ValueError: the file has become shorter.
        """
        there = _at(standpoint, view)
        met = boxes_met(self.blocks.lower, self.blocks.upper, there)
        kept = [rows[_seen_rows(rows, there, self.blocks.columns)] for rows in self._tables(met)]
        rows = torch.cat(kept) if kept else self._nothing()
        return parameters_of(rows if len(rows) else self._nothing(), self.blocks.columns, standpoint)

    def _nothing(self) -> Tensor:
        """Return a Gaussian too faint to be drawn: not every rasteriser takes none at all."""
        row = torch.zeros(1, len(self.blocks.columns), device=self.device)
        row[:, self.blocks.columns.index("opacity")] = FAINTEST_LOGIT
        row[:, self.blocks.columns.index("rot_0")] = 1.0
        return row

    def _tables(self, wanted: Sequence[int]) -> Iterator[Tensor]:
        """Yield blocks, as many at a time as there is room for; those that are there already come first."""
        here = [one for one in wanted if one in self._held]
        for one in here:
            self._held[one] = self._held.pop(one)  # the latest used stands last
            yield self._held[one]
        for batch in self._batches([one for one in wanted if one not in self._held]):
            self._make_room(sum(int(self.blocks.counts[one]) for one in batch))
            for one, rows in self.blocks.rows(batch).items():
                self.num_loaded += len(rows)
                self._held[one] = torch.from_numpy(rows).to(self.device)
                yield self._held[one]

    def _batches(self, wanted: Sequence[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        for one in wanted:
            if batch and sum(int(self.blocks.counts[each]) for each in [*batch, one]) > self.most:
                yield batch
                batch = []
            batch.append(one)
        if batch:
            yield batch

    def _make_room(self, num: int) -> None:
        while self._held and sum(len(rows) for rows in self._held.values()) + num > self.most:
            del self._held[next(iter(self._held))]


def _at(standpoint: Standpoint, view: View) -> View:
    """Return a view around its standpoint as one in the frame of the splat."""
    viewmat = view.viewmat.double().clone()
    place = torch.tensor(standpoint.place, dtype=torch.float64, device=viewmat.device)
    viewmat[:3, 3] = standpoint.unit * viewmat[:3, 3] - viewmat[:3, :3] @ place
    return View(viewmat.float(), view.K, view.width, view.height)


def _seen_rows(rows: Tensor, view: View, columns: Sequence[str]) -> Tensor:
    scale = columns.index("scale_0")
    reach = SIGMAS * rows[:, scale : scale + 3].amax(dim=1).exp()
    return may_be_seen(rows[:, :3], reach, view)


def parameters_of(rows: Tensor, columns: Sequence[str], standpoint: Standpoint) -> Parameters:
    """Return rows of a splat file as what is rendered, around a standpoint and in its unit."""
    opacity = columns.index("opacity")
    rest = rows[:, 6:opacity].reshape(len(rows), 3, (opacity - 6) // 3)  # [N, 3, K]
    place = torch.tensor(standpoint.place, dtype=torch.float32, device=rows.device)
    values = {
        "means": (rows[:, :3] - place) / standpoint.unit,
        "scales": rows[:, opacity + 1 : opacity + 4] - math.log(standpoint.unit),
        "quats": rows[:, opacity + 4 : opacity + 8],
        "opacities": rows[:, opacity],
        "sh0": rows[:, None, 3:6],
        "shN": rest.transpose(1, 2),
    }
    return {name: Parameter(value.contiguous(), requires_grad=False) for name, value in values.items()}
