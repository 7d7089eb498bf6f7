"""One training step: render, loss, backpropagation, update; does not wait for the GPU with this package's kernels.

`TileCapacity` is how many entries the tile lists of a rendering may have in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from splatbatch.text import plural
from splatbatch.training import cuda
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.gaussians import Parameters
from splatbatch.training.loss import masked, photometric_loss
from splatbatch.training.optim import decay, move
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import longest_lists, rasterize
from splatbatch.training.rendering.view import RasterOptions, Rendering
from splatbatch.training.strategies import Strategy

MARGIN = 1.25
"""Capacity of the tile lists as a multiple of the longest list seen; see `TileCapacity`.

The surplus is for growing Gaussians, and for photographs not rendered since the last check.
"""
EMPTY, FULL = 0.5, 0.9
"""Shares of the capacity: if the longest tile list is below the first or above the second, the capacity is changed."""
FEWEST = 1 << 18
"""Smallest capacity of the tile lists, in entries; Gaussians grow fastest in the first steps, when they are few."""

if TYPE_CHECKING:
    from splatbatch.training.cuda.step import GradNorms


@dataclass(frozen=True)
class StepResult:
    """Loss and gradient norms of a training step, as tensors on the device of the Gaussians.

    Where steps are replayed as a CUDA graph, the next step overwrites these tensors.
    """

    loss: Tensor  # []
    norms: Callable[[], Mapping[str, Tensor]]
    """Function that returns the norm of each parameter's gradient, [], by name; without `is_watched` maybe none."""


