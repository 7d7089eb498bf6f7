"""The cheap checks of `doctor`, run by `train` before the first patch: problems raise, warnings are returned."""

from __future__ import annotations

from collections.abc import Mapping

from splatbatch.config import Config, Recipe
from splatbatch.doctor import inventory
from splatbatch.doctor.checks import OF_TRAINER, CheckResult, extras, of_job, of_machine
from splatbatch.errors import ExecutorError, TrainerError
from splatbatch.scene.memory_estimate import MemoryEstimate

WAITED_FOR = ("disk", "shared memory")
"""Names of checks whose problems do not stop the batch: it waits for free space instead."""


def preflight(
    config: Config, recipes: Mapping[str, Recipe], footprints: Mapping[str, MemoryEstimate]
) -> list[CheckResult]:
    """Return the warnings about this machine and batch, as of a missing extra; empty: there are none.

    Problems of disk space and shared memory are left out, since the batch waits for space.

    Args:
        config: the YAML.
        recipes: recipe of each patch, by name.
        footprints: memory estimates by patch; patches without an estimate are left out.

    Raises:
        TrainerError, ExecutorError: another check found a problem that prevents training here, or the first
            GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    job = inventory.job(config, recipes, footprints)
    found = [*of_job(job), *of_machine(inventory.machine(), job), *lacking_extras(config)]
    for finding in found:
        if finding.state == "problem" and finding.check not in WAITED_FOR:
            error = TrainerError if finding.exit_code == OF_TRAINER else ExecutorError
            raise error(f"{finding.check}: {finding.message}", finding.remedy)
    return [finding for finding in found if finding.state == "warning"]


def lacking_extras(config: Config) -> list[CheckResult]:
    """Return a warning for each package of an optional extra that the YAML needs and this machine lacks."""
    wanted = inventory.wanted_extras(config)
    return [one for one in extras(inventory.versions(wanted), wanted) if one.state == "warning"]
