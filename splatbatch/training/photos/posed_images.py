"""Photographs and cameras of a patch as tensors: decoded once, kept as uint8 where they are used."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from splatbatch.config import Training
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.colors.correction import ColorCorrection, ToneOf, neutral
from splatbatch.scene.coverage_mask import LEAST_SHARE, CoverageMask
from splatbatch.scene.photos.folders import DIVISORS, PhotographSource, choose_photographs, find_masks
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.text import plural
from splatbatch.training.border.patch_border import NONE, PatchBorder
from splatbatch.training.frame import LocalFrame, frame_of
from splatbatch.training.photos.color_correction import alike, in_tone, normalise, to_compare, tone_of
from splatbatch.training.photos.decode import Decoded, PhotoSource, decode
from splatbatch.training.rendering.view import RenderCamera


@dataclass(frozen=True)
class PhotoFolders:
    """Where the photographs of a patch lie, and their masks."""

    images: Path
    masks: Path | None = None


@dataclass(frozen=True)
class PosedImage:
    """A photograph and the camera that took it."""

    name: str
    view: RenderCamera
    pixels: Tensor  # [H, W, 3] uint8, where it fits
    mask: Tensor | None = None  # [H, W] bool, true where a pixel counts; lies beside the pixels; None: everywhere
    correction: Tensor | None = None  # as `photos.tones` makes it, on the device that renders; None: neutral
    coverage_mask: Tensor | None = None  # [H, W] bool, see `scene.coverage_mask`, of held-out ones, beside the pixels
    covered_share: float | None = None  # of the pixels that its own mask leaves; None: nobody has looked

    def target(self) -> Tensor:
        """Return the pixels on the device that renders; from pinned memory the upload does not wait."""
        return self.pixels.to(self.view.viewmat.device, non_blocking=True)

    def valid(self) -> Tensor | None:
        """Return the mask on the device that renders."""
        return None if self.mask is None else self.mask.to(self.view.viewmat.device, non_blocking=True)

    def covered_pixels(self) -> Tensor | None:
        """Return which pixels [H, W] are covered, on the device that renders; None: too few to judge by."""
        return (
            None if self.coverage_mask is None else self.coverage_mask.to(self.view.viewmat.device, non_blocking=True)
        )

    def as_taken(self, colors: Tensor) -> Tensor:
        """Return a rendering [H, W, 3] as the photograph would show it, not clamped."""
        return in_tone(colors, self.correction, self.view)

    def normalised(self) -> Tensor:
        """Return the photograph [H, W, 3] in the colours of the scene, which may exceed 1."""
        pixels = self.target()
        return pixels / 255 if self.correction is None else normalise(pixels, self.correction, self.view)

    def to_compare(self, colors: Tensor) -> tuple[Tensor, Tensor]:
        """Return a rendering and the photograph, [H, W, 3], for the loss: evened, or the bytes as they are."""
        pixels = self.target()
        return (colors, pixels) if self.correction is None else to_compare(colors, pixels, self.correction, self.view)

    def counts(self) -> bool:
        """Return whether any pixel counts."""
        return self.mask is None or bool(self.mask.any())


@dataclass(frozen=True)
class TrainingImages:
    """All photographs of a patch, in the frame they are trained in."""

    training: tuple[PosedImage, ...]
    holdout: tuple[PosedImage, ...]
    frame: LocalFrame
    warnings: tuple[str, ...]
    loaded: Mapping[str, Any]
    """At which resolution, and from which folder."""
    surroundings: PatchBorder = NONE
    """What bounds the patch, and what is drawn behind it."""
    content: Mapping[int, float] | None = None
    """What `coarse.content_of` finds; None: nobody has looked."""
    coverage_masks: CoverageMask | None = None
    """Of the held-out photographs; None: nobody has looked."""

    @property
    def are_evened(self) -> bool:
        """Return whether any photograph has a tone: the splat is that of the evened scene then."""
        return any(photo.correction is not None for photo in (*self.training, *self.holdout))

    def to(self, device: torch.device, wanted: Literal["gpu", "host"]) -> TrainingImages:
        """Return the views for a device: cameras on it, photographs there or in host memory."""
        home = device if wanted == "gpu" else torch.device("cpu")
        training, holdout = (
            tuple(settled(photo, home, device) for photo in photos) for photos in (self.training, self.holdout)
        )
        return replace(self, training=training, holdout=holdout, surroundings=self.surroundings.to(device))


def decode_views(
    model: Reconstruction,
    folders: PhotoFolders,
    holdout: frozenset[str],
    training: Training,
    tone_of_photo: ToneOf = neutral,
) -> TrainingImages:
    """Decode every photograph of a reconstruction at the resolution that is trained, in host memory.

    Nothing here touches CUDA: a process may do it while another one still has the GPU.

    Raises:
        SceneError: a photograph is missing or unreadable, a lens cannot be undistorted, or no photograph is left.
    """
    chosen = choose_photographs(folders.images, model.images, model.cameras, training.resolution)
    masks = find_masks(folders.masks, (image.name for image in model.images))
    sources = _sources(model.images, model.cameras, chosen, masks)
    decoded, frame = _decode_all(sources, training.workers), frame_of(model.images)
    photos = _photos(model.images, decoded, frame, tone_of_photo)
    photos = [
        replace(photo, correction=tone)
        for photo, tone in zip(photos, alike(one.correction for one in photos), strict=True)
    ]
    kept = tuple(photo for photo in photos if photo.name not in holdout and photo.counts())
    if not kept:
        raise SceneError(f"{model.folder}: no training cameras: 0 of {len(photos)} photographs are left")
    held_out = tuple(photo for photo in photos if photo.name in holdout and photo.counts())
    warnings = (*filter(None, [chosen.note]), *_size_warnings(sources, decoded, chosen), *_mask_warnings(photos, masks))
    return TrainingImages(kept, held_out, frame, warnings, _as_loaded(chosen, decoded))


def decode_held_out(
    model: Reconstruction,
    folders: PhotoFolders,
    holdout: frozenset[str],
    training: Training,
    tone_of_photo: ToneOf = neutral,
) -> TrainingImages:
    """Decode the held-out photographs alone, as `decode_views` does: of the others none is needed.

    Raises:
        SceneError: a photograph is missing or unreadable, or a lens cannot be undistorted.
    """
    chosen = choose_photographs(folders.images, model.images, model.cameras, training.resolution)
    images = [image for image in model.images if image.name in holdout]
    masks = find_masks(folders.masks, (image.name for image in images))
    load_lenses(model.cameras.values())
    decoded = _decode_all(_sources(images, model.cameras, chosen, masks), training.workers)
    frame = frame_of(model.images)
    photos = _photos(images, decoded, frame, tone_of_photo)
    kept = tuple(photo for photo in photos if photo.counts())
    return TrainingImages(
        (), kept, frame, tuple(filter(None, [chosen.note])), _as_loaded(chosen, decoded) if decoded else {}
    )


def _sources(
    images: Sequence[Image], cameras: Mapping[int, Camera], chosen: PhotographSource, masks: Mapping[str, Path]
) -> list[PhotoSource]:
    return [
        PhotoSource(chosen.folder / image.name, cameras[image.camera_id], chosen.shrink, masks.get(image.name))
        for image in images
    ]


def _photos(
    images: Sequence[Image], decoded: Sequence[Decoded], frame: LocalFrame, tone_of_photo: ToneOf
) -> list[PosedImage]:
    return [photo_in(image, one, frame, tone_of_photo(image.name)) for image, one in zip(images, decoded, strict=True)]


def _decode_all(sources: Sequence[PhotoSource], workers: int | Literal["auto"]) -> list[Decoded]:
    """Decode photographs, in threads: Pillow and SciPy let go of Python's lock while they work."""
    count = min(16, os.cpu_count() or 1) if workers == "auto" else workers
    if count == 0:
        return [decode(source) for source in sources]
    with ThreadPoolExecutor(max_workers=count) as pool:
        return list(pool.map(decode, sources))


