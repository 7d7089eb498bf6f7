"""What is inspected: a splat, the photographs around it, and the points of the model that each of them sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

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
"""Of a picture that is rendered: figures cost the same whatever the photographs' size, and mean the same."""
MOST_POINTS = 60_000
"""Points of the model that are looked at, evenly taken."""
MOST_KEPT = 100
"""Renderings that are kept, of 2.9 MB each: what several figures look at is drawn once."""
AT_ONCE = 1 << 21
"""Gaussians that are projected at once: with what that takes in between 0.3 GB."""
COPIES, SHARE = 3, 0.5
"""Of a splat's bytes: what drawing all of it takes; and of the free memory of a GPU, what it may take."""
FAINTEST = 1e-6
NEEDLE = 12.0
"""Times its second axis that the longest axis of a needle measures; a disc is none."""
GIANT = 0.4
"""Times the size of the scene that both long axes of a giant measure."""
TAILS = (1.0, 99.0)
"""Percent of the points between which the scene lies: what is large beyond it is a background."""


@dataclass(frozen=True, eq=False)
class SmallPhotograph:
    """A photograph, a smaller copy of it that is rendered, and the points of the model that it sees."""

    photo: PosedImage
    small: PosedImage
    points: Ints  # [n], rows of the subject's points
    pixels: Floats  # [n, 2], in `small`
    depths: Floats  # [n], along the camera's axis, in units of the frame
    errors: Floats  # [n], from the keypoint to where the point falls, in 1/1000 of the picture's width
    is_inside: NDArray[np.bool_]  # [n], whether it falls into the picture, before the camera, on a pixel that counts

    def cells(self) -> tuple[Ints, Ints]:
        """Return row and column of each point that falls into the picture."""
        places = np.floor(self.pixels[self.is_inside]).astype(np.int64)
        return places[:, 1], places[:, 0]


@dataclass(frozen=True)
class BlendedView:
    """What a view shows, all of it blended alike, [H, W] each."""

    colors: Tensor  # [H, W, 3], not clamped
    alphas: Tensor
    depths: Tensor  # in the mean, along the camera's axis, in units of the frame
    needles: Tensor  # share that needles paint
    giants: Tensor


@dataclass(frozen=True)
class InspectedSplat:
    """A splat in the frame that it was trained in, and what there is to hold it against.

    One that its GPU does not hold lies in host memory, and each view is drawn of what it may show.
    """

    own: Parameters
    drawn: Parameters
    """With what lies behind it, if anything does."""
    training: tuple[SmallPhotograph, ...]
    holdout: tuple[SmallPhotograph, ...]
    points: Floats  # [P, 3]
    frame: LocalFrame
    recipe: Recipe
    piece: frozenset[str] = frozenset()
    """Held-out photographs that were taken side by side."""
    is_sampled: bool = False
    """There are more photographs than these."""
    is_held: bool = True
    """The device that draws holds all Gaussians."""
    found: dict[str, Any] = field(default_factory=dict)
    """What is dear and asked for twice, by its name."""
    _shown: dict[str, BlendedView] = field(default_factory=dict)

    def shown(self, look: SmallPhotograph) -> BlendedView:
        """Return what is drawn from where a photograph was taken, in its small copy's size."""
        name = look.photo.name
        if name not in self._shown:
            if len(self._shown) >= MOST_KEPT:
                del self._shown[next(iter(self._shown))]
            self._shown[name] = self.shown_from(look.small.view)
        return self._shown[name]

    @torch.inference_mode()
    def shown_from(self, view: RenderCamera) -> BlendedView:
        """Return what a view shows."""
        met = self._met(view)
        gaussians, marks = (self.drawn, self.marks) if met is None else (self.part(met), self.marks[met])
        depths = (gaussians["means"] * view.viewmat[2, :3]).sum(dim=1) + view.viewmat[2, 3]
        values = torch.cat([depths[:, None], marks.to(depths)], dim=1)
        rendering, drawn = with_values(gaussians, values, view, self.options)
        alphas = rendering.alphas[..., 0]
        far, needles, giants = drawn.unbind(dim=-1)
        return BlendedView(rendering.colors, alphas, far / alphas.clamp_min(FAINTEST), needles, giants)

    def part(self, which: Tensor) -> Parameters:
        """Return the splat's own Gaussians of a mask [N], on the device that draws."""
        return _frozen({name: value.to(self.device) for name, value in select(self.own, which).items()})

    def _met(self, view: RenderCamera) -> Tensor | None:
        """Return which Gaussians a view may show, [N]; None: all lie where they are drawn."""
        if self.is_held:
            return None
        means, reach = (torch.split(values, AT_ONCE) for values in (self.own["means"], self._reach))
        found = [may_be_seen(m.to(self.device), r.to(self.device), view) for m, r in zip(means, reach, strict=True)]
        met = torch.cat(found).to(self.own["means"].device)
        met[0] |= not bool(met.any())  # not every rasteriser takes none at all
        return met

    @cached_property
    def _reach(self) -> Tensor:
        return SIGMAS * self.own["scales"].amax(dim=1).exp()

    @property
    def device(self) -> torch.device:
        """The device that draws."""
        return self.looks[0].small.view.viewmat.device

    @cached_property
    def marks(self) -> Tensor:
        """Return which Gaussians are needles and which giants, [N, 2]; nothing behind the splat is either."""
        lengths = self.own["scales"].exp().sort(dim=1, descending=True).values  # [N, 3]
        size = float(np.linalg.norm(self.points.std(axis=0)))
        low, high = torch.from_numpy(np.percentile(self.points, TAILS, axis=0)).to(self.own["means"])
        is_within = ((self.own["means"] >= low) & (self.own["means"] <= high)).all(dim=1)
        is_needle, is_giant = lengths[:, 0] > NEEDLE * lengths[:, 1], is_within & (lengths[:, 1] > GIANT * size)
        marks = torch.zeros_like(self.drawn["sh0"][:, 0, :2])
        marks[: len(lengths)] = torch.stack([is_needle, is_giant], dim=1).float()
        return marks

    @property
    def options(self) -> RasterOptions:
        """Return how it is drawn."""
        return RasterOptions.of(self.recipe)

    @property
    def looks(self) -> tuple[SmallPhotograph, ...]:
        """Return all photographs, in the order of their names."""
        return tuple(sorted((*self.training, *self.holdout), key=lambda look: look.photo.name))


