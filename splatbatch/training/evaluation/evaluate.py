"""PSNR, SSIM and LPIPS of a splat on held-out photographs; without gradients, one photograph at a time."""

from __future__ import annotations

import contextlib
import math
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splatbatch.config import Offset, Recipe
from splatbatch.errors import TrainerError
from splatbatch.files import MIB
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.metrics import MOST_PSNR_DB, EarlierSplat
from splatbatch.splats import read_header, read_splat
from splatbatch.training import cuda
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.evaluation.early_stopping import EarlyStopping
from splatbatch.training.evaluation.lpips import SMALLEST_PX, Lpips, load_lpips
from splatbatch.training.evaluation.pictures import from_one, picture_views
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters, load_splat
from splatbatch.training.loss import masked, of_what_counts, psnr, psnr_where, ssim
from splatbatch.training.photos.dataset import TrainingImages, evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, drawn_as

TRAINING_VIEWS = 4
"""Largest number of training photographs that are evaluated beside the held-out photographs, to show overfitting."""
Metrics = dict[str, Any]
MeasuredFile = Callable[[Path], Metrics]
"""Function that reads a splat file and returns its figures by name, as `evaluate` does.

It raises OSError or ValueError if the file cannot be read, TrainerError if a rendering has NaN pixels or there are
no kernels for the GPU.
"""


class Evaluator:
    """Evaluation of a splat during and after its training; keeps every evaluation for metrics.json.

    With no held-out photographs nothing is evaluated.
    """

    def __init__(
        self,
        views: TrainingImages,
        recipe: Recipe,
        progress: ProgressRecorder,
        device: torch.device,
        folder: AttemptFolder,
    ) -> None:
        """Choose the photographs by which early stopping decides; why it cannot becomes a warning.

        Args:
            views: photographs and border of the patch, on the device that renders or uploaded when needed.
            recipe: settings of training and evaluation.
            progress: takes warnings and the figures of each evaluation.
            device: device that renders, whose peaks of memory are recorded.
            folder: folder of the attempt, into which pictures are written.
        """
        self._recipe, self._progress, self._folder = recipe, progress, folder
        self.early = EarlyStopping(views, recipe, progress)
        """Early stopping by the PSNR of some held-out photographs, which may end the run before its last step."""
        chosen_by = self.early.chosen_by.names
        self.photos = tuple(photo for photo in views.holdout if photo.name not in chosen_by)
        """Held-out photographs on which figures are measured: all but those by which early stopping decides."""
        self._sample = evenly_spaced(views.training, TRAINING_VIEWS)
        self._covered, self._earlier = views.coverage_masks and views.coverage_masks.without(chosen_by), Metrics()
        self._largest = views.loaded.get("largest")
        self._is_evened, self._border = views.are_evened, views.border
        self._peaks = TorchMemoryPeaks(device)
        self.evaluations: list[Metrics] = []
        """Evaluations after step 0, in the order of their steps, each with the number of steps done as `step`."""
        self._initial: Metrics | None = None
        self.resumed_from: Metrics = {}
        """Attempt and step of the checkpoint from which the run was resumed; empty: the run was not resumed."""

    @cached_property
    def _lpips(self) -> Lpips | str:
        """The metric, or a note why it is missing; weights are read when a figure is first needed."""
        return load_lpips() if self.photos else ""

    def step_done(self, gaussians: Parameters, step: int) -> None:
        """Evaluate the splat and write the pictures of one view, the median of three or more, if the recipe wants that.

        `step` is the number of steps done. Nothing is done after the last step: the splat is evaluated then as read
        back from its file.

        Raises:
            TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
        """
        evaluation = self._recipe.evaluation
        is_every = evaluation.every > 0 and step % evaluation.every == 0
        if step < self.early.last_step and (is_every or step in evaluation.steps):
            metrics = self.measure(gaussians, step)
            drawn = from_one(self._border.with_backdrop(gaussians), self.photos)
            with self._peaks.evaluating(), torch.inference_mode():  # only the median view, to watch the run
                picture_views(self._folder, drawn, metrics, self._recipe, most=1)

    def measure(self, gaussians: Mapping[str, Tensor], step: int) -> Metrics | None:
        """Evaluate the splat after `step` steps, and keep and return the figures; None without held-out photographs.

        Args:
            gaussians: the patch's own Gaussians; the backdrop is added here.
            step: number of steps done.

        Raises:
            TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
        """
        metrics = self._measured(gaussians, step)
        if metrics is not None:
            self.evaluations.append(metrics)
            self._progress.evaluated(metrics)
        return metrics

    def measure_first(self, gaussians: Mapping[str, Tensor]) -> None:
        """Evaluate the initial Gaussians, as step 0; called after training, not to delay it.

        If a rendering has NaN pixels, the run has no evaluation of step 0; no error is raised.
        """
        with contextlib.suppress(TrainerError):  # the trained splat is accepted even if this evaluation fails
            self._initial = self._measured(gaussians, 0)

    def _measured(self, gaussians: Mapping[str, Tensor], step: int) -> Metrics | None:
        with self._peaks.evaluating(), torch.inference_mode():
            gaussians = self._border.with_backdrop(gaussians)
            figures = evaluate(gaussians, self.photos, self._recipe, self._lpips, is_evened=self._is_evened)
            if figures is None:
                return None
            sample = {photo.name: psnr_on(gaussians, photo, self._recipe) for photo in self._sample}
        on_training = {"training_psnr": statistics.fmean(sample.values()), "training_images": sample}
        return {"step": step, **figures, **on_training}

    def measure_earlier(self, earlier: EarlierSplat, measured: MeasuredFile) -> None:
        """Evaluate the splat accepted before, for a comparison on the same pixels (see `earlier_figures`).

        Nothing is kept if this run has no evaluation, or if that splat cannot be read or rendered; no error is raised.
        """
        if self.evaluations:
            with self._peaks.evaluating(), contextlib.suppress(OSError, ValueError, TrainerError):
                covered = self._covered.hash if self._covered else ""
                self._earlier = earlier_figures(earlier, covered, self._largest, measured)

    def to_record(self) -> Metrics:
        """Return the part of metrics.json on evaluations, with early stopping, notes and peaks of memory in MiB.

        "initial" is None without an evaluation of step 0, "final" without any; "between" has the others. "resumed_from"
        is None for a run from the start. "covered" is missing where coverage is not determined, "earlier" where
        `measure_earlier` kept nothing.
        """
        last = self.evaluations[-1] if self.evaluations else None
        figures = {"initial": self._initial, "final": last, "between": self.evaluations[:-1]}
        facts: Metrics = {**self._earlier, "resumed_from": self.resumed_from or None}
        facts["early_stopping"] = self.early.to_record()
        if self._covered is not None:
            facts["covered"] = self._covered.facts()
        notes = [self._lpips] if isinstance(self._lpips, str) and self._lpips else []
        return {**figures, **facts, "notes": notes, "peak": self._peaks.to_record()}


