"""Subject of an inspection: a splat, its photographs, and the points of the model that each photograph sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.scene.colmap.indexed_model import IndexedModel, read_sightings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.frame import shifted
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.scene.reprojection import project
from splatbatch.splats import read_header, read_splat
from splatbatch.splats.blocks import SIGMAS
from splatbatch.training.border import read_border
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import select, values_of
from splatbatch.training.photos import dataset
from splatbatch.training.photos.posed_image import PosedImage, resized
from splatbatch.training.rendering.rasterize import with_depths
from splatbatch.training.rendering.view import BlendedView, RasterOptions, RenderCamera, drawn_as
from splatbatch.training.scene.block_cache import may_be_seen

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_PIXELS = 120_000  # of a rendering: time and meaning of figures must not depend on the photographs' size
MOST_POINTS = 60_000  # of the model that are used, evenly taken
MOST_KEPT = 100  # renderings, of 2.9 MB each, that are cached for several figures
AT_ONCE = 1 << 21  # Gaussians that are projected at once, which takes 0.3 GB of memory
COPIES, SHARE = 3, 0.5
"""Memory for rendering a whole splat as a multiple of the splat's bytes, and the share of free GPU memory for that."""


@dataclass(frozen=True, eq=False)
class SmallPhotograph:
    """A photograph, a smaller copy for renderings, and the sparse points that it sees on valid pixels of the copy."""

    photo: PosedImage
    small: PosedImage
    points: Ints  # [n], rows of the subject's points
    pixels: Floats  # [n, 2], in `small`
    depths: Floats  # [n], along the camera's axis, in units of the frame
    errors: Floats  # [m], from keypoint to point, in 1/1000 of the width, also of points outside

    def cells(self) -> tuple[Ints, Ints]:
        """Return row and column in px, [n] each, of the pixel of each point in the small copy."""
        places = np.floor(self.pixels).astype(np.int64)
        return places[:, 1], places[:, 0]


@dataclass(frozen=True)
class InspectedSplat:
    """A splat in its training's frame, with photographs and sparse points; one too large for the GPU is on the host."""

    own: Mapping[str, Tensor]  # the splat's own Gaussians, before activation, by name
    drawn: Mapping[str, Tensor]  # the same, followed by those of its backdrop, if there is one
    training: tuple[SmallPhotograph, ...]
    holdout: tuple[SmallPhotograph, ...]
    points: Floats  # [P, 3]
    frame: LocalFrame
    options: RasterOptions
    device: torch.device  # that renders
    piece: frozenset[str]  # held-out photographs taken side by side, as one piece of the scene; empty: none
    is_sampled: bool  # only some of the patch's photographs are used
    is_held: bool  # all Gaussians are on the device that renders
    _shown: dict[str, BlendedView] = field(default_factory=dict)

    def shown(self, look: SmallPhotograph) -> BlendedView:
        """Return the rendering from the camera of a photograph's small copy; the last `MOST_KEPT` (100) are cached."""
        name = look.photo.name
        if name not in self._shown:
            if len(self._shown) >= MOST_KEPT:
                del self._shown[next(iter(self._shown))]
            self._shown[name] = self.shown_from(look.small.view)
        return self._shown[name]

    @torch.inference_mode()
    def shown_from(self, view: RenderCamera) -> BlendedView:
        """Return the rendering of any camera in the frame of the training, with depths; the result is not cached."""
        return with_depths(self.drawn if self.is_held else self.part(self._met(view)), view, self.options)

    def part(self, which: Tensor) -> dict[str, Tensor]:
        """Return a copy of the splat's own Gaussians that a mask [N] selects, on the device that renders."""
        return {name: value.to(self.device) for name, value in select(self.own, which).items()}

    def in_parts(self, values: Tensor) -> Iterator[Tensor]:
        """Yield `values` [N, ...] in parts of at most `AT_ONCE` rows, in their order, on the device that renders."""
        return (part.to(self.device) for part in torch.split(values, AT_ONCE))

    def _met(self, view: RenderCamera) -> Tensor:
        """Return which of the splat's own Gaussians may be visible from a view, [N], at least one."""
        means = self.own["means"]
        balls = zip(self.in_parts(means), self.in_parts(self._reach), strict=True)
        met = torch.cat([may_be_seen(places, reach, view) for places, reach in balls]).to(means.device)
        met[0] |= not bool(met.any())  # not every rasteriser accepts zero Gaussians
        return met

    @cached_property
    def _reach(self) -> Tensor:
        return SIGMAS * self.own["scales"].amax(dim=1).exp()

    @cached_property
    def centers(self) -> Floats:
        """Return the positions of the T training cameras in the frame of the training, [T, 3]."""
        return np.array([look.photo.view.center() for look in self.training])

    def away_from(self, look: SmallPhotograph) -> Floats:
        """Return the distances of a photograph's camera to all other training cameras, ascending, in frame units."""
        away = np.sort(np.linalg.norm(self.centers - look.photo.view.center(), axis=1))
        return away[1:] if look in self.training else away

    @property
    def looks(self) -> tuple[SmallPhotograph, ...]:
        """Return all photographs, training and held-out, sorted by name."""
        return tuple(sorted((*self.training, *self.holdout), key=lambda look: look.photo.name))


