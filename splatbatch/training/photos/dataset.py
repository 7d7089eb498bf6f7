"""The photographs of a patch as tensors, decoded once and kept as uint8, with masks of the pixels that count.

Pixels that show the scene outside the patch's reach, the box that bounds its Gaussians, are masked. The backdrop is
coarse there, so its error would be fitted by floaters within reach, which hide what another patch renders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from splatbatch.config import Training
from splatbatch.errors import SceneError
from splatbatch.output.records.colors import tone_in
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.processes import num_cores
from splatbatch.scene.colmap.reconstruction import Reconstruction, count_points, read_reconstruction
from splatbatch.scene.colmap.rigs import rigs_of
from splatbatch.scene.colors.correction import ToneOf, neutral
from splatbatch.scene.coverage_mask import LEAST_SHARE, CoverageMask, coverage_mask
from splatbatch.scene.partition.border import Border
from splatbatch.scene.photos.folders import DIVISORS, PhotographSource, choose_photographs, find_masks
from splatbatch.splats.health import HealthFinding
from splatbatch.text import plural
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.frame import LocalFrame, frame_of
from splatbatch.training.gaussians import SH_C0
from splatbatch.training.photos.decode import Decoded, PhotoSource, decode
from splatbatch.training.photos.posed_image import (
    PosedImage,
    alike,
    covered_in,
    photo_in,
    settled,
)
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, Rendering

T = TypeVar("T")

MOST_POINTS = 2_000_000
"""Largest number of points of the model that a patch was cut from, up to which covered pixels are computed from it.

Every attempt of such a patch reads that model. With more points, and for a patch with a core, the patch's own points
are used.
"""

THUMBNAIL_PX = 16
MOST_SAMPLES_PX = 128
LARGEST_DIFFERENCE = 4.0
"""Largest difference, of 255, in any of the 16 x 16 means, at which two photographs count as the same picture.

A JPEG (quality 75) of the same picture differs by 1.4, two drone views of a patch by 50.
"""

MOST_OUTSIDE = 0.5
"""Largest share of a pixel's opacity, in a rendering of the whole backdrop, that may come from outside the reach.

A pixel with a larger share is masked.
"""


@dataclass(frozen=True)
class PhotoFolders:
    """Folders of a patch's photographs and of their masks, and the colour corrections of the photographs."""

    images: Path
    masks: Path | None = None
    """Folder of the masks; None: there are no masks, and all pixels count."""
    tone_of: ToneOf = neutral
    """Function that returns the colour correction of a photograph, by its name; by default none is corrected."""

    @classmethod
    def of(cls, settings: TrainingSettings) -> PhotoFolders:
        """Return the folders and colour corrections that the settings of an attempt name."""
        return cls(Path(settings.images), Path(settings.masks) if settings.masks else None, tone_in(settings))


@dataclass(frozen=True)
class TrainingImages:
    """All photographs of a patch with their cameras, in the frame of the training."""

    training: tuple[PosedImage, ...]
    """Photographs to train on, in the order of the model; empty if only held-out ones were decoded."""
    holdout: tuple[PosedImage, ...]
    """Held-out photographs, in the order of the model; may be empty."""
    frame: LocalFrame
    warnings: tuple[str, ...]
    """Warnings about photographs and masks for the user; empty: there are none."""
    loaded: Mapping[str, Any]
    """Resolution and folder of the photographs, as metrics.json has them; empty without photographs."""
    border: PatchBorder = NONE
    """Border of the patch and the backdrop behind; neither for a patch without a core, or trained without both."""
    content: Mapping[int, float] = field(default_factory=dict)
    """Share of the frequency content, 0 to 1, by shrink factor, from `coarse.content_of`; empty: all are full size."""
    coverage_masks: CoverageMask | None = None
    """Covered pixels of the held-out photographs; None: not determined."""

    @property
    def are_evened(self) -> bool:
        """Return whether any photograph has a colour correction, so that the splat has corrected colours."""
        return any(photo.correction is not None for photo in (*self.training, *self.holdout))

    def to(self, device: torch.device, wanted: Literal["gpu", "host"]) -> TrainingImages:
        """Return the photographs with cameras and border on `device`.

        `wanted` says where pixels and masks are: "gpu": on `device`; "host": in host memory, pinned for a GPU.
        """
        home = device if wanted == "gpu" else torch.device("cpu")
        training, holdout = (
            tuple(settled(photo, home, device) for photo in photos) for photos in (self.training, self.holdout)
        )
        return replace(self, training=training, holdout=holdout, border=self.border.to(device))