def earlier_figures(earlier: EarlierSplat, covered: str, largest: Any, measured: MeasuredFile) -> Metrics:
    """Return `earlier` of metrics.json: the splat accepted before, evaluated on this attempt's photographs and pixels.

    Empty if no splat was accepted before, or if its figures are of these pixels already.

    Args:
        earlier: the splat accepted before, and the pixels of its figures.
        covered: hash of the covered pixels of this attempt; empty: coverage is not known.
        largest: width and height, in px, of the largest photograph of this attempt; None without photographs.
        measured: evaluates a splat file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no splat of this patch.
        TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
    """
    if not earlier.sha256 or earlier.is_of(covered, largest):
        return {}
    of_all = {name: value for name, value in measured(Path(earlier.path)).items() if name != "images"}
    return {"earlier": {"sha256": earlier.sha256, "final": of_all}}


@torch.inference_mode()
def evaluate(
    gaussians: Mapping[str, Tensor],
    photos: Sequence[PosedImage],
    recipe: Recipe,
    lpips: Lpips | str = "",
    *,
    is_evened: bool = False,
) -> Metrics | None:
    """Return the mean PSNR in dB (each at most 100) and SSIM (3DGS's: 11 x 11 Gaussian window), and each photograph's.

    `psnr` and `ssim` compare the photograph with the rendering times the photograph's colour correction. The correction
    comes from the tracks of the reconstruction, never from a rendering. Where coverage is known, figures of the covered
    pixels are added, as `psnr_covered`. None without photographs.

    Args:
        gaussians: all Gaussians to render, backdrop included.
        photos: held-out photographs, on the device of the Gaussians.
        recipe: how Gaussians are rendered.
        lpips: the metric LPIPS; a note, or empty: it is left out, as it is for photographs smaller than 32 px.
        is_evened: whether to add `psnr_even` and `ssim_even`, which compare the corrected photograph with the
            rendering.

    Raises:
        TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
    """
    if not photos:
        return None
    images = {photo.name: _measure(gaussians, photo, recipe, lpips, is_evened=is_evened) for photo in photos}
    measured = {key for image in images.values() for key in image}
    means = {key: statistics.fmean(image[key] for image in images.values() if key in image) for key in sorted(measured)}
    return {**means, "num_images": len(images), "images": images}