def photo_in(image: Image, decoded: Decoded, frame: LocalFrame, tone: ColorCorrection) -> PosedImage:
    """Return a photograph with its pinhole camera in the frame that is trained."""
    viewmat, camera = frame.viewmat(image.world_to_camera()), decoded.camera
    matrices = torch.tensor(viewmat, dtype=torch.float32), torch.tensor(camera.K, dtype=torch.float32)
    mask = None if decoded.mask is None or decoded.mask.all() else torch.from_numpy(decoded.mask)
    view, pixels = RenderCamera(*matrices, camera.width, camera.height), torch.from_numpy(decoded.pixels)
    return PosedImage(image.name, view, pixels, mask, tone_of(tone, decoded))


def with_covered(views: TrainingImages, covered: CoverageMask | None) -> TrainingImages:
    """Return views whose held-out photographs know which of their pixels are covered; None: nobody has looked."""
    if covered is None:
        return views
    return replace(views, coverage_masks=covered, holdout=tuple(covered_in(photo, covered) for photo in views.holdout))


def why_not_covered(views: TrainingImages) -> str:
    """Say why all pixels of the held-out photographs decide, and not those that others see; empty if these do."""
    if (
        not views.holdout
        or views.coverage_masks is None
        or any(photo.coverage_mask is not None for photo in views.holdout)
    ):
        return ""
    why = views.coverage_masks.why or f"of each held-out photograph less than {100 * LEAST_SHARE:.0f} % is"
    return f"no pixel to judge by is covered: {why}: the PSNR of all pixels decides"


