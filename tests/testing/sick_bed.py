"""A trained patch that can be made ill: in its splat, its model or its photographs; and is inspected then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sick_splats as sick
import torch
from PIL import Image as Pillow
from PIL import ImageFilter

from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.output.records.quality import Inspection, InspectionSettings
from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import read_sightings
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import Image
from splatbatch.splats import read_splat, write_splat
from splatbatch.splats.ply import Gaussians
from splatbatch.training.inspection.inspect import inspect
from splatbatch.training.inspection.subject import InspectedSplat, open_subject


@dataclass(frozen=True)
class Bed:
    """A patch and its splat."""

    settings: TrainingSettings
    splat: Path

    def model(self) -> Reconstruction:
        return read_reconstruction(Path(self.settings.sparse))

    def subject(self, room: int | None = None) -> InspectedSplat:
        settings = InspectionSettings(**vars(self.settings), splat=str(self.splat))
        return open_subject(settings, lambda: torch.device("cpu"), room)

    def inspect(self) -> Inspection:
        return inspect(self.subject())

    def with_splat(self, gaussians: Gaussians, folder: Path) -> Bed:
        write_splat(folder / "sick.ply", gaussians, 1)
        return replace(self, splat=folder / "sick.ply")

    def with_poses(self, turn: Callable[[Image], Image], names: set[str], folder: Path) -> Bed:
        known = read_sightings(Path(self.settings.sparse))
        images = tuple(turn(image) if image.name in names else image for image in known.images)
        every = np.ones(len(images), dtype=bool), np.ones(len(known.points), dtype=bool)
        (folder / "sparse").mkdir()
        Subset(replace(known, images=images), *every).write(folder / "sparse")
        return replace(self, settings=replace(self.settings, sparse=str(folder / "sparse")))

    def with_photographs(self, change: Callable[[str, Pillow.Image], Pillow.Image | None], folder: Path) -> Bed:
        source = Path(self.settings.images)
        for image in self.model().images:
            target = folder / "images" / image.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with Pillow.open(source / image.name) as photo:
                changed = change(image.name, photo)
                if changed is None:
                    target.symlink_to(source / image.name)
                else:
                    changed.save(target, quality=95)
        return replace(self, settings=replace(self.settings, images=str(folder / "images")))

    def without(self, names: set[str], folder: Path) -> Bed:
        """Take photographs out of the model, with the points that fewer than two others see."""
        known = read_sightings(Path(self.settings.sparse))
        kept = np.array([image.name not in names for image in known.images])
        (folder / "sparse").mkdir()
        Subset(known, kept, known.seen_by(kept)).write(folder / "sparse")
        held_out = tuple(name for name in self.settings.holdout if name not in names)
        return replace(self, settings=replace(self.settings, sparse=str(folder / "sparse"), holdout=held_out))


def some(bed: Bed, num: int, seed: int) -> set[str]:
    names = [image.name for image in bed.model().images]
    return set(np.random.default_rng(seed).choice(names, num, replace=False).tolist())


def misregistered(bed: Bed, seed: int, folder: Path) -> Bed:
    """Turn three cameras aside by 1 to 3 degrees."""
    degrees = np.random.default_rng(seed).uniform(1, 3)
    return bed.with_poses(lambda image: sick.turned(image, seed + image.id, degrees), some(bed, 3, seed), folder)


def shifted(bed: Bed, seed: int, folder: Path) -> Bed:
    """Show three photographs beside where they were: their tracks still fit."""
    rng, names = np.random.default_rng(seed), some(bed, 3, seed)
    x, y = (int(sign * rng.uniform(0.03, 0.06) * 320) for sign in rng.choice([-1, 1], 2))

    def roll(name: str, photo: Pillow.Image) -> Pillow.Image | None:
        return Pillow.fromarray(np.roll(np.asarray(photo), (y, x), (0, 1))) if name in names else None

    return bed.with_photographs(roll, folder)


def blurred(bed: Bed, seed: int, folder: Path) -> Bed:
    """Blur five photographs, by 1.5 to 3 pixels."""
    radius, names = np.random.default_rng(seed).uniform(1.5, 3), some(bed, 5, seed)

    def blur(name: str, photo: Pillow.Image) -> Pillow.Image | None:
        return photo.filter(ImageFilter.GaussianBlur(radius)) if name in names else None

    return bed.with_photographs(blur, folder)


def exposed(bed: Bed, seed: int, folder: Path) -> Bed:
    """Make two photographs half as bright, or less."""
    gain, names = np.random.default_rng(seed).uniform(0.3, 0.6), some(bed, 2, seed)

    def darken(name: str, photo: Pillow.Image) -> Pillow.Image | None:
        return photo.point(lambda value: int(gain * value)) if name in names else None

    return bed.with_photographs(darken, folder)


def hole(bed: Bed, seed: int, folder: Path) -> Bed:
    """Take all photographs but one out that see a place in the middle of the scene."""
    rng, model = np.random.default_rng(seed), bed.model()
    points = model.points.xyz
    low, high = np.percentile(points, (30, 70), axis=0)
    middle = points[((points >= low) & (points <= high))[:, :2].all(axis=1)]
    seeing = [[image.name for image in model.images if _sees(image, model, place)] for place in rng.permutation(middle)]
    fewest = min(map(len, seeing[:50]))
    chosen = next(names for names in seeing if len(names) <= fewest + 1)
    return bed.without(set(chosen[1:]), folder)


def _sees(image: Image, model: Reconstruction, place: np.ndarray) -> bool:
    camera, local = model.cameras[image.camera_id], image.rotation() @ place + np.array(image.translation)
    x, y = local[:2] / local[2] * (camera.fx, camera.fy) + (camera.cx, camera.cy)
    return bool(local[2] > 0 and 0 <= x < camera.width and 0 <= y < camera.height)


OF_SPLATS = {
    "floaters": sick.floaters,
    "veil": sick.veil,
    "haze": sick.haze,
    "depth": sick.scaled_half,
    "holes": lambda splat, _, seed: sick.holed(splat, seed),
}
OF_INPUTS = {
    "misregistered": misregistered, "misregistered (shown)": shifted, "blurred": blurred, "exposure": exposed,
    "coverage": hole,
}  # fmt: skip
SICKNESSES = (*OF_SPLATS, *OF_INPUTS)


def made_ill(bed: Bed, sickness: str, seed: int, folder: Path) -> Bed:
    folder.mkdir(parents=True)
    if sickness in OF_INPUTS:
        return OF_INPUTS[sickness](bed, seed, folder)
    return bed.with_splat(OF_SPLATS[sickness](read_splat(bed.splat), bed.model(), seed), folder)


def is_found(found: Inspection, sickness: str) -> bool:
    return sickness.partition(" ")[0] in [figure.name for figure in found.found]
