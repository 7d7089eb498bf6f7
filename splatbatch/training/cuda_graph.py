"""Training steps as CUDA graphs: recorded once, then started with one launch, so that the host is never the bottleneck.

A step of some 150 kernels takes the host longer to launch than a GPU to run (notes: stock trainers keep a GPU busy a
quarter of the time). Everything a step does is the same from one refinement to the next, except for the photo: that is
copied to where the recording expects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.view import RenderCamera
from splatbatch.training.step import Step, StepResult

MOST_RECORDINGS = 8
"""Image sizes times degrees at a time; photographs of more sizes than that are trained unrecorded."""

WASTE, WASTE_BYTES = 1.5, 512 << 20
"""Memory that torch holds and does not use, before it is given back."""


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    photo: PosedImage
    """Where the photo of a step is put."""
    learned: StepResult

    def replay(self, photo: PosedImage) -> StepResult:
        self.photo.pixels.copy_(photo.pixels, non_blocking=True)
        if self.photo.mask is not None and photo.mask is not None:
            self.photo.mask.copy_(photo.mask, non_blocking=True)
        if self.photo.correction is not None and photo.correction is not None:
            self.photo.correction.copy_(photo.correction)
        self.photo.view.viewmat.copy_(photo.view.viewmat)
        self.photo.view.K.copy_(photo.view.K)
        self.graph.replay()
        return self.learned


class GraphedStep:
    """Does what its step does, recorded where our kernels draw; must run on a stream of its own there.

    Between steps it refines, keeps the tile lists long enough, and records anew what has changed.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._is_recorded = step, step.capacity.entries is not None
        self._recordings: dict[tuple[Any, ...], _Recording] = {}
        self._is_first = True
        if self._is_recorded:
            self._renew_pool()

    def __call__(self, photo: PosedImage, sh_degree: int, *, is_watched: bool = False) -> StepResult:
        """Learn from a photo; what is recorded is watched in every step."""
        if self._is_first or not self._is_recorded:  # what is made but once must not be made in every replay
            self._is_first = False
            return self._step(photo, sh_degree, is_watched=is_watched)
        of_tone = None if photo.correction is None else len(photo.correction)
        key = (photo.view.width, photo.view.height, photo.mask is None, of_tone, sh_degree)
        recording = self._recordings.get(key)
        if recording is None:
            if len(self._recordings) == MOST_RECORDINGS:
                return self._step(photo, sh_degree, is_watched=is_watched)
            recording = self._recordings[key] = self._record(photo, sh_degree)
        return recording.replay(photo)

    def refine(self, step: int, *, is_due: bool = True) -> bool:
        """Refine if it is time, and make room for longer tile lists; return whether steps are different from now on.

        Args:
            step: that was done.
            is_due: look at the tile lists also where nothing was refined, which waits for the GPU.
        """
        has_changed = self._step.refine(step)
        has_changed |= (is_due or has_changed) and self._step.capacity.grow()
        if has_changed:
            self._forget()
        return has_changed

    def begin_tail(self, means_decay: float) -> None:
        """Refine no more from now on, and let the rate of the means fall by this factor in each step."""
        self._step.strategy.end()
        self._step.means_decay = means_decay
        self._forget()

    def _forget(self) -> None:
        """Record anew: other Gaussians, another capacity."""
        self._recordings.clear()
        if not self._is_recorded:
            return
        # where torch's segments cannot grow, each recording that is a little larger than the last one leaves a gap
        if torch.cuda.memory_reserved() > WASTE * torch.cuda.max_memory_allocated() + WASTE_BYTES:
            self._renew_pool()

    def _renew_pool(self) -> None:
        """Let recordings use the same memory, one after the other: it lives as long as a graph that does."""
        self._keeper: torch.cuda.CUDAGraph | None = None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper = torch.cuda.CUDAGraph()
        self._keeper.capture_begin(pool=self._pool)
        torch.zeros(1, device="cuda")
        self._keeper.capture_end()

    def _record(self, photo: PosedImage, sh_degree: int) -> _Recording:
        view = photo.view
        place = RenderCamera(view.viewmat.clone(), view.K.clone(), view.width, view.height)
        pixels = torch.empty_like(photo.pixels, device=view.viewmat.device)
        mask = None if photo.mask is None else torch.empty_like(photo.mask, device=view.viewmat.device)
        tone = None if photo.correction is None else photo.correction.clone()
        graph, there = torch.cuda.CUDAGraph(), PosedImage(photo.name, place, pixels, mask, tone)
        # torch.cuda.graph() would collect garbage and empty torch's memory cache, each time
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        learned = self._step(there, sh_degree)
        graph.capture_end()
        return _Recording(graph, there, learned)