def open_subject(
    settings: InspectionSettings, open_device: Callable[[], torch.device], room: int | None = None
) -> InspectedSplat:
    """Read a splat, its photographs and its model, and put splat and photographs where they are rendered.

    Args:
        settings: settings of the inspection, which name all files.
        open_device: returns the device that renders; called after all files are decoded, before which CUDA is unused.
        room: bytes for rendering, beyond which a splat without backdrop stays in host memory; None: `SHARE` decides.

    Raises:
        SceneError: the splat, the model or a photograph cannot be read, or no photograph shows the patch.
        TrainerError: the backdrop has changed or cannot be read; `open_device` fails; or the GPU has no kernels.
        ValueError: the recipe of the settings is invalid.
        KeyError: the border in the settings lacks a key.
    """
    recipe, splat, sparse = Recipe.model_validate(settings.recipe), Path(settings.splat), Path(settings.sparse)
    whole = read_reconstruction(sparse, tracks=True)
    num = len(whole.images)
    model = shifted(whole, settings.offset)
    model = replace(model, images=dataset.evenly_spaced(model.images, settings.most_photos or num))
    load_lenses(model.cameras.values())
    with ThreadPoolExecutor(max_workers=1) as beside:  # while photographs are decoded, which waits for the disk
        covering = beside.submit(dataset.covered_of, settings, whole)
        folders, held_out = dataset.PhotoFolders.of(settings), frozenset(settings.holdout)
        views = dataset.decode_views(model, folders, held_out, recipe.training)
    views = dataset.with_covered(views, covering.result())
    views = replace(views, border=read_border(settings, views.frame, recipe.training))
    try:
        gaussians, recipe = read_splat(splat), drawn_as(recipe, read_header(splat))
    except (OSError, ValueError) as error:
        raise SceneError(f"{splat}: the splat cannot be read ({error})", "Train the patch again.") from error
    sightings = read_sightings(sparse)
    device = open_device()
    views = dataset.boundary_mask(views.to(device, "host"))
    if room is None and device.type == "cuda":
        room = int(SHARE * torch.cuda.mem_get_info(device)[0])
    needed = COPIES * sum(values.nbytes for values in vars(gaussians).values())
    is_held = room is None or needed <= room or bool(views.border.backdrop)
    own = {name: value.to(device if is_held else "cpu") for name, value in values_of(gaussians, views.frame).items()}
    points = views.frame.to_local(sightings.points.xyz - np.array(settings.offset))
    training, holdout = (_with_points(photos, sightings, points) for photos in (views.training, views.holdout))
    return InspectedSplat(
        *(own, views.border.with_backdrop(own), training, holdout, points, views.frame, RasterOptions.of(recipe)),
        *(device, frozenset(settings.piece), len(model.images) < num, is_held),
    )


def _with_points(photos: Sequence[PosedImage], model: IndexedModel, points: Floats) -> tuple[SmallPhotograph, ...]:
    """Return photographs with the points they see, of at most `MOST_POINTS`; `points` [P, 3] are all of the model."""
    is_kept = np.zeros(len(points), dtype=bool)
    is_kept[np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.int64)] = True
    observations, of_point = model.of_points(is_kept)
    taken_by = model.photo[observations]
    order, counts = np.argsort(taken_by, kind="stable"), np.bincount(taken_by, minlength=len(model.images))
    by_photo, place_of = np.split(order, counts.cumsum()), {image.name: at for at, image in enumerate(model.images)}
    found = []
    for photo in photos:
        small, place = resized(photo, MOST_PIXELS), place_of[photo.name]
        image, camera = model.images[place], model.cameras[model.images[place].camera_id]
        own, seen = observations[by_photo[place]], of_point[by_photo[place]]
        pixels, depths, is_shown = (values.numpy() for values in small.view.sees(torch.from_numpy(points[seen])))
        if small.mask is not None:
            x, y = np.floor(pixels[is_shown]).astype(np.int64).T
            is_shown[is_shown] = small.mask.cpu().numpy()[y, x]
        matrix, keypoints = image.world_to_camera(), model.xy[model.first_keypoint[place] + model.keypoint[own]]
        falls = project(camera, model.points.xyz[seen] @ matrix[:3, :3].T + matrix[:3, 3])
        errors = 1000 * np.linalg.norm(falls - keypoints, axis=1) / camera.width
        found.append(SmallPhotograph(photo, small, seen[is_shown], pixels[is_shown], depths[is_shown], errors))
    return tuple(found)


def medians_of(points: Ints, values: Floats) -> Floats:
    """Return the median of the finite `values` [n] of each point, at its index in `points` [n]; NaN for fewer than two.

    The result has one entry more than the largest index; it is empty without points.
    """
    medians, known = np.full(points.max(initial=-1) + 1, np.nan), np.isfinite(values)
    points, values = points[known], values[known]
    judged = np.flatnonzero(np.bincount(points) >= 2)
    if len(judged):
        medians[judged] = ndimage.median(values, points, judged)
    return medians
