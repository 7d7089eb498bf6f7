"""How many entries the tile lists of a step hold: fixed for many steps, looked at every now and then."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from splatbatch.text import plural
from splatbatch.training import cuda
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.gaussians import Parameters
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.view import RasterOptions, Rendering

MARGIN = 1.25
"""Room for Gaussians that grow until the next look, and for photographs that were not seen since the last one."""
EMPTY, FULL = 0.5, 0.9
"""Shares of the capacity: with fewer or more entries than that it changes."""
FEWEST = 1 << 18
"""Gaussians grow fastest in their first steps, when they are few."""


def longest_lists(
    gaussians: Mapping[str, Tensor], photos: tuple[PosedImage, ...], options: RasterOptions
) -> Tensor | None:
    """Return how many entries the longest tile lists of some photographs have, []; None where our kernels draw none."""
    if not gaussians["means"].is_cuda or not options.fused or cuda.why_not_here():
        return None
    from splatbatch.training.cuda.rasterization import num_entries

    return torch.stack([num_entries(gaussians, photo.view, cuda.loaded()) for photo in photos]).max()


class TileCapacity:
    """The longest tile lists seen, on the GPU, and the capacity that follows from it; none on the CPU."""

    def __init__(
        self,
        gaussians: Parameters,
        photos: tuple[PosedImage, ...],
        options: RasterOptions,
        surroundings: PatchBorder = NONE,
    ) -> None:
        self._gaussians = gaussians
        self._num_behind = surroundings.num_behind
        self._num_drawn = self._count()
        self.overflown = 0
        """Looks that found a list that had not fitted: its farthest Gaussians were not drawn in that step."""
        self._why_none = cuda.why_not_here() if gaussians["means"].is_cuda and options.fused else ""
        self._most = longest_lists(surroundings.with_backdrop(gaussians), photos, options)
        self.entries = None if self._most is None else self._room(int(self._most))

    def record(self, rendering: Rendering) -> None:
        """Remember the length of the lists, if it is the longest so far."""
        if self._most is not None and "num_entries" in rendering.info:
            torch.maximum(self._most, rendering.info["num_entries"], out=self._most)

    def grow(self) -> bool:
        """Look at the longest lists since the last look, and make room; return whether the capacity has changed.

        Waits for the GPU.
        """
        if self._most is None or self.entries is None:
            return False
        num, longest = self._count(), int(self._most)
        self.overflown += longest > self.entries
        # between two looks not every photo is seen: what was the longest counts on, but less
        self._most.copy_(self._most * 97 // 100)
        needed = longest * max(1.0, num / self._num_drawn)
        self._num_drawn = num
        return self._fit(needed)

    def resize(self, gain: float) -> None:
        """Make room for photographs with `gain` times as many pixels."""
        if self._most is not None:
            self._most.copy_((self._most * gain).long())
            self._fit(float(self._most))

    def _fit(self, needed: float) -> bool:
        if self.entries is None or EMPTY * self.entries <= needed <= FULL * self.entries:
            return False
        before, self.entries = self.entries, self._room(needed)
        return self.entries != before

    def _count(self) -> int:
        return len(self._gaussians["means"]) + self._num_behind

    def warnings(self) -> tuple[str, ...]:
        """Return what was not as it should be in a run."""
        found = []
        if self._why_none:
            found.append(f"our GPU kernels do not work here ({self._why_none}): gsplat's were used, which takes longer")
        if self._most is not None and (unkept := cuda.loaded().unkept):
            found.append(f"our GPU kernels were compiled and not kept ({unkept}): every attempt compiles them again")
        if self.overflown:
            found.append(
                f"tile lists were too short in {plural(self.overflown, 'check')}: some steps missed what lies farthest"
            )
        return tuple(found)

    def _room(self, needed: float) -> int:
        return max(FEWEST, int(MARGIN * needed))
