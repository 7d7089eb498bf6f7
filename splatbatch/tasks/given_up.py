"""Patches that have failed for good: left alone until settings, inputs, trainer, version of ours or machine change.

What lies in the machine (driver, disk, a dependency), and what was lost with it, is tried once more by each `train`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from splatbatch import __version__
from splatbatch.config import Recipe
from splatbatch.failures.retry import ENVIRONMENT, POLICIES
from splatbatch.files import Record
from splatbatch.identity import FileFact, file_fact, short_hash
from splatbatch.outcome import Diagnosis
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash
from splatbatch.tasks.fingerprints.inputs import state_of

OF_PATCH_OR_SETTINGS = frozenset({"bad_config"})
"""Causes that stop a batch when two patches have them, and yet lie in the settings of a patch."""
OF_MACHINE = (
    ENVIRONMENT
    | POLICIES.keys()
    | {"shm_bus_error", "dataloader_worker_killed", "process_limit", "port_in_use", "fd_limit"}
    | {"jit_lock_stale", "corrupt_cache", "program_bug", "native_abort"}
) - OF_PATCH_OR_SETTINGS
"""Causes outside the patch and its settings: tomorrow they may be gone."""


def is_for_good(diagnosis: Diagnosis, reason: str) -> bool:
    """Return whether what a patch was given up for would happen again: it lies in the patch or in its settings.

    A mere limit on attempts proves nothing.
    """
    return diagnosis.cause not in OF_MACHINE and "retry.max_attempts" not in reason


def key_of(recipe: Recipe, files: Mapping[str, FileFact]) -> Record:
    """Return what must change before the patch is worth another try; recipe with the changes it was trained under."""
    return {
        "settings": recipe_hash(recipe),
        "inputs": state_of(files),
        "trainer": _trainer(recipe),
        "machine": machine(),
    }


def machine() -> str:
    """Return what computes here: "splatbatch 0.2.0, driver 580.1, NVIDIA H200 143771 MiB"."""
    from splatbatch.machine import gpu  # which loads NVML: most commands find nothing given up

    cards = sorted({f"{card.name} {card.total_mib} MiB" for card in gpu.gpus()})
    driver = [f"driver {gpu.driver_version()}"] if cards else ["no GPU"]
    return ", ".join([f"splatbatch {__version__}", *driver, *cards])


def _trainer(recipe: Recipe) -> str:
    """Return which program trains, so that a new build of it is another one."""
    if recipe.program is None:
        return recipe.training.trainer
    path = shutil.which(recipe.program.command[0]) or recipe.program.command[0]
    return f"{path} {short_hash(repr(file_fact(path)[:2]))}"
