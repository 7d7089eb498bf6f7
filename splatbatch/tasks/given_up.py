"""Patches that are given up: left alone until their settings, inputs, program or machine change.

What lies in the machine (driver, disk, a dependency), and what was lost with it, ends a run alone: each `train` tries
it once more, since nothing tells when it is mended.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from splatbatch import __version__
from splatbatch.config import Recipe
from splatbatch.failures.causes import CAUSES
from splatbatch.files import Record
from splatbatch.hashing import FileFact, file_fact, short_hash
from splatbatch.tasks.input_files import state_of
from splatbatch.tasks.task import TaskSettings

OF_MACHINE = frozenset(name for name, cause in CAUSES.items() if cause.lies_in not in {"patch", "settings"})
"""Causes outside the patch and its settings: tomorrow they may be gone."""


def key_of(setup: TaskSettings, files: Mapping[str, FileFact]) -> Record:
    """Return what must change before the patch is worth another try; setup with the changes it was trained under."""

    return {
        "settings": f"{setup.without_deadline.recipe_hash} {setup.config.retry.max_attempts}",
        "inputs": state_of(files),
        "trainer": _trainer(setup.without_deadline.recipe),
        "machine": machine(),
    }


def machine() -> str:
    """Return what computes here: "splatbatch 0.2.0, driver 580.1, NVIDIA H200 143771 MiB"."""
    from splatbatch.machine import gpu  # which loads NVML: most commands find nothing given up

    cards = sorted({f"{card.name} {card.total_mib} MiB" for card in gpu.gpus()})
    driver = [f"driver {gpu.driver_version()}"] if cards else ["no GPU"]
    return ", ".join([f"splatbatch {__version__}", *driver, *cards])


def _trainer(recipe: Recipe) -> str:
    """Return which program trains, so that a new build of it, or of a script that it runs, is another one."""
    if recipe.program is None:
        return recipe.training.trainer
    first, *others = recipe.program.command
    paths = [shutil.which(first) or first, *(word for word in others if Path(word).is_file())]
    return f"{paths[0]} {short_hash(repr([file_fact(path)[:2] for path in paths]))}"