def decode_views(
    model: Reconstruction,
    folders: PhotoFolders,
    holdout: frozenset[str],
    training: Training,
    *,
    is_training: bool = True,
) -> TrainingImages:
    """Decode the photographs of a reconstruction at the resolution of the training, in host memory.

    Photographs without a valid pixel are left out with a warning. CUDA is not touched: another process may use the GPU.

    Args:
        model: reconstruction of the patch, with the offset subtracted.
        folders: of photographs and masks.
        holdout: names of the held-out photographs.
        training: settings of the training.
        is_training: whether to decode the training photographs as well; else only held-out ones.

    Raises:
        SceneError: a photograph is missing, it or its mask is unreadable, a lens cannot be undistorted, or none is left
            to train on.
        KeyError: `model` lacks the camera of a photograph.
    """
    chosen = choose_photographs(folders.images, model.images, model.cameras, training.resolution)
    images = [image for image in model.images if is_training or image.name in holdout]
    masks = find_masks(folders.masks, (image.name for image in images))
    sources = [
        PhotoSource(chosen.folder / one.name, model.cameras[one.camera_id], chosen.shrink, masks.get(one.name))
        for one in images
    ]
    decoded, frame = _decode_all(sources, training.workers), frame_of(model.images)
    photos = [
        photo_in(image, one, frame, folders.tone_of(image.name)) for image, one in zip(images, decoded, strict=True)
    ]
    photos = [
        replace(photo, correction=tone)
        for photo, tone in zip(photos, alike(one.correction for one in photos), strict=True)
    ]
    kept = tuple(photo for photo in photos if photo.name not in holdout and photo.counts())
    if is_training and not kept:
        raise SceneError(
            f"{model.folder}: no training cameras: 0 of {len(photos)} photographs are left: hold out fewer, or correct"
            " the masks"
        )
    held_out = tuple(photo for photo in photos if photo.name in holdout and photo.counts())
    warnings = (*filter(None, [chosen.note]), *_size_warnings(sources, decoded, chosen), *_mask_warnings(photos, masks))
    return TrainingImages(kept, held_out, frame, warnings, _as_loaded(chosen, decoded))


def _decode_all(sources: Sequence[PhotoSource], workers: int | Literal["auto"]) -> list[Decoded]:
    """Decode photographs in threads: Pillow and SciPy release the GIL."""
    count = min(16, num_cores()) if workers == "auto" else workers
    if count == 0:
        return [decode(source) for source in sources]
    with ThreadPoolExecutor(max_workers=count) as pool:
        return list(pool.map(decode, sources))


def with_covered(views: TrainingImages, covered: CoverageMask | None) -> TrainingImages:
    """Return views whose held-out photographs have masks of their covered pixels; None: the same views."""
    if covered is None:
        return views
    return replace(views, coverage_masks=covered, holdout=tuple(covered_in(photo, covered) for photo in views.holdout))


def why_not_covered(views: TrainingImages) -> str:
    """Return a warning if no held-out photograph has enough covered pixels, so that all valid pixels decide.

    Empty if one has enough, without held-out photographs, and if covered pixels are not determined.
    """
    if (
        not views.holdout
        or views.coverage_masks is None
        or any(photo.coverage_mask is not None for photo in views.holdout)
    ):
        return ""
    why = views.coverage_masks.why or f"less than {100 * LEAST_SHARE:.0f} % of each held-out photograph is covered"
    return f"too few covered pixels ({why}), so the PSNR of all pixels decides which splat is better"


def _size_warnings(
    sources: Sequence[PhotoSource], decoded: Sequence[Decoded], chosen: PhotographSource
) -> tuple[str, ...]:
    resized = []
    for source, one in zip(sources, decoded, strict=True):
        camera = (source.camera.width, source.camera.height)
        if any(abs(one.stored[axis] - camera[axis] / chosen.stored) >= 1 for axis in (0, 1)):
            resized.append(source.path.relative_to(chosen.folder).as_posix())
    if not resized:
        return ()
    differ = "differs in size from its" if len(resized) == 1 else "differ in size from their"
    return (f"{plural(len(resized), 'photograph')} {differ} camera, as {resized[0]}: the intrinsics were rescaled",)


