"""Training steps as CUDA graphs, recorded once and started with one launch, so that the host is no bottleneck.

A step of some 150 kernels takes the host longer to launch than a GPU to run: other trainers keep a GPU busy a quarter
of the time. From one refinement to the next, steps differ only in the photograph, which is copied into the buffers of
the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.view import RenderCamera
from splatbatch.training.step import Step, StepResult

MOST_RECORDINGS = 8
"""Largest number of recordings at a time.

There is one for each size of photographs, with or without mask and colour correction, and degree of the harmonics.
Steps beyond that run without a recording.
"""

WASTE, WASTE_BYTES = 1.5, 512 << 20
"""Factor and number of bytes from which torch's memory cache is emptied.

That is done if more memory is reserved than the factor times the peak of allocated memory, plus the bytes.
"""


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    photo: PosedImage
    """Buffers of the recording into which the photograph of a step is copied."""
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
    """Runs a `Step` as CUDA graphs where this package's kernels render, else directly.

    The first step is run directly, and so are steps that would need more than `MOST_RECORDINGS` recordings. On a GPU
    the current stream must not be the default stream. `refine` and `begin_tail` drop the recordings that they
    invalidate; the next step records anew.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._is_recorded = step, step.capacity.entries is not None
        self._recordings: dict[tuple[Any, ...], _Recording] = {}
        self._is_first = True
        if self._is_recorded:
            self._renew_pool()

    def __call__(self, photo: PosedImage, sh_degree: int, *, is_watched: bool = False) -> StepResult:
        """Take one step on a photograph with harmonics up to `sh_degree`; return the loss and the gradient norms.

        With `is_watched` the norms are there in any case. Without, they may be empty where the step is not recorded.
        The next step overwrites the tensors of a recorded step's result.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        if self._is_first or not self._is_recorded:  # lazy initialisations must not be recorded
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
        """Densify and prune if due, and adapt the capacity of the tile lists; return whether anything has changed.

        All recordings are dropped then.

        Args:
            step: the step just taken, counted from 0.
            is_due: whether to check the tile lists also without a refinement; a check waits for the GPU.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        has_changed = self._step.refine(step)
        has_changed |= (is_due or has_changed) and self._step.capacity.grow()
        if has_changed:
            self._forget()
        return has_changed

    def begin_tail(self, decays: tuple[float, float]) -> None:
        """Begin the tail, in which nothing is refined and all learning rates fall; `decays` are as in `Step`."""
        self._step.is_tail, self._step.decays = True, decays
        self._forget()

    def _forget(self) -> None:
        """Drop all recordings, since the Gaussians or the capacity have changed."""
        self._recordings.clear()
        if not self._is_recorded:
            return
        # without expandable segments, each recording that is larger than the one before fragments memory
        if torch.cuda.memory_reserved() > WASTE * torch.cuda.max_memory_allocated() + WASTE_BYTES:
            self._renew_pool()

    def _renew_pool(self) -> None:
        """Make a new memory pool that all recordings share, kept alive by a graph of its own."""
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
        # torch.cuda.graph() would run the garbage collector and empty torch's memory cache each time
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        learned = self._step(there, sh_degree)
        graph.capture_end()
        return _Recording(graph, there, learned)
