"""Given-up patches: `train` does not try them again until their settings, inputs, program or machine change.

A failure by the machine (driver, disk, a dependency) gives a patch up for one run only. The next `train` tries that
patch again, since no file shows that the machine was repaired.
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
"""Names of causes outside the patch and its settings, for which a patch is given up for one run only."""


def key_of(setup: TaskSettings, files: Mapping[str, FileFact]) -> Record:
    """Return settings, inputs, trainer and machine as a record; a patch stays given up while its record is the same.

    Args:
        setup: settings under which the patch was trained; a deadline does not count.
        files: input files of the patch, by key; only their sizes and times count.
    """

    return {
        "settings": f"{setup.without_deadline.recipe_hash} {setup.config.retry.max_attempts}",
        "inputs": state_of(files),
        "trainer": _trainer(setup.without_deadline.recipe),
        "machine": machine(),
    }


def machine() -> str:
    """Return version, driver and GPUs of this machine: "splatbatch 0.2.0, driver 580.1, NVIDIA H200 143771 MiB".

    Without a GPU it is "splatbatch 0.2.0, no GPU".
    """
    from splatbatch.machine import gpu  # which loads NVML: most commands find nothing given up

    cards = sorted({f"{card.name} {card.total_mib} MiB" for card in gpu.gpus()})
    driver = [f"driver {gpu.driver_version()}"] if cards else ["no GPU"]
    return ", ".join([f"splatbatch {__version__}", *driver, *cards])


def _trainer(recipe: Recipe) -> str:
    """Return the trainer's name; of an external one its path, and a hash that changes with it or its scripts."""
    if recipe.program is None:
        return recipe.training.trainer
    first, *others = recipe.program.command
    paths = [shutil.which(first) or first, *(word for word in others if Path(word).is_file())]
    return f"{paths[0]} {short_hash(repr([file_fact(path)[:2] for path in paths]))}"
