"""Evaluation of a merged scene: on held-out photographs, and by the difference of the two patches at each seam."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.colors import tone_in
from splatbatch.output.records.evaluation import PhotoMeasurement, SceneEvaluation, SceneMeasurement, SeamMeasurement
from splatbatch.output.records.metrics import MOST_PSNR_DB, CoveredSet, QualityFigures
from splatbatch.scene.partition.border import Seam, looks_across, reach_of, seams_of
from splatbatch.training.attempt import name_of
from splatbatch.training.evaluation.evaluate import TorchMemoryPeaks, evaluate, psnr_on
from splatbatch.training.evaluation.lpips import Lpips, load_lpips
from splatbatch.training.evaluation.pictures import picture_views
from splatbatch.training.frame import LocalFrame
from splatbatch.training.photos.dataset import PhotoFolders, evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage, covered_in
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.rasterize import depth_of, places_of, rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, drawn_as
from splatbatch.training.scene.loaded_scene import LoadedScene, PatchPlacement, PatchRenderer
from splatbatch.training.scene.photographs import CameraView, ScenePhotographs

OPAQUE = 0.5
"""Opacity of a rendered pixel, 0 to 1, above which its depth is compared."""
MOST_PIXELS = 50_000
"""Largest number of pixels of a view from which medians over a seam are taken."""
LEAST_PIXELS = 500
"""Least number of compared pixels, over all views, for the seam of two patches to have figures."""

MOST_VIEWS = 12
"""Largest number of cameras from which a seam is rendered; held-out photographs come first."""
ANSWERED_FOR = "patches' own figures, and the gain over them, are of the pixels that show the patch itself"
Photos = dict[str, PhotoMeasurement]
Item = TypeVar("Item")


def _each(progress: ProgressRecorder, phase: str, items: Iterable[Item], done: int) -> Iterator[Item]:
    """Yield items; record each as done, after `done` others, when the next one is asked for."""
    for number, item in enumerate(items, done + 1):
        yield item
        progress.phase(phase, number)


def measure(scene: LoadedScene, folder: AttemptFolder) -> SceneEvaluation:
    """Evaluate the merged scene on its held-out photographs and at its seams; return the figures.

    Progress, and pictures of at most three views, are written into the attempt folder.

    Raises:
        SceneError: a splat or a photograph cannot be read.
        TrainerError: a rendering has NaN pixels, or there are no kernels for the GPU.
        ValueError: a splat file has become shorter since it was opened.
        OSError: a splat file can no longer be read.
    """
    began, peaks = time.monotonic(), TorchMemoryPeaks(scene.device)
    seams = seams_of(scene.partition)
    views = {seam.name: _views_of(scene, seam) for seam in seams}
    held_out = scene.held_out
    wanted = {*held_out, *(name for names in views.values() for name in names)}
    settings = scene.settings
    folders = PhotoFolders.of(settings)
    photographs = ScenePhotographs(scene.model, folders, scene.recipe.training, wanted)
    progress = ProgressRecorder(folder.progress, len(held_out) + len(seams))
    lpips = load_lpips()
    photos, num_gaussians = _measured_photos(scene, photographs, progress, lpips, folder)
    found = [
        replace(_seen_from_both(scene, seam, photographs, views[seam.name]), one=seam.one.name, other=seam.other.name)
        for seam in _each(progress, "seams", seams, len(held_out))
    ]
    own = ANSWERED_FOR if settings.before_backdrop else ""  # else all pixels of each patch's photographs count
    evaluation = SceneEvaluation(
        splat=settings.splat,
        covered=CoveredSet.from_record(scene.covered.facts()),
        num_gaussians=num_gaussians,
        splat_sha256=settings.splat_sha256,
        inputs=settings.inputs,
        lacking=settings.lacking,
        photos=photos,
        notes=tuple(note for note in (*settings.notes, photographs.note, lpips, own) if isinstance(note, str) and note),
        peak={name: float(mib) for name, mib in peaks.to_record().items()},
        seconds=round(time.monotonic() - began, 2),
        made_with={"torch": str(torch.__version__), "on": name_of(scene.device)},
    )
    return _taken_together(scene, evaluation, found)


def _measured_photos(
    scene: LoadedScene,
    photographs: ScenePhotographs,
    progress: ProgressRecorder,
    lpips: Lpips | str,
    folder: AttemptFolder,
) -> tuple[Photos, int]:
    """Return figures of the merged scene on each held-out photograph, and its number of Gaussians; write pictures."""
    store, photos = scene.store(Path(scene.settings.splat), 2), Photos()
    recipe = drawn_as(scene.recipe, store.blocks.header)
    behind, images = scene.behind(scene.settings.own), dict[str, Any]()
    taken = partial(photographs.shots, scale=scene.scale, device=scene.device, tone_of=tone_in(scene.settings))
    shots = taken(scene.held_out)
    for name in _each(progress, "photos", scene.held_out, 0):
        shot = next(shots)
        if not shot.photo.counts():
            continue
        gaussians = store.seen_from(shot.frame, shot.photo.view)
        seen = covered_in(shot.photo, scene.covered)
        figures = evaluate(gaussians, [seen], recipe, lpips, is_evened=bool(scene.settings.tones)) or {}
        images |= figures.get("images", {})
        found = PhotoMeasurement.from_record(figures.get("images", {}).get(name))
        own = {patch: behind.get(patch) for patch, known in scene.settings.own.items() if name in known}
        photo_of = {patch: one.boundary_mask(shot) if one else shot.photo for patch, one in own.items()}
        answered = {patch: psnr_on(gaussians, photo, recipe) for patch, photo in photo_of.items() if photo.counts()}
        photos[name] = _with_circumstances(scene, name, replace(found, answered=answered))

    def drawn(name: str) -> tuple[Mapping[str, Tensor], PosedImage]:
        shot = next(taken([name]))
        return store.seen_from(shot.frame, shot.photo.view), shot.photo

    picture_views(folder, drawn, {"images": images}, recipe)
    return photos, len(store.blocks.of_row)


def _with_circumstances(scene: LoadedScene, name: str, photo: PhotoMeasurement) -> PhotoMeasurement:
    home = scene.home(name)
    own = scene.settings.own.get(home, {}).get(name, QualityFigures())
    cores, share = scene.partition.cores, scene.shares[name]
    shares = {core.name: round(float(one), 4) for core, one in zip(cores, share, strict=True) if one > 0}
    return replace(photo, home=home, own_psnr=own.psnr, shares=shares)


def _across(scene: LoadedScene, seam: Seam, names: Sequence[str]) -> list[str]:
    """Return the photographs that see enough points in the cores on both sides of a seam."""
    order = [core.name for core in scene.partition.cores]
    one, other = order.index(seam.one.name), order.index(seam.other.name)
    return [name for name in names if looks_across(scene.shares[name], one, other)]


def _views_of(scene: LoadedScene, seam: Seam) -> list[str]:
    """Return the photographs whose cameras render a seam: held-out ones, and training ones where these are few."""
    held_out = _across(scene, seam, scene.held_out)
    others = _across(scene, seam, sorted(scene.shares.keys() - set(held_out)))
    room = max(0, MOST_VIEWS - len(held_out))
    return [*evenly_spaced(held_out, MOST_VIEWS), *evenly_spaced(others, room)]


def _seen_from_both(
    scene: LoadedScene, seam: Seam, photographs: ScenePhotographs, names: Sequence[str]
) -> SeamMeasurement:
    """Compare the splats of two patches at their seam; the result has a `problem` where they cannot be compared."""
    settings, pair = scene.settings, (seam.one.name, seam.other.name)
    if lacking := [f"{name}: {settings.lacking.get(name, 'no splat')}" for name in pair if name not in settings.splats]:
        return SeamMeasurement(problem="; ".join(lacking))
    if not names:
        return SeamMeasurement(problem="no photograph shows both patches")
    one, other = (scene.drawn(name) for name in pair)
    sides = SeamSides(
        one, other, scene.place(reach_of(seam.one).clipped(reach_of(seam.other))), scene.options(one.store)
    )
    sides.look(photographs.shots(names, scene.scale, scene.device))
    return sides.figures()


def _taken_together(scene: LoadedScene, found: SceneEvaluation, seams: Sequence[SeamMeasurement]) -> SceneEvaluation:
    """Return an evaluation with means over photographs, by patch, by seam, and across and within seams."""
    photos = found.photos
    by_seam = {one.name: _across(scene, one, list(photos)) for one in seams_of(scene.partition)}
    across = {name for names in by_seam.values() for name in names}
    return replace(
        found,
        total=of_photos(photos, photos),
        across=of_photos(photos, [name for name in photos if name in across]),
        within=of_photos(photos, [name for name in photos if name not in across]),
        patches=_patches(scene.settings.own, photos),
        seams=tuple(replace(one, across=of_photos(photos, by_seam[one.name])) for one in seams),
    )


def _patches(own: Mapping[str, Mapping[str, QualityFigures]], photos: Photos) -> dict[str, SceneMeasurement]:
    """Return, by patch, means of the merged scene over the photographs on which the patch itself was evaluated."""
    return {
        patch: measured(
            PhotographRenderings(photos[name], figures, photos[name].answered.get(patch))
            for name, figures in by_name.items()
            if name in photos
        )
        for patch, by_name in own.items()
    }


FIGURES = (
    *("psnr", "ssim", "lpips", "psnr_even", "ssim_even"),
    *("psnr_covered", "ssim_covered", "covered_share"),
)


@dataclass(frozen=True)
class PhotographRenderings:
    """Figures of the merged scene and of a patch's own splat on one photograph."""

    merged: QualityFigures
    own: QualityFigures | None = None
    """Figures of the patch's own splat; None, or without a PSNR: it was not measured on this photograph."""
    answered_psnr: float | None = None
    """PSNR of the merged scene in dB on the pixels on which `own` was measured; None: not measured, or no pixels."""