def _mask_warnings(photos: Sequence[PosedImage], masks: Mapping[str, Path]) -> Iterator[str]:
    bare = [photo.name for photo in photos if photo.name not in masks]
    if masks and bare:
        yield f"{len(bare)} of {len(photos)} photographs have no mask, as {bare[0]}: all of their pixels are used"
    blind = [photo.name for photo in photos if not photo.counts()]
    if blind:
        whose = "is left out since its" if len(blind) == 1 else "are left out since their"
        yield f"{plural(len(blind), 'photograph')} {whose} mask ignores every pixel, as {blind[0]}"


def _as_loaded(chosen: PhotographSource, decoded: Sequence[Decoded]) -> dict[str, Any]:
    """Return resolution and folder of the photographs for metrics.json; empty without any."""
    if not decoded:
        return {}
    largest = max((one.camera.width, one.camera.height) for one in decoded)
    name = next(name for name, divisor in DIVISORS.items() if divisor == chosen.divisor)
    return {"used": name, "folder": chosen.folder.name, "shrunk_by": chosen.shrink, "largest": list(largest)}


def prefetch(photos: Iterator[PosedImage], device: torch.device) -> Iterator[PosedImage]:
    """Yield photographs with pixels and masks on `device`; the next is uploaded while a step uses the present one.

    Uploads run on a CUDA stream of their own, for which the current stream waits, not the host. `photos` must not be
    empty, and must be endless if they are uploaded.
    """
    first = next(photos)
    if device.type == first.pixels.device.type:
        yield first
        yield from photos
        return
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    following = _upload(first, device, stream)
    while True:
        (photo, is_there), following = following, _upload(next(photos), device, stream)
        now = torch.cuda.current_stream()
        now.wait_event(is_there)
        for tensor in (photo.pixels, photo.mask):
            if tensor is not None:
                tensor.record_stream(now)  # its memory is not reused by the next upload before this step has read it
        yield photo


def _upload(photo: PosedImage, device: torch.device, stream: torch.cuda.Stream) -> tuple[PosedImage, torch.cuda.Event]:
    with torch.cuda.stream(stream):
        pixels = photo.pixels.to(device, non_blocking=True)
        mask = None if photo.mask is None else photo.mask.to(device, non_blocking=True)
        is_there = stream.record_event()
    return replace(photo, pixels=pixels, mask=mask), is_there


@torch.no_grad()
def boundary_mask(views: TrainingImages) -> TrainingImages:
    """Return views in which the pixels that show the scene outside the patch's reach are masked, by rendering.

    Held-out photographs are masked too, since their view of the backdrop says nothing of the patch. Photographs without
    a valid pixel are left out, and so is the part of the backdrop within reach. Without a backdrop `views` are
    returned.

    Raises:
        SceneError: no photograph shows the patch.
        TrainerError: there are no kernels for the GPU.
        KeyError: the part of the backdrop within reach has been left out already.
    """
    behind, inside = views.border.backdrop, views.border.backdrop_inside
    if not behind:
        return views
    whole = {name: torch.cat((inside[name], value)) for name, value in behind.items()}
    is_outside = torch.arange(len(whole["means"]), device=whole["means"].device) >= len(inside["means"])
    marked, options = whole | label_colors(is_outside), RasterOptions(sh_degree=0)
    training, holdout = (
        tuple(boundary_mask_of(photo, rasterize(marked, photo.view, options)) for photo in photos)
        for photos in (views.training, views.holdout)
    )
    training, holdout = (tuple(photo for photo in photos if photo.counts()) for photos in (training, holdout))
    if not training:
        raise SceneError("no photograph shows the patch's core and its margin: run splatbatch split again")
    return replace(views, training=training, holdout=holdout, border=replace(views.border, backdrop_inside={}))


