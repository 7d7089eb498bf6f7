"""Subject of an inspection: a splat, its photographs, and the points of the model that each photograph sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import interpolate

from splatbatch.config import Offset, Recipe
from splatbatch.errors import SceneError
from splatbatch.output.records.colors import tone_in
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.scene.colmap.indexed_model import IndexedModel, read_sightings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.frame import shifted
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.scene.reprojection import project
from splatbatch.splats import Gaussians, read_header, read_splat
from splatbatch.splats.blocks import SIGMAS
from splatbatch.training.border import read_border
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import Parameters, load_splat, select
from splatbatch.training.photos.dataset import (
    PhotoFolders,
    TrainingImages,
    boundary_mask,
    covered_of,
    decode_views,
    evenly_spaced,
    with_covered,
)
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import with_values
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, drawn_as
from splatbatch.training.scene.block_cache import may_be_seen

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_PIXELS = 120_000
"""Largest number of pixels of a rendering: time and meaning of figures must not depend on the photographs' size."""
MOST_POINTS = 60_000
"""Largest number of the model's points that are used, evenly taken."""
MOST_KEPT = 100
"""Largest number of renderings, of 2.9 MB each, that are cached for several figures."""
AT_ONCE = 1 << 21
"""Number of Gaussians that are projected at once, which takes 0.3 GB of memory."""
COPIES, SHARE = 3, 0.5
"""Memory for rendering a whole splat, as a multiple of its bytes; and the share of a GPU's free memory for it."""
FAINTEST = 1e-6


@dataclass(frozen=True, eq=False)
class SmallPhotograph:
    """A photograph, its smaller copy whose camera renders, and the points of the model that it shows.

    These are the points that fall into the picture, before the camera, on a pixel that counts.
    """

    photo: PosedImage
    small: PosedImage
    points: Ints  # [n], rows of the subject's points
    pixels: Floats  # [n, 2], in `small`
    depths: Floats  # [n], along the camera's axis, in units of the frame
    errors: Floats
    """Distance from the keypoint to where the point falls, in 1/1000 of the width, also of points outside, [m]."""

    def cells(self) -> tuple[Ints, Ints]:
        """Return row and column of each point in the small copy."""
        places = np.floor(self.pixels).astype(np.int64)
        return places[:, 1], places[:, 0]


@dataclass(frozen=True)
class BlendedView:
    """Rendering of a view, with depths alpha-blended like its colours."""

    colors: Tensor  # [H, W, 3], not clamped
    alphas: Tensor  # [H, W]
    depths: Tensor  # [H, W], expected depth along the camera's axis, in units of the frame


