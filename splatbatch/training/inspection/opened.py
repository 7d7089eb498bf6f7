"""A splat opened as its training had it: the same frame, the same photographs, the same surroundings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.sightings import read_sightings
from splatbatch.scene.frame import shifted
from splatbatch.splats import read_splat
from splatbatch.store.records.colors import tone_in
from splatbatch.store.records.metrics import TrainingSettings
from splatbatch.store.records.quality import InspectionSettings
from splatbatch.training.border.answered import answered_for
from splatbatch.training.border.surroundings import surroundings_of
from splatbatch.training.evaluation.covered import covered_of
from splatbatch.training.gaussians import from_splat
from splatbatch.training.inspection.subject import Model, Subject, subject_of
from splatbatch.training.photos.views import Folders, decode_views, with_covered


def open_subject(settings: TrainingSettings, splat: Path, device: torch.device) -> Subject:
    """Read a splat and all that it was trained from.

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
    folders = Folders(Path(settings.images), Path(settings.masks) if settings.masks else None)
    views = decode_views(model, folders, frozenset(settings.holdout), recipe.training, tone_in(settings))
    views = with_covered(views, covered_of(settings, whole))
    views = replace(views, surroundings=surroundings_of(settings, views.frame, recipe.training))
    views = answered_for(views.to(device, "host"))
    try:
        gaussians = read_splat(splat)
    except (OSError, ValueError) as error:
        raise SceneError(f"{splat}: cannot be read ({error})", "Train the patch again.") from error
    degree = math.isqrt(gaussians.shN.shape[1] + 1) - 1  # as its file has it, which another program may have written
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"sh_degree": degree})})
    own = from_splat(gaussians, views.frame, device)
    in_frame = Model.of(read_sightings(Path(settings.sparse)), views.frame, settings.offset)
    subject = subject_of(own, views, in_frame, recipe)
    return replace(subject, piece=frozenset(told.piece), is_sampled=most < num)
