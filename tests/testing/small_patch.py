"""A made-up patch that the real trainer trains on the CPU in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from splatbatch.config import Recipe
from splatbatch.outcome import Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer
from splatbatch.training.attempt import train_attempt

STEPS = 60


def recipe(**training: Any) -> Recipe:
    return Recipe.model_validate({"training": {"max_steps": STEPS, "device": "cpu", "cap_max": 150, **training}})


def paint(images: Path) -> None:
    """Paint what the nine cameras of the made-up scene see: a wavy plane at z = 3."""
    u, v = np.meshgrid(np.arange(32) + 0.5, np.arange(24) + 0.5)
    for index in range(9):
        x, y = (u - 16) / 30 * 3 + 0.1 * index, (v - 12) / 30 * 3
        waves = [np.sin(2 * x), np.cos(2 * y), np.sin(x + y)]
        Pillow.fromarray((127.5 + 100 * np.stack(waves, -1)).astype(np.uint8)).save(images / f"img{index}.png")


def prepared(patch: Patch, settings: Recipe, name: str = "attempt-01") -> AttemptFolder:
    folder = AttemptFolder(patch.images.parent / name)
    folder.path.mkdir()
    open_trainer(settings).command(patch, folder)
    return folder


def trained(patch: Patch, settings: Recipe, name: str = "attempt-01") -> tuple[AttemptFolder, Splat]:
    folder = prepared(patch, settings, name)
    train_attempt(folder)
    splat = open_trainer(settings).collect(folder)
    assert isinstance(splat, Splat), splat
    return folder, splat