def _measure(
    gaussians: Mapping[str, Tensor], photo: PosedImage, recipe: Recipe, lpips: Lpips | str, *, is_evened: bool
) -> dict[str, float]:
    mask, colors = photo.valid(), _render(gaussians, photo, recipe)
    of_even = {}
    if is_evened and photo.correction is not None:
        target = photo.normalised()  # may exceed 1, as the rendering then should
        of_even = _figures(recipe, *masked(colors.clamp_min(0), target, mask), mask)
    taken, pixels = photo.as_taken(colors).clamp(0, 1), photo.target()
    colors, target = masked(taken, pixels, mask)
    figures = _figures(recipe, colors, target, mask)
    on_covered = covered_figures(taken, pixels, photo, recipe)
    if math.isnan(figures["psnr"] + on_covered.get("psnr_covered", 0.0)):
        raise TrainerError(f"health: nan_loss: the rendering of {photo.name} is not finite: try another training.seed")
    evened = {f"{name}_even": value for name, value in (of_even or figures).items()} if is_evened else {}
    if isinstance(lpips, Lpips) and min(colors.shape[:2]) >= SMALLEST_PX:
        figures["lpips"] = float(lpips(colors, target if mask is not None else target.float() / 255))
    return figures | evened | on_covered


def covered_figures(taken: Tensor, pixels: Tensor, photo: PosedImage, recipe: Recipe) -> dict[str, float]:
    """Return `psnr_covered` (dB), `ssim_covered` and `covered_share` (0 to 1) of a held-out photograph.

    Only the share where too few pixels are covered; empty where coverage is unknown.

    Args:
        taken: rendering with the photograph's colour correction, [H, W, 3] in [0, 1].
        pixels: pixels of the photograph, [H, W, 3], on the device of the rendering.
        photo: the photograph, with its covered pixels.
        recipe: decides which kernels compute the SSIM.
    """
    if photo.covered_share is None:
        return {}
    share, covered = {"covered_share": photo.covered_share}, photo.covered_pixels()
    if covered is None:
        return share
    figures = _figures(recipe, *masked(taken, pixels, covered), covered)
    return share | {f"{name}_covered": value for name, value in figures.items()}


def covered_psnr(taken: Tensor, photo: PosedImage) -> float | None:
    """Return the PSNR in dB on the covered pixels of a photograph; None where these are too few, or unknown.

    `taken` is the rendering with the photograph's colour correction, [H, W, 3] in [0, 1].
    """
    covered = photo.covered_pixels()
    return None if covered is None else psnr_where(taken, photo.target(), covered)


def psnr_as(colors: Tensor, photo: PosedImage) -> float:
    """Return the PSNR in dB of a rendering [H, W, 3] against its photograph, on the photograph's valid pixels.

    The photograph's colour correction is applied to the rendering first.

    Raises:
        TrainerError: the rendering has NaN pixels.
    """
    found = psnr_where(photo.as_taken(colors).clamp(0, 1), photo.target(), photo.valid())
    if math.isnan(found):
        raise TrainerError(f"health: nan_loss: the rendering of {photo.name} is not finite: try another training.seed")
    return found


def _figures(recipe: Recipe, colors: Tensor, target: Tensor, mask: Tensor | None) -> dict[str, float]:
    similarity = float(_ssim(recipe, colors)(colors, target))
    figures = of_what_counts({"psnr": float(psnr(colors, target)), "ssim": similarity}, mask)
    return {**figures, "psnr": min(figures["psnr"], MOST_PSNR_DB)}