@dataclass(frozen=True)
class InspectedSplat:
    """A splat in the frame of its training, with photographs and points to compare it with.

    A splat too large for the GPU is in host memory; for each view the Gaussians that may be visible are uploaded.
    """

    own: Parameters
    drawn: Parameters
    """The splat's Gaussians, followed by those of its backdrop, if it has one."""
    training: tuple[SmallPhotograph, ...]
    holdout: tuple[SmallPhotograph, ...]
    points: Floats  # [P, 3]
    frame: LocalFrame
    options: RasterOptions
    """Those of the splat's recipe."""
    device: torch.device
    """The device that renders."""
    piece: frozenset[str]
    """Names of held-out photographs that were taken side by side, as one piece of the scene."""
    is_sampled: bool
    """Whether only some of the patch's photographs are used."""
    is_held: bool
    """Whether all Gaussians are on the device that renders."""
    _shown: dict[str, BlendedView] = field(default_factory=dict)

    def shown(self, look: SmallPhotograph) -> BlendedView:
        """Return the rendering from the camera of a photograph's small copy, cached."""
        name = look.photo.name
        if name not in self._shown:
            if len(self._shown) >= MOST_KEPT:
                del self._shown[next(iter(self._shown))]
            self._shown[name] = self.shown_from(look.small.view)
        return self._shown[name]

    @torch.inference_mode()
    def shown_from(self, view: RenderCamera) -> BlendedView:
        """Render a view, without caching."""
        met = self._met(view)
        gaussians = self.drawn if met is None else self.part(met)
        depths = (gaussians["means"] * view.viewmat[2, :3]).sum(dim=1) + view.viewmat[2, 3]
        rendering, drawn = with_values(gaussians, depths[:, None], view, self.options)
        alphas = rendering.alphas[..., 0]
        return BlendedView(rendering.colors, alphas, drawn[..., 0] / alphas.clamp_min(FAINTEST))

    def part(self, which: Tensor) -> Parameters:
        """Return the splat's own Gaussians selected by a mask [N], on the device that renders."""
        return _frozen({name: value.to(self.device) for name, value in select(self.own, which).items()})

    def _met(self, view: RenderCamera) -> Tensor | None:
        """Return which Gaussians may be visible from a view, [N]; None if all are on the device that renders."""
        if self.is_held:
            return None
        means, reach = (torch.split(values, AT_ONCE) for values in (self.own["means"], self._reach))
        found = [may_be_seen(m.to(self.device), r.to(self.device), view) for m, r in zip(means, reach, strict=True)]
        met = torch.cat(found).to(self.own["means"].device)
        met[0] |= not bool(met.any())  # not every rasteriser accepts zero Gaussians
        return met

    @cached_property
    def _reach(self) -> Tensor:
        return SIGMAS * self.own["scales"].amax(dim=1).exp()

    @property
    def looks(self) -> tuple[SmallPhotograph, ...]:
        """Return all photographs, training and held-out, sorted by name."""
        return tuple(sorted((*self.training, *self.holdout), key=lambda look: look.photo.name))


def _frozen(gaussians: Mapping[str, Tensor]) -> Parameters:
    return {name: Parameter(value.detach(), requires_grad=False) for name, value in gaussians.items()}


def smaller(photo: PosedImage) -> PosedImage:
    """Return a photograph reduced to about `MOST_PIXELS` pixels, with camera, masks and tone; unchanged if smaller."""
    view = photo.view
    factor = math.sqrt(MOST_PIXELS / (view.width * view.height))
    if factor >= 1:
        return photo
    width, height = max(1, round(factor * view.width)), max(1, round(factor * view.height))
    scale = view.K.new_tensor([[width / view.width], [height / view.height], [1.0]])
    pixels = photo.target().movedim(-1, 0)[None].float()  # on the device that renders: a GPU is faster
    reduced = interpolate(pixels, size=(height, width), mode="area")[0].movedim(0, -1).round().to(torch.uint8)
    mask, covered = (
        None if one is None else interpolate(one[None, None].float(), size=(height, width), mode="area")[0, 0] > 0.5
        for one in (photo.valid(), photo.covered_pixels())
    )
    tone = None if photo.correction is None else photo.correction.clone()
    if tone is not None:
        tone[3] /= factor**2  # one over the square of half the diagonal
    small = RenderCamera(view.viewmat, scale * view.K, width, height)
    return replace(photo, view=small, pixels=reduced, mask=mask, correction=tone, coverage_mask=covered)


def _with_points(photos: Sequence[PosedImage], model: IndexedModel, points: Floats) -> tuple[SmallPhotograph, ...]:
    """Return photographs with their small copies and the points that they see, of at most `MOST_POINTS` of the model.

    Args:
        photos: some of the model's photographs.
        model: the model of the patch.
        points: its points in the frame of the photographs' cameras, [P, 3].
    """
    is_kept = np.zeros(len(points), dtype=bool)
    is_kept[np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.int64)] = len(points) > 0
    index = {image.name: place for place, image in enumerate(model.images)}
    order = np.argsort(model.photo, kind="stable")
    ends = np.searchsorted(model.photo[order], np.arange(len(index) + 1))
    of_point, found = model.point, []
    for photo in photos:
        place, small = index[photo.name], smaller(photo)
        sightings = order[ends[place] : ends[place + 1]]
        sightings = sightings[is_kept[of_point[sightings]]]
        seen = of_point[sightings].astype(np.int64)
        places, away = small.view.project(torch.from_numpy(points[seen]))
        pixels, inside = places.numpy(), ((away > 0) & small.view.shows(places)).numpy()
        if small.mask is not None:
            x, y = np.floor(pixels[inside]).astype(np.int64).T
            inside[inside] = small.mask.cpu().numpy()[y, x]
        errors = _errors(model, place, sightings)
        found.append(SmallPhotograph(photo, small, seen[inside], pixels[inside], away.numpy()[inside], errors))
    return tuple(found)


