"""Cost of the photographs that figures name as harmful: two short trainings, one with and one without them."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.output.records.quality import Inspection, LeaveOutResult
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.text import plural
from splatbatch.training.attempt import train_attempt

MOST_STEPS = 1000
LEAST_LEFT = 3
"""Least number of training photographs that must be left without the named ones."""
NAMING = ("blurred", "exposure", "misregistered")


def named(found: Inspection) -> tuple[str, ...]:
    """Return the photographs that the figures of `NAMING` name as harmful, sorted by name."""
    return tuple(sorted({name for one in found.figures if one.name in NAMING for name in one.subjects}))


def dropped(
    settings: TrainingSettings, names: tuple[str, ...], folder: Path, tell: Callable[[str], None] = lambda _: None
) -> LeaveOutResult:
    """Train twice for a few steps, with and without the named photographs, and compare the PSNR on held-out ones.

    Both are measured on the same held-out photographs, none of them named. The folder is removed at the end. The result
    says why if no comparison is possible.

    Raises:
        SplatbatchError: a training cannot be prepared, or has a fatal finding of the health rules.
    """
    trained = {image.name for image in read_images(Path(settings.sparse))} - set(settings.holdout)
    measured = set(settings.holdout) - set(names)
    if why := _why_not(trained & set(names), trained - set(names), measured):
        return LeaveOutResult(names, why=why)
    recipe = _short(settings.recipe)
    psnrs = []
    for kind, held_out in (("with", settings.holdout), ("without", (*settings.holdout, *names))):
        tell(f"{kind} named photographs")
        attempt = AttemptFolder(folder / kind / "attempt-01")
        attempt.path.mkdir(parents=True)
        told = replace(_of_training(settings), recipe=recipe, holdout=tuple(sorted(set(held_out))), resume=None)
        write_json(attempt.settings, told.to_record())
        train_attempt(attempt)
        psnrs.append(_mean_psnr(attempt, measured))
    shutil.rmtree(folder, ignore_errors=True)
    return LeaveOutResult(names, recipe["training"]["max_steps"], psnrs[0], psnrs[1])


def _why_not(hurting: set[str], left: set[str], measured: set[str]) -> str:
    if not hurting:
        return "no photograph that was trained on is named"
    if len(left) < LEAST_LEFT or not measured:
        return f"only {plural(len(left), 'photograph')} would be left to train on, and {len(measured)} to measure on"
    return ""


def _short(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe of at most `MOST_STEPS` steps, evaluated only at its end."""
    training = {**recipe["training"], "max_steps": min(recipe["training"]["max_steps"], MOST_STEPS)}
    evaluation = {**recipe["evaluation"], "steps": [], "every": 0, "stop_after": 0, "tensorboard": False}
    return {**recipe, "training": training, "evaluation": evaluation}


def _of_training(settings: TrainingSettings) -> TrainingSettings:
    """Return the settings of a training, without those that only an inspection has."""
    return TrainingSettings(**{one.name: getattr(settings, one.name) for one in fields(TrainingSettings)})


def _mean_psnr(attempt: AttemptFolder, measured: set[str]) -> float | None:
    metrics = attempt.read_metrics()
    found = {name: one.psnr for name, one in metrics.photos().items()} if metrics else {}
    known = [psnr for name, psnr in found.items() if name in measured and psnr is not None]
    return statistics.fmean(known) if known else None
