"""Trainings on the CPU whose splats are inspected."""

from __future__ import annotations

from pathlib import Path

from sick_bed import Bed

from splatbatch.config import Recipe
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer
from splatbatch.training.attempt import train_attempt

ROOT = Path(__file__).parents[2]
QUARRY = ROOT / "examples/quarry"


def quarry(name: str) -> Patch:
    return Patch(name, QUARRY / "patches" / name / "sparse/0", QUARRY / "images")


def trained(patch: Patch, folder: Path, steps: int, seed: int, *, resolution: str = "1/2") -> Bed:
    attempt = AttemptFolder(folder / "attempt-01")
    attempt.path.mkdir(parents=True)
    training = {"max_steps": steps, "device": "cpu", "cap_max": 6000, "seed": seed, "strategy": "mcmc"}
    known = {"training": {**training, "sh_degree": 1, "resolution": resolution}}
    open_trainer(Recipe.model_validate(known)).command(patch, attempt)
    train_attempt(attempt)
    return Bed(attempt.read_settings(), attempt.splat)