def _errors(model: IndexedModel, place: int, sightings: Ints) -> Floats:
    """Return the reprojection errors of points that a photograph sees, in 1/1000 of the camera's width, [n]."""
    image, camera = model.images[place], model.cameras[model.images[place].camera_id]
    matrix = image.world_to_camera()
    keypoints = model.xy[model.first_keypoint[place] + model.keypoint[sightings]]
    local = model.points.xyz[model.point[sightings]] @ matrix[:3, :3].T + matrix[:3, 3]
    away: Floats = np.linalg.norm(project(camera, local) - keypoints, axis=1)
    return 1000 * away / camera.width


@dataclass(frozen=True)
class LoadedSubject:
    """A splat with photographs and model in host memory, read without CUDA, since another process may use the GPU."""

    recipe: Recipe
    gaussians: Gaussians
    views: TrainingImages
    model: IndexedModel
    offset: Offset
    piece: frozenset[str]
    is_sampled: bool

    def on(self, device: torch.device, room: int | None = None) -> InspectedSplat:
        """Return the subject of the inspection, to be rendered on a device.

        Args:
            device: that renders.
            room: bytes that the splat may take there; None: on a GPU `SHARE` of its free memory.

        Raises:
            SceneError: no photograph shows the patch.
        """
        views = boundary_mask(self.views.to(device, "host"))
        if room is None and device.type == "cuda":
            room = int(SHARE * torch.cuda.mem_get_info(device)[0])
        needed = COPIES * sum(values.nbytes for values in vars(self.gaussians).values())
        is_held = room is None or needed <= room or bool(views.border.backdrop)
        own = load_splat(self.gaussians, views.frame, device if is_held else torch.device("cpu"))
        points = views.frame.to_local(self.model.points.xyz - np.array(self.offset))
        return InspectedSplat(
            _frozen(own),
            _frozen(views.border.with_backdrop(own)),
            _with_points(views.training, self.model, points),
            _with_points(views.holdout, self.model, points),
            points,
            views.frame,
            RasterOptions.of(self.recipe),
            device,
            self.piece,
            self.is_sampled,
            is_held,
        )


def open_subject(settings: InspectionSettings) -> LoadedSubject:
    """Read a splat, its photographs and its model, without touching CUDA.

    Raises:
        SceneError: the splat, the model or a photograph cannot be read.
    """
    recipe, splat = Recipe.model_validate(settings.recipe), Path(settings.splat)
    whole = read_reconstruction(Path(settings.sparse), tracks=True)
    model = shifted(whole, settings.offset)
    num = len(model.images)
    most = settings.most_photos or num
    model = replace(model, images=evenly_spaced(model.images, most))
    folders = PhotoFolders(Path(settings.images), Path(settings.masks) if settings.masks else None)
    load_lenses(model.cameras.values())
    with ThreadPoolExecutor(max_workers=1) as beside:  # while photographs are decoded, which waits for the disk
        covering = beside.submit(covered_of, settings, whole)
        views = decode_views(model, folders, frozenset(settings.holdout), recipe.training, tone_in(settings))
    views = with_covered(views, covering.result())
    views = replace(views, border=read_border(settings, views.frame, recipe.training))
    try:
        gaussians, recipe = read_splat(splat), drawn_as(recipe, read_header(splat))
    except (OSError, ValueError) as error:
        raise SceneError(f"{splat}: cannot be read ({error})", "Train the patch again.") from error
    sightings, piece = read_sightings(Path(settings.sparse)), frozenset(settings.piece)
    return LoadedSubject(recipe, gaussians, views, sightings, settings.offset, piece, most < num)