def _ssim(recipe: Recipe, colors: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the SSIM function of training, our kernel where it serves, so that evaluation needs no more memory."""
    if not cuda.serves(colors, recipe.training):
        return ssim
    from splatbatch.training.cuda.loss import ssim as on_gpu

    return partial(on_gpu, kernels=cuda.loaded())


@torch.inference_mode()
def psnr_on(gaussians: Mapping[str, Tensor], photo: PosedImage, recipe: Recipe) -> float:
    """Render Gaussians from a photograph's camera; return the PSNR in dB on the photograph's valid pixels.

    `gaussians` include the backdrop. The colour correction of the photograph is applied to the rendering.

    Raises:
        TrainerError: the rendering has NaN pixels, or there are no kernels for the GPU.
    """
    return psnr_as(_render(gaussians, photo, recipe), photo)


def _render(gaussians: Mapping[str, Tensor], photo: PosedImage, recipe: Recipe) -> Tensor:
    return rasterize(gaussians, photo.view, RasterOptions.of(recipe)).colors


class TorchMemoryPeaks:
    """Peaks of GPU memory by torch's allocator, for training and evaluation apart.

    Memory of the driver and the CUDA context is not counted, unlike in the figures of NVML.
    """

    def __init__(self, device: torch.device) -> None:
        """Reset torch's peak, which is that of the whole process, and begin to count as training."""
        self._is_cuda = device.type == "cuda"
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats()
        self._highest = {"training": 0, "evaluation": 0}

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count memory inside the `with` block as evaluation, outside of it as training."""
        self._close("training")
        try:
            yield
        finally:
            self._close("evaluation")

    def _close(self, phase: str) -> None:
        """Take the peak since the last call as one of `phase`, and reset it to the memory allocated now."""
        if self._is_cuda:
            self._highest[phase] = max(self._highest[phase], torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

    def to_record(self) -> dict[str, int]:
        """Return the peaks in MiB: `host_mib`, and on a GPU `training_mib` and `evaluation_mib`.

        `host_mib` is the peak resident memory of the whole process.
        """
        self._close("training")
        host = {"host_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
        highest = {f"{phase}_mib": -(-peak // MIB) for phase, peak in self._highest.items()}
        return highest | host if self._is_cuda else host


@dataclass(frozen=True)
class SplatFiles:
    """Evaluation of splat files of one patch, each on the same held-out photographs, with the same frame and recipe."""

    photos: tuple[PosedImage, ...]
    """Held-out photographs, on the device that renders."""
    frame: LocalFrame
    recipe: Recipe
    device: torch.device
    offset: Offset
    """Offset of the splats' coordinates; a file that names another is refused, a file that names none is accepted."""
    border: PatchBorder = NONE
    """Border of the patch, whose backdrop is rendered behind each splat."""
    is_evened: bool = False
    """Whether splats have the colours of corrected photographs; `psnr_even` and `ssim_even` are then measured too."""

    def figures(self, path: Path, lpips: Lpips | str = "", pictured: AttemptFolder | None = None) -> Metrics:
        """Return the figures of a splat file by name, as `evaluate` does; empty without held-out photographs.

        The splat is rendered with the degree of harmonics and the antialiasing that its header names.

        Args:
            path: the splat file.
            lpips: the metric LPIPS; a note, or empty: it is left out.
            pictured: folder to write pictures of at most three views into; None: no pictures.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no splat, or names another offset.
            TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
        """
        header = read_header(path)
        if header.offset not in (self.offset, (0.0, 0.0, 0.0)):
            raise ValueError(f"the splat's coordinates have the offset {header.offset}, the patch's {self.offset}")
        splat, recipe = read_splat(path), drawn_as(self.recipe, header)
        with torch.inference_mode():
            drawn = self.border.with_backdrop(load_splat(splat, self.frame, self.device))
            figures = evaluate(drawn, self.photos, recipe, lpips, is_evened=self.is_evened) or {}
        if pictured:
            picture_views(pictured, from_one(drawn, self.photos), figures, recipe)
        return figures
