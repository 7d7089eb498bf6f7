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
from splatbatch.output.records.metrics import TrainingSettings
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
    """A photograph, its smaller copy whose camera renders, and the points of the model that it sees."""

    photo: PosedImage
    small: PosedImage
    points: Ints  # [n], rows of the subject's points
    pixels: Floats  # [n, 2], in `small`
    depths: Floats  # [n], along the camera's axis, in units of the frame
    errors: Floats  # [n], from the keypoint to where the point falls, in 1/1000 of the picture's width
    is_inside: NDArray[np.bool_]  # [n], whether it falls into the picture, before the camera, on a pixel that counts

    def cells(self) -> tuple[Ints, Ints]:
        """Return row and column, in the small copy, of each point that is in the picture and on a valid pixel."""
        places = np.floor(self.pixels[self.is_inside]).astype(np.int64)
        return places[:, 1], places[:, 0]


@dataclass(frozen=True)
class BlendedView:
    """Rendering of a view, with depths alpha-blended like its colours, [H, W]."""

    colors: Tensor  # [H, W, 3], not clamped
    alphas: Tensor
    depths: Tensor  # expected depth along the camera's axis, in units of the frame


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
    recipe: Recipe
    piece: frozenset[str] = frozenset()
    """Names of held-out photographs that were taken side by side, as one piece of the scene."""
    is_sampled: bool = False
    """Whether only some of the patch's photographs are used."""
    is_held: bool = True
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
    def device(self) -> torch.device:
        """Return the device that renders."""
        return self.looks[0].small.view.viewmat.device

    @property
    def options(self) -> RasterOptions:
        """Return the raster options of the splat's recipe."""
        return RasterOptions.of(self.recipe)

    @property
    def looks(self) -> tuple[SmallPhotograph, ...]:
        """Return all photographs, training and held-out, sorted by name."""
        return tuple(sorted((*self.training, *self.holdout), key=lambda look: look.photo.name))


@dataclass(frozen=True)
class FramedReconstruction:
    """The model of a patch with its points in the frame of the training, to look up the points of photographs."""

    sightings: IndexedModel
    points: Floats  # [P, 3], in the frame
    is_kept: NDArray[np.bool_]  # [P]

    @classmethod
    def of(cls, sightings: IndexedModel, frame: LocalFrame, offset: Offset) -> FramedReconstruction:
        """Return a model in the frame of a training; at most `MOST_POINTS` points are kept for use."""
        num = len(sightings.points)
        is_kept = np.zeros(num, dtype=bool)
        is_kept[np.linspace(0, num - 1, min(num, MOST_POINTS)).astype(np.int64)] = num > 0
        return cls(sightings, frame.to_local(sightings.points.xyz - np.array(offset)), is_kept)

    def looks(self, photos: Sequence[PosedImage]) -> tuple[SmallPhotograph, ...]:
        """Return photographs with their small copies and the points that they see."""
        index = {image.name: place for place, image in enumerate(self.sightings.images)}
        order = np.argsort(self.sightings.photo, kind="stable")
        ends = np.searchsorted(self.sightings.photo[order], np.arange(len(index) + 1))
        point = self.sightings.point[order]
        rows = {name: slice(ends[place], ends[place + 1]) for name, place in index.items()}
        return tuple(self._look(photo, point[rows[photo.name]], order[rows[photo.name]]) for photo in photos)

    def _look(self, photo: PosedImage, points: NDArray[np.int32], sightings: Ints) -> SmallPhotograph:
        kept = self.is_kept[points]
        points, sightings, small = points[kept], sightings[kept], smaller(photo)
        places, away = small.view.project(torch.from_numpy(self.points[points]))
        pixels, depths = places.numpy(), away.numpy()
        inside = ((away > 0) & small.view.shows(places)).numpy()
        if small.mask is not None:
            x, y = np.floor(pixels[inside]).astype(np.int64).T
            inside[inside] = small.mask.cpu().numpy()[y, x]
        return SmallPhotograph(
            photo, small, points.astype(np.int64), pixels, depths, self._errors(photo, sightings), inside
        )

    def _errors(self, photo: PosedImage, sightings: Ints) -> Floats:
        """Return the reprojection errors of a photograph's points, in 1/1000 of the camera's width, [n]."""
        known = self.sightings
        place = next(place for place, image in enumerate(known.images) if image.name == photo.name)
        image, camera = known.images[place], known.cameras[known.images[place].camera_id]
        matrix = image.world_to_camera()
        keypoints = known.xy[known.first_keypoint[place] + known.keypoint[sightings]]
        local = known.points.xyz[known.point[sightings]] @ matrix[:3, :3].T + matrix[:3, 3]
        away: Floats = np.linalg.norm(project(camera, local) - keypoints, axis=1)
        return 1000 * away / camera.width


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


def subject_of(
    own: Mapping[str, Tensor], views: TrainingImages, model: FramedReconstruction, recipe: Recipe
) -> InspectedSplat:
    """Return the subject of an inspection, with the splat `own` as it is on its device."""
    frozen, drawn = (_frozen(values) for values in (own, views.border.with_backdrop(own)))
    training, holdout = model.looks(views.training), model.looks(views.holdout)
    return InspectedSplat(frozen, drawn, training, holdout, model.points, views.frame, recipe)


def _frozen(gaussians: Mapping[str, Tensor]) -> Parameters:
    return {name: Parameter(value.detach(), requires_grad=False) for name, value in gaussians.items()}


@dataclass(frozen=True)
class LoadedSubject:
    """A splat with photographs and model in host memory, read without CUDA, since another process may use the GPU."""

    recipe: Recipe
    gaussians: Gaussians
    views: TrainingImages
    model: FramedReconstruction
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
        home = device if is_held else torch.device("cpu")
        subject = subject_of(load_splat(self.gaussians, views.frame, home), views, self.model, self.recipe)
        return replace(subject, piece=self.piece, is_sampled=self.is_sampled, is_held=is_held)


def open_subject(settings: TrainingSettings, splat: Path) -> LoadedSubject:
    """Read a splat, its photographs and its model, without touching CUDA.

    Raises:
        SceneError: the splat, the model or a photograph cannot be read.
    """
    recipe = Recipe.model_validate(settings.recipe)
    whole = read_reconstruction(Path(settings.sparse), tracks=True)
    model = shifted(whole, settings.offset)
    told = settings if isinstance(settings, InspectionSettings) else InspectionSettings()
    most, num = told.most_photos or len(model.images), len(model.images)
    if most < num:
        model = replace(model, images=tuple(model.images[place * num // most] for place in range(most)))
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
    in_frame = FramedReconstruction.of(read_sightings(Path(settings.sparse)), views.frame, settings.offset)
    return LoadedSubject(recipe, gaussians, views, in_frame, frozenset(told.piece), most < num)
