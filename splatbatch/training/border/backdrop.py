"""The backdrop of a patch: the splat of the whole scene, read without what the patch itself explains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor
from torch.nn.functional import pad

from splatbatch.config import Offset, Training
from splatbatch.errors import TrainerError
from splatbatch.identity import sha256_of
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.footprint import every
from splatbatch.scene.partition.border import Border
from splatbatch.splats import read_header, read_splat
from splatbatch.store.records.metrics import TrainingSettings
from splatbatch.training.border.cover import split_up
from splatbatch.training.border.surroundings import NONE, Bounds, Surroundings
from splatbatch.training.gaussians import chosen, values_of
from splatbatch.training.photos.frame import Frame


def surroundings_of(settings: TrainingSettings, frame: Frame, training: Training) -> Surroundings:
    """Return what lies around a patch, in host memory; nothing without a backdrop: it then trains as others do.

    Auxiliary Gaussians instead, trained outside the reach and cropped away, shine into the core: 4 dB were lost with
    them (the quarry cut in 2, 600 steps on the CPU: 22.1 dB; 26.0 without any border).

    Against the backdrop without a border, to compare with, a patch may have Gaussians anywhere.

    Raises:
        TrainerError: the backdrop is not the one that the patch is to be trained against.
    """
    border = Border.from_record(settings.border)
    is_alone = not settings.backdrop and training.draws_backdrop
    if border is None or is_alone or training.border == "none":
        return NONE  # nothing but its own Gaussians would explain what lies outside
    bounds = Bounds.of(border, frame, settings.offset)
    if not training.draws_backdrop:
        return Surroundings(bounds)
    values = _read(settings, frame, training.sh_degree)
    if not training.keeps_to_core:
        inside = bounds.holds(values["means"])
        return Surroundings(None, chosen(values, ~inside), chosen(values, inside))
    # what reaches over the border would shine into the core; what the crop takes away may not be drawn behind
    pieces = split_up(values, bounds)
    inside, was_inside = bounds.holds(pieces.values["means"]), bounds.holds(values["means"])[pieces.origin]
    behind, within, cover = (
        chosen(pieces.values, which) for which in (~inside & ~was_inside, inside, inside & pieces.is_part)
    )
    return Surroundings(bounds, behind, within, cover)


def _read(settings: TrainingSettings, frame: Frame, sh_degree: int) -> dict[str, Tensor]:
    path = Path(settings.backdrop)
    if sha256_of(path) != settings.backdrop_sha256:
        raise TrainerError(f"{path}: the backdrop is missing or has changed since the patch was started")
    try:
        offset: Offset = read_header(path).offset
        values = values_of(read_splat(path), frame)
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: the backdrop cannot be read ({error})") from error
    if offset != settings.offset:
        raise TrainerError(f"{path}: the backdrop lies in another frame: offset {offset}, not {settings.offset}")
    num = (sh_degree + 1) ** 2 - 1
    values["shN"] = pad(values["shN"][:, :num], (0, 0, 0, max(0, num - values["shN"].shape[1])))
    return values


def thinned(model: Reconstruction, most_points: int) -> Reconstruction:
    """Return a whole scene as its backdrop is trained from it: at most so many points, and photographs of all of it."""
    points, images = model.points, model.images
    rows = slice(None, None, max(1, -(-len(points) // most_points)))
    kept = {name: value[rows] for name, value in vars(points).items() if name != "tracks"}
    return replace(model, points=replace(points, **kept, tracks=None), images=images[:: every(len(images))])
