"""Photographs of a whole scene, decoded one after the other, each in a local frame around its camera."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

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
"""Number of photographs that are decoded ahead, and of threads that decode them; 1 with `training.workers: 0`."""


@dataclass(frozen=True)
class CameraView:
    """A photograph with its camera in a local frame around that camera, and this frame."""

    photo: PosedImage
    frame: LocalFrame


class ScenePhotographs:
    """Photographs of a model less the splats' offset, decoded while `shots` yields them, a few ahead."""

    def __init__(self, model: Reconstruction, folders: PhotoFolders, training: Training, names: Iterable[str]) -> None:
        """Choose folder and resolution as a training does, for the photographs of `names` only.

        Names that the model does not have are ignored. Errors of photographs and lenses are raised by `shots`.
        """
        wanted = set(names)
        self._images = {image.name: image for image in model.images if image.name in wanted}
        self._cameras, self._workers = model.cameras, 1 if training.workers == 0 else AHEAD
        self._chosen = choose_photographs(folders.images, [*self._images.values()], model.cameras, training.resolution)
        self._masks = find_masks(folders.masks, self._images)
        load_lenses(model.cameras.values())

    @property
    def note(self) -> str:
        """Return a note for the user if folder or resolution are not the expected ones; else an empty string."""
        return self._chosen.note

    def shots(
        self, names: Iterable[str], scale: float, device: torch.device, tone_of: ToneOf = neutral
    ) -> Iterator[CameraView]:
        """Yield photographs in the order of `names`, on the device that renders; a few are decoded ahead in threads.

        Args:
            names: names of photographs, which must be among those given at the start.
            scale: unit of each photograph's local frame, in units of the model.
            device: device that renders.
            tone_of: returns the colour correction of a photograph, by its name; by default none.

        Raises:
            SceneError: a photograph is missing, it or its mask is unreadable, or its lens cannot be undistorted.
            KeyError: a name is not among those.
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


def usual_scale(groups: Iterable[Iterable[Image]]) -> float:
    """Return the median scale of the training frames of groups of images, each group of one patch; 1 without images.

    The scale is a unit of length, in units of the model. With this scale a camera of the whole scene has about the near
    plane with which its patch was trained. Empty groups are ignored.
    """
    scales = [frame_of(images).scale for group in groups if (images := tuple(group))]
    return float(np.median(scales)) if scales else 1.0