def label_colors(is_outside: Tensor) -> dict[str, Tensor]:
    """Return harmonics of degree 0, as "sh0", that make Gaussians white where `is_outside` [N] is true, else black."""
    return {"sh0": ((is_outside.float() - 0.5) / SH_C0)[:, None, None].repeat(1, 1, 3)}


def boundary_mask_of(photo: PosedImage, marked: Rendering) -> PosedImage:
    """Return a photograph whose valid pixels are those with at most half of the rendered opacity outside the reach.

    Pixels that its own mask ignores stay ignored. `marked` is a rendering of the whole backdrop from its camera, white
    outside and black within (see `label_colors`). White is compared with the opacity, since a pixel where the backdrop
    is transparent is dark, too.
    """
    valid, is_within = photo.valid(), marked.colors[..., 0] <= MOST_OUTSIDE * marked.alphas[..., 0]
    counts = is_within if valid is None else is_within & valid
    if photo.pixels.device == counts.device:
        return replace(photo, mask=counts)
    return replace(photo, mask=counts.to(photo.pixels.device).pin_memory())


@torch.inference_mode()
def find_repeats(photos: Sequence[PosedImage]) -> HealthFinding | None:
    """Return a health finding if training photographs show the same picture, a fatal finding if all do; else None.

    None also for fewer than two photographs.
    """
    if len(photos) < 2:
        return None
    thumbnails = torch.stack([_thumbnail(photo.pixels) for photo in photos])  # [n, 3 * 16 * 16]
    same = torch.cdist(thumbnails, thumbnails, p=float("inf")) <= LARGEST_DIFFERENCE
    first = same.int().argmax(dim=1).tolist()  # for each photograph the first one that is equal to it
    repeats = [(index, like) for index, like in enumerate(first) if like != index]
    if not repeats:
        return None
    if len(repeats) == len(photos) - 1 and set(first) == {0}:
        shown_by = f"all {len(photos)} training photographs are the same picture, as {photos[0].name}"
        return HealthFinding("repeated_image", shown_by, is_fatal=True)
    index, like = repeats[0]
    pair = f"{photos[index].name} and {photos[like].name}"
    return HealthFinding(
        "repeated_images", f"{len(repeats)} of {len(photos)} training photographs repeat another, as {pair}"
    )


def _thumbnail(pixels: Tensor) -> Tensor:
    """Return the means of 16 x 16 parts of a photograph [H, W, 3], flat; large photographs are subsampled."""
    stride = max(1, min(pixels.shape[:2]) // MOST_SAMPLES_PX)
    channels = pixels[::stride, ::stride].movedim(-1, 0).contiguous().float()
    return adaptive_avg_pool2d(channels, THUMBNAIL_PX).flatten().cpu()


def covered_of(settings: TrainingSettings, model: Reconstruction | None = None) -> CoverageMask | None:
    """Return the covered pixels of a patch's held-out photographs; None without these, and for the backdrop itself.

    Args:
        settings: settings of a training, an inspection or an evaluation.
        model: reconstruction of the patch as in its files, with no offset subtracted, and with tracks; None: the model
            is read.

    Raises:
        ModelError: a file of the patch's model is missing, unreadable, truncated or garbage.
        KeyError: the border in the settings lacks a key.
    """
    if settings.is_backdrop or not settings.holdout:
        return None
    sparse, border = Path(settings.sparse), Border.from_record(settings.border)
    whole = model or read_reconstruction(sparse, tracks=True)
    # a patch with a core has all points of the scene within its reach, so the source adds none
    source = None if border else _source_of(settings)
    return coverage_mask(whole, frozenset(settings.holdout), border, rigs_of(sparse), source)


def _source_of(settings: TrainingSettings) -> Reconstruction | None:
    """Return the model a patch was cut from; None if it is not named, cannot be read, or exceeds `MOST_POINTS`."""
    folder = Path(settings.source)
    if not settings.source or folder == Path(settings.sparse):
        return None
    with contextlib.suppress(SceneError):
        if count_points(folder) <= MOST_POINTS:
            return read_reconstruction(folder, tracks=True)
    return None


def evenly_spaced(items: Sequence[T], most: int) -> tuple[T, ...]:
    """Return at most `most` items, evenly spread over all, in their order; all if they are fewer."""
    count = min(most, len(items))
    return tuple(items[place * len(items) // count] for place in range(count))