@dataclass
class Step:
    """One training step: render, compute the loss, backpropagate, update.

    With this package's kernels a step does not wait for the GPU.
    """

    strategy: Strategy
    """Strategy of the run, with the Gaussians, their optimizers, the recipe, and the border of the patch."""
    capacity: TileCapacity
    """Capacity of the tile lists, which each step counts its lists into."""
    decays: tuple[float, float]
    """Factors per step on the learning rate of the means, and on the others: 1 before the tail, the last steps."""
    is_tail: bool = False
    """Whether the tail has begun, in which nothing is added, moved, removed or reset any more."""

    def __call__(self, photo: PosedImage, sh_degree: int, *, is_watched: bool = False) -> StepResult:
        """Take one step on a photograph with harmonics up to `sh_degree`; return the loss and the gradient norms.

        Without `is_watched` the norms may be empty.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        loss, rendering = self.derive(photo, sh_degree)
        gaussians = self.strategy.gaussians.items() if is_watched else ()
        gradients = {name: value.grad for name, value in gaussians if value.grad is not None}
        squares = self.update(rendering)
        if squares is not None:  # computed by the kernel of Adam at no cost
            return StepResult(loss.detach(), squares.norms)
        return StepResult(loss.detach(), lambda: {name: gradient.norm() for name, gradient in gradients.items()})

    def derive(self, photo: PosedImage, sh_degree: int) -> tuple[Tensor, Rendering]:
        """Render a photograph's camera, and backpropagate the loss; return the loss, [], and the rendering.

        The gradients are then in the `.grad` of the Gaussians, which are not updated. Where this package's kernels are
        used, the loss lacks the strategy's regularisers, whose gradients `update` adds.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        strategy, options = self.strategy, RasterOptions.of(self.strategy.recipe, sh_degree)
        drawn = strategy.border.with_backdrop(strategy.gaussians)
        rendering = rasterize(drawn, photo.view, options, self.capacity.entries)
        self.capacity.record(rendering)
        strategy.step_pre_backward(rendering)
        loss = self._loss(rendering.colors, photo)
        if not cuda.serves(loss, strategy.recipe.training):  # our kernel of Adam adds the gradients of the regularisers
            loss = strategy.regularise(loss)
        torch.autograd.backward(loss)
        return loss, rendering

    def update(self, rendering: Rendering) -> GradNorms | None:
        """Take a step of Adam on all parameters, by the gradients of `derive`, and clear the gradients.

        Then the learning rates decay, and the strategy's `step_post_backward` is called. Returns the gradient norms
        that this package's kernels have computed; None where torch's Adam is used.
        """
        optimizers = self.strategy.optimizers
        squares = move(optimizers, rendering.info["radii"][0], self.strategy.regulariser_weights)
        self.strategy.step_post_backward(rendering, decay(optimizers, *self.decays))
        return squares

    def refine(self, step: int) -> bool:
        """Densify and prune if the schedule has this step, counted from 0; every `refine_every` steps, clamp scales.

        In the tail only scales are clamped. Returns whether CUDA graphs of the step are invalid, since the Gaussians or
        the strategy have changed.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        strategy = self.strategy
        has_changed = not self.is_tail and strategy.refine(step)
        if step % strategy.plan.refine_every == 0:
            strategy.border.clamp_scales(strategy.gaussians)
        return has_changed

    def _loss(self, colors: Tensor, photo: PosedImage) -> Tensor:
        """Return the loss of a rendering against its photograph, with its colour correction divided out."""
        training = self.strategy.recipe.training
        if not cuda.serves(colors, training):
            return photometric_loss(*masked(*photo.to_compare(colors), photo.valid()), training.ssim_lambda)
        from splatbatch.training.cuda.loss import normalise
        from splatbatch.training.cuda.loss import photometric_loss as on_gpu

        kernels, target = cuda.loaded(), photo.target()
        as_taken = None if photo.correction is None else target
        if photo.correction is not None:
            target = normalise(colors, target, photo.correction, photo.view.K, kernels)
        return on_gpu(colors, target, training.ssim_lambda, kernels, as_taken, photo.valid())


class TileCapacity:
    """Capacity of the tile lists of this package's CUDA rasteriser, in entries.

    An entry is a pair of an image tile and a Gaussian that may cover the tile. The capacity, `entries`, follows the
    longest list seen. `entries` is None where other kernels render, as on the CPU. The longest list is counted on the
    GPU, so that `record` does not wait.
    """

    def __init__(
        self,
        gaussians: Parameters,
        photos: tuple[PosedImage, ...],
        options: RasterOptions,
        border: PatchBorder = NONE,
    ) -> None:
        """Set the first capacity by the lists that the photographs need now; waits for the GPU.

        Args:
            gaussians: the parameters that are trained, whose number is followed.
            photos: the training photographs, at least one.
            options: how Gaussians are rendered.
            border: border of the patch, whose backdrop is rendered too.
        """
        self._gaussians = gaussians
        self._num_behind = border.num_behind
        self._num_drawn = self._count()
        self.overflown = 0
        """Number of checks that found a list longer than the capacity; its farthest Gaussians were not rendered."""
        self._why_none = cuda.why_not_here() if gaussians["means"].is_cuda and options.fused else ""
        self._most = longest_lists(border.with_backdrop(gaussians), photos, options)
        self.entries = None if self._most is None else self._room(int(self._most))

    def record(self, rendering: Rendering) -> None:
        """Count the tile lists of a rendering into the longest list seen, on the GPU, without waiting for the GPU."""
        if self._most is not None and "num_entries" in rendering.info:
            torch.maximum(self._most, rendering.info["num_entries"], out=self._most)

    def grow(self) -> bool:
        """Adapt the capacity to the longest list seen; return whether the capacity has changed.

        What was seen before counts 3 % less after each call. Waits for the GPU. Where other kernels render, nothing is
        done and False returned.
        """
        if self._most is None or self.entries is None:
            return False
        num, longest = self._count(), int(self._most)
        self.overflown += longest > self.entries
        # not every photograph is rendered between two checks, so the longest list decays instead of starting at 0
        self._most.copy_(self._most * 97 // 100)
        needed = longest * max(1.0, num / self._num_drawn)
        self._num_drawn = num
        return self._fit(needed)

    def resize(self, gain: float) -> None:
        """Adapt the capacity to photographs with `gain` times as many pixels; waits for the GPU.

        Where other kernels render, nothing is done.
        """
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
        """Return the warnings of a run: kernels that do not work or are not cached, and tile lists that were too short.

        Empty if all is well, and on the CPU.
        """
        found = []
        if self._why_none:
            found.append(f"splatbatch's GPU kernels fail here ({self._why_none}): gsplat's slower kernels were used")
        if self._most is not None and (unkept := cuda.loaded().unkept):
            found.append(f"GPU kernels could not be saved ({unkept}), and are compiled each time: free space there")
        if self.overflown:
            found.append(
                f"lists of the rasteriser were too short in {plural(self.overflown, 'check')}: some steps were trained"
                " without the farthest Gaussians"
            )
        return tuple(found)

    def _room(self, needed: float) -> int:
        return max(FEWEST, int(MARGIN * needed))