def covered_in(photo: PosedImage, covered: CoverageMask) -> PosedImage:
    """Return a photograph that knows which of its pixels are covered."""
    found = covered.of(photo.name, photo.view.width, photo.view.height)
    if found is None:
        return replace(photo, covered_share=0.0)
    pixels = torch.from_numpy(found).to(photo.pixels.device)
    num = pixels.numel()
    if photo.mask is not None:
        pixels, num = pixels & photo.mask, int(photo.mask.sum())
    share = float(pixels.sum()) / max(1, num)
    return replace(photo, coverage_mask=pixels if share >= LEAST_SHARE else None, covered_share=share)


def settled(photo: PosedImage, home: torch.device, device: torch.device) -> PosedImage:
    """Return a photograph with its camera on `device` and its pixels at home; pinned in host memory to upload fast."""
    view = replace(photo.view, viewmat=photo.view.viewmat.to(device), K=photo.view.K.to(device))

    def settle(tensor: Tensor) -> Tensor:
        if home.type == "cuda":
            return tensor.to(home, non_blocking=True)
        return tensor.pin_memory() if device.type == "cuda" else tensor

    mask, covered = (None if one is None else settle(one) for one in (photo.mask, photo.coverage_mask))
    tone = None if photo.correction is None else photo.correction.to(device)
    return replace(photo, view=view, pixels=settle(photo.pixels), mask=mask, correction=tone, coverage_mask=covered)


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
    return (f"{plural(len(resized), 'photograph')} {differ} camera, as {resized[0]}: K was rescaled",)


def _mask_warnings(photos: Sequence[PosedImage], masks: Mapping[str, Path]) -> Iterator[str]:
    bare = [photo.name for photo in photos if photo.name not in masks]
    if masks and bare:
        yield f"{len(bare)} of {len(photos)} photographs have no mask, as {bare[0]}: all of their pixels count"
    blind = [photo.name for photo in photos if not photo.counts()]
    if blind:
        whose = "is left out since its" if len(blind) == 1 else "are left out since their"
        yield f"{plural(len(blind), 'photograph')} {whose} mask ignores every pixel, as {blind[0]}"


def _as_loaded(chosen: PhotographSource, decoded: Sequence[Decoded]) -> dict[str, Any]:
    """Return, for metrics.json, at which resolution photographs are trained and where they came from."""
    largest = max((one.camera.width, one.camera.height) for one in decoded)
    name = next(name for name, divisor in DIVISORS.items() if divisor == chosen.divisor)
    return {"used": name, "folder": chosen.folder.name, "shrunk_by": chosen.shrink, "largest": list(largest)}


def prefetch(photos: Iterator[PosedImage], device: torch.device) -> Iterator[PosedImage]:
    """Yield photographs with their pixels and masks on `device`, one upload ahead; nothing waits for the host."""
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
                tensor.record_stream(now)  # its memory is not given to the next upload before this step has read it
        yield photo


def _upload(photo: PosedImage, device: torch.device, stream: torch.cuda.Stream) -> tuple[PosedImage, torch.cuda.Event]:
    with torch.cuda.stream(stream):
        pixels = photo.pixels.to(device, non_blocking=True)
        mask = None if photo.mask is None else photo.mask.to(device, non_blocking=True)
        is_there = stream.record_event()
    return dataclasses.replace(photo, pixels=pixels, mask=mask), is_there
