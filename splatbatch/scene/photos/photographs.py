"""From which folder, and how much smaller, the photographs of a patch are loaded; from names and headers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.photos.folders import is_folder
from splatbatch.scene.photos.header_cache import Headers
from splatbatch.scene.photos.photo import Photo
from splatbatch.scene.photos.resolution import DIVISORS, divisor_of
from splatbatch.scene.photos.sizes import Size, spell


@dataclass(frozen=True)
class Photographs:
    """Where they are loaded from, and what is done to them."""

    folder: Path
    stored: int
    """By how much the sides of the stored files are divided already: 4 for images_4."""
    shrink: int
    """By how much more they are divided while loading."""
    note: str = ""
    """Why not as one would expect; empty if as expected."""

    @property
    def divisor(self) -> int:
        """By how much smaller than their cameras the photographs are when they are trained."""
        return self.stored * self.shrink


def choose_photographs(
    folder: Path, images: Sequence[Image], cameras: Mapping[int, Camera], resolution: str
) -> Photographs:
    """Return how to load the photographs in `folder` at a resolution of the config.

    images_2, images_4 or images_8 beside it is used if it holds every photograph at the size that its name says. If
    not, the originals are shrunk while loading; if they are not there at all, the nearest whole folder does.
    """
    used = {image.name: (cameras[image.camera_id].width, cameras[image.camera_id].height) for image in images}
    divisor = divisor_of(resolution, used.values())
    copies = _beside(folder, divisor)
    problem = _problem(copies, used, divisor) if divisor > 1 and is_folder(copies) else ""
    if divisor > 1 and is_folder(copies) and not problem:
        return Photographs(copies, divisor, 1)
    note = f"{copies.name} was not used ({problem}): photographs were shrunk while loading" if problem else ""
    wanted = Photographs(folder, 1, divisor, note)
    return wanted if is_folder(folder) else _nearest(wanted, used)


def _nearest(wanted: Photographs, used: Mapping[str, Size]) -> Photographs:
    """Return the largest whole copies that can be shrunk to what is wanted, else the smallest there are."""
    whole = [
        each
        for each in list(DIVISORS.values())[1:]
        if is_folder(_beside(wanted.folder, each)) and not _problem(_beside(wanted.folder, each), used, each)
    ]
    if not whole:
        return wanted  # loading says which photograph is missing
    stored = next((each for each in whole if wanted.divisor % each == 0), whole[0])
    copies = _beside(wanted.folder, stored)
    note = f"there is no {wanted.folder.name}: {copies.name} was used instead"
    return replace(wanted, folder=copies, stored=stored, shrink=max(1, wanted.divisor // stored), note=note)


def _problem(folder: Path, used: Mapping[str, Size], divisor: int) -> str:
    """Say why a folder does not hold every photograph at 1 / divisor of its camera's size; empty if it does."""
    headers = Headers()
    headers.read(str(folder / name) for name in used)
    unusable, wrong = [], []
    for name, camera in used.items():
        header = headers.of(str(folder / name))
        if not isinstance(header, Photo):
            unusable.append(f"{name}: {header.what}")
        elif any(abs(header.size[axis] - camera[axis] / divisor) >= 1 for axis in (0, 1)):
            wrong.append(f"{name} is {spell(header.size)}, its camera {spell(camera)}")
    if unusable:
        return f"{len(unusable)} of {len(used)} photographs cannot be read there, as {unusable[0]}"
    return f"{len(wrong)} of {len(used)} photographs have another size, as {wrong[0]}" if wrong else ""


def _beside(folder: Path, divisor: int) -> Path:
    return folder.with_name(f"{folder.name}_{divisor}")