def measured(pairs: Iterable[PhotographRenderings]) -> SceneMeasurement:
    """Return the means over photographs; a figure is None if no photograph has it.

    The gain is the mean, in dB, over the photographs on which a patch's own splat was evaluated too.
    """
    known = list(pairs)
    merged = {name: _mean(getattr(pair.merged, name) for pair in known) for name in FIGURES}
    own = {f"own_{name}": _mean(getattr(pair.own, name) for pair in known if pair.own) for name in ("psnr", "ssim")}
    answered = _mean(pair.answered_psnr for pair in known)
    both = [(pair.answered_psnr, pair.own.psnr if pair.own else None) for pair in known]
    gain = _mean(None if one is None or own is None else one - own for one, own in both)
    return SceneMeasurement(num_photos=len(known), answered_psnr=answered, gain_db=gain, **merged, **own)


def of_photos(photos: Mapping[str, PhotoMeasurement], names: Iterable[str]) -> SceneMeasurement:
    """Return the means over the photographs of `names`, each compared with the splat of its home patch.

    The home is the patch whose core the photograph sees most of; without names, all figures are None.

    Raises:
        KeyError: `photos` lacks a name.
    """
    return measured(
        PhotographRenderings(
            photos[name], QualityFigures(psnr=photos[name].own_psnr), photos[name].answered.get(photos[name].home)
        )
        for name in names
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class SideView:
    """Rendering of one patch from a view at a seam, and which pixels show the band that both patches share.

    The band is the intersection of both patches' bounds, where both have Gaussians of their own.
    """

    colors: Tensor  # [H, W, 3]
    depths: Tensor  # [H, W], in units of the view
    is_common: Tensor  # [H, W], whether the surface lies in the band
    num_common: int
    """Number of the patch's Gaussians in the band that may be visible."""


@dataclass
class SeamSides:
    """Comparison of two patches at a seam, where their cores meet: `look` adds views, `figures` returns the result."""

    one: PatchRenderer
    other: PatchRenderer
    band: PatchPlacement
    """Intersection of the boxes that bound both patches, where both have Gaussians of their own."""
    options: RasterOptions
    """Options of all renderings, but for the degree of harmonics, which is that of each splat."""
    _differences: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = field(default_factory=list)
    _steps: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = field(default_factory=list)
    _squares: float = 0.0
    _num_compared: int = 0
    _num_pixels: int = 0
    _num_views: int = 0
    _num_one: int = 0
    _num_other: int = 0

    @torch.inference_mode()
    def look(self, shots: Iterable[CameraView]) -> None:
        """Render both patches from the cameras of photographs, and add the differences to the comparison.

        Pixels of the photographs are not used.

        Raises:
            SceneError: a photograph cannot be read.
            TrainerError: there are no kernels for the GPU.
            ValueError: a splat file has become shorter.
            OSError: a splat file cannot be read.
        """
        for shot in shots:
            one, other = (self._shown(side, shot.photo.view, shot.frame) for side in (self.one, self.other))
            both = one.is_common & other.is_common
            self._num_views += 1
            self._num_pixels += both.numel()
            self._num_one += one.num_common
            self._num_other += other.num_common
            difference = (one.colors[both] - other.colors[both]).cpu().numpy()
            step = (2 * (one.depths[both] - other.depths[both]) / (one.depths[both] + other.depths[both])).cpu().numpy()
            self._num_compared += len(step)
            self._squares += float(np.square(difference.astype(np.float64)).sum())
            stride = max(1, math.ceil(len(step) / MOST_PIXELS))
            self._differences.append(difference[::stride])
            self._steps.append(step[::stride])

    def _shown(self, side: PatchRenderer, view: RenderCamera, frame: LocalFrame) -> SideView:
        own, every = side.seen_from(frame, view)
        options = replace(self.options, sh_degree=side.store.blocks.header.sh_degree)
        depths, alphas = depth_of(every, view, options)
        is_common = (alphas > OPAQUE) & self.band.holds(places_of(depths, view), frame)
        num_common = int(self.band.holds(own["means"], frame).sum())
        return SideView(rasterize(every, view, options).colors.clamp(0, 1), depths, is_common, num_common)

    def figures(self) -> SeamMeasurement:
        """Return the figures over all views.

        If fewer than `LEAST_PIXELS` pixels were compared, only the number of views and a `problem`, as text.

        Offsets of colours are in 1/255, the step is a share of the depth, the PSNR is in dB. The ratio of densities is
        None if `other` has no Gaussians in the band.
        """
        found = SeamMeasurement(num_views=self._num_views)
        if self._num_compared < LEAST_PIXELS:
            why = f"too few pixels ({self._num_compared}) show what both patches were trained on"
            return replace(found, problem=why)
        offsets = 255 * np.median(np.concatenate(self._differences), axis=0)
        error = self._squares / (3 * self._num_compared)
        return replace(
            found,
            share=self._num_compared / self._num_pixels,
            psnr_between=min(MOST_PSNR_DB, -10 * math.log10(error)) if error else MOST_PSNR_DB,
            color_offset=float(np.abs(offsets).max()),
            color_offsets=(float(offsets[0]), float(offsets[1]), float(offsets[2])),
            depth_step=float(np.median(np.concatenate(self._steps))),
            density_ratio=self._num_one / self._num_other if self._num_other else None,
        )