@dataclass(frozen=True)
class FramedReconstruction:
    """A reconstruction as the frame has it."""

    sightings: IndexedModel
    points: Floats  # [P, 3], in the frame
    is_kept: NDArray[np.bool_]  # [P]

    @classmethod
    def of(cls, sightings: IndexedModel, frame: LocalFrame, offset: Offset) -> FramedReconstruction:
        """Return a model in the frame of a training; of many points some."""
        num = len(sightings.points)
        is_kept = np.zeros(num, dtype=bool)
        is_kept[np.linspace(0, num - 1, min(num, MOST_POINTS)).astype(np.int64)] = num > 0
        return cls(sightings, frame.to_local(sightings.points.xyz - np.array(offset)), is_kept)

    def looks(self, photos: Sequence[PosedImage]) -> tuple[SmallPhotograph, ...]:
        """Return what each photograph sees."""
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
        """Return how far the points fall from their keypoints, in 1/1000 of the width of the camera's picture."""
        known = self.sightings
        place = next(place for place, image in enumerate(known.images) if image.name == photo.name)
        image, camera = known.images[place], known.cameras[known.images[place].camera_id]
        matrix = image.world_to_camera()
        keypoints = known.xy[known.first_keypoint[place] + known.keypoint[sightings]]
        local = known.points.xyz[known.point[sightings]] @ matrix[:3, :3].T + matrix[:3, 3]
        away: Floats = np.linalg.norm(project(camera, local) - keypoints, axis=1)
        return 1000 * away / camera.width


def smaller(photo: PosedImage) -> PosedImage:
    """Return a photograph with its camera, of at most `MOST_PIXELS`."""
    view = photo.view
    factor = math.sqrt(MOST_PIXELS / (view.width * view.height))
    if factor >= 1:
        return photo
    width, height = max(1, round(factor * view.width)), max(1, round(factor * view.height))
    scale = view.K.new_tensor([[width / view.width], [height / view.height], [1.0]])
    pixels = photo.target().movedim(-1, 0)[None].float()  # where it is drawn, too: a GPU reduces at once
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
    """Return a splat with what there is to hold it against."""
    frozen, drawn = (_frozen(values) for values in (own, views.border.with_backdrop(own)))
    training, holdout = model.looks(views.training), model.looks(views.holdout)
    return InspectedSplat(frozen, drawn, training, holdout, model.points, views.frame, recipe)


def _frozen(gaussians: Mapping[str, Tensor]) -> Parameters:
    return {name: Parameter(value.detach(), requires_grad=False) for name, value in gaussians.items()}


@dataclass(frozen=True)
class LoadedSubject:
    """A splat and all that it was trained from, in host memory: another process may still have the GPU."""

    recipe: Recipe
    gaussians: Gaussians
    views: TrainingImages
    model: FramedReconstruction
    piece: frozenset[str]
    is_sampled: bool

    def on(self, device: torch.device, room: int | None = None) -> InspectedSplat:
        """Return what is inspected, on the device that draws it.

        Args:
            device: that draws.
            room: bytes that the splat may take there; None: a share of what is free.

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
    """Read a splat and all that it was trained from, without touching CUDA.

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
