"""Photographs of the whole scene, one after the other, each with its camera standing at the origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from splatbatch.config import Training
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.colors.correction import ColorCorrection, ToneOf, neutral
from splatbatch.scene.photos.folders import choose_photographs, find_masks
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.training.frame import LocalFrame, camera_frame, frame_of
from splatbatch.training.photos.dataset import PhotoFolders
from splatbatch.training.photos.decode import PhotoSource, decode
from splatbatch.training.photos.posed_image import PosedImage, photo_in, settled

AHEAD = 4
"""Photographs decoded before their turn."""


@dataclass(frozen=True)
class CameraView:
    """A photograph and its camera in a frame around it."""

    photo: PosedImage
    frame: LocalFrame


class ScenePhotographs:
    """The photographs of a model that has the splat's offset taken off, decoded when they are asked for."""

    def __init__(self, model: Reconstruction, folders: PhotoFolders, training: Training, names: Iterable[str]) -> None:
        """Choose their resolution as a training does, by those that are named alone."""
        wanted = set(names)
        self._images = {image.name: image for image in model.images if image.name in wanted}
        self._cameras, self._workers = model.cameras, 1 if training.workers == 0 else AHEAD
        self._chosen = choose_photographs(folders.images, [*self._images.values()], model.cameras, training.resolution)
        self._masks = find_masks(folders.masks, self._images)
        load_lenses(model.cameras.values())

    @property
    def note(self) -> str:
        """Why they are not loaded as one would expect; empty if they are."""
        return self._chosen.note

    def shots(
        self, names: Iterable[str], scale: float, device: torch.device, tone_of: ToneOf = neutral
    ) -> Iterator[CameraView]:
        """Yield photographs in this order, on the device that renders; some are decoded ahead.

        Raises:
            SceneError: one is missing or unreadable, or its lens cannot be undistorted.
        """
        with ThreadPoolExecutor(max_workers=self._workers) as pool:
            waiting: list[Future[CameraView]] = []
            todo = iter(names)
            try:
                while True:
                    with suppress(StopIteration):
                        while len(waiting) <= self._workers:
                            name = next(todo)
                            waiting.append(pool.submit(self._shot, name, scale, tone_of(name)))
                    if not waiting:
                        return
                    shot = waiting.pop(0).result()
                    yield CameraView(settled(shot.photo, device, device), shot.frame)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _shot(self, name: str, scale: float, tone: ColorCorrection) -> CameraView:
        image, chosen = self._images[name], self._chosen
        camera = self._cameras[image.camera_id]
        decoded = decode(PhotoSource(chosen.folder / name, camera, chosen.shrink, self._masks.get(name)))
        frame = camera_frame(image.center(), scale)
        return CameraView(photo_in(image, decoded, frame, tone), frame)

    def has(self, name: str) -> bool:
        """Return whether a photograph is among them."""
        return name in self._images

    def file(self, name: str) -> Path:
        """Return where a photograph is loaded from."""
        return self._chosen.folder / name


def usual_scale(groups: Iterable[Iterable[Image]]) -> float:
    """Return the scale of the frames of the patches that groups of images make, in the median.

    A camera of the whole scene has the near plane that its patch was trained with.
    """
    scales = [frame_of(images).scale for group in groups if (images := tuple(group))]
    return float(np.median(scales)) if scales else 1.0
