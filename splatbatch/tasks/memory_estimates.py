"""What each task is expected to need, and whether the GPUs of this machine have it: said before anything starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from splatbatch.config import Config
from splatbatch.errors import SceneError
from splatbatch.machine.gpu import Gpu, gpus
from splatbatch.output.events import Notice, PatchEstimate
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.scene.memory_estimate import (
    MemoryEstimate,
    PatchSize,
    estimate,
    expected_gaussians,
    measure,
    thinned,
    why_tight,
)
from splatbatch.scene.patches import Patch
from splatbatch.tasks.task import Task

Measure = Callable[[Patch], PatchSize]
"""Returns the extent of a patch; raises a SceneError where its model cannot be read."""


def footprints_of(config: Config, tasks: Iterable[Task], measure: Measure = measure) -> dict[str, MemoryEstimate]:
    """Return the footprint of every task, on the smallest GPU of the batch, else on the CPU.

    None is known of patches whose model cannot be read, or that an external trainer trains.
    """
    card_mib = smallest_mib(cards(config))
    is_cpu = config.training.device == "auto" and not cards(config)
    found, extents, tasks = {}, dict[Path, PatchSize](), tuple(tasks)
    num_behind = _num_behind(tasks, measure)
    for task in tasks:
        recipe, sparse = task.requested_settings.recipe, task.patch.sparse
        if recipe.program is not None:  # nobody knows what an external trainer needs
            continue
        with contextlib.suppress(SceneError):  # the audit names what is wrong with the model
            if sparse not in extents:  # variants of a sweep share it
                extents[sparse] = measure(task.patch)
            extent = _as_trained(task, extents[sparse], num_behind)
            recipe = recipe.settled(extents[sparse].num_points)
            found[task.name] = estimate(recipe.on("cpu") if is_cpu else recipe, extent, card_mib)
    return found


def _num_behind(tasks: Sequence[Task], measure: Measure) -> int:
    """Return how many Gaussians lie behind patches, or will at most: those of the whole scene; 0 without any."""
    for task in tasks:
        if task.patch.is_whole:
            with contextlib.suppress(SceneError):
                recipe, whole = task.requested_settings.recipe, measure(task.patch)
                cap = recipe.training.cap(whole.num_points)
                return expected_gaussians(recipe.settled(whole.num_points), thinned(whole, cap).num_points)
    folder = next((task.patch.behind for task in tasks if task.patch.behind), None)
    result = PatchFolder(folder).read_result() if folder else None
    return (result.num_gaussians if result else 0) or 0


def _as_trained(task: Task, extent: PatchSize, num_behind: int) -> PatchSize:
    """Return the extent of what a task trains: a whole scene is thinned, and drawn behind the patches with a core."""
    if task.patch.is_whole:
        return thinned(extent, task.requested_settings.recipe.training.cap(extent.num_points))
    return replace(extent, num_behind=num_behind) if task.patch.behind else extent


def tight(found: Mapping[str, MemoryEstimate], config: Config) -> dict[str, str]:
    """Return the patches that may not fit the smallest GPU of the batch, with the reason for each."""
    card_mib = smallest_mib(cards(config))
    reasons = {name: why_tight(footprint, card_mib) for name, footprint in found.items()} if card_mib else {}
    return {name: reason for name, reason in reasons.items() if reason}


def record(found: Mapping[str, MemoryEstimate], config: Config, ledger: Ledger) -> None:
    """Write the footprints down, and which of them are tight."""
    reasons = tight(found, config)
    for name, footprint in found.items():
        ledger.write(PatchEstimate(name, **vars(footprint)))
        if name in reasons:
            ledger.write(Notice("tight", reasons[name], name))


def cards(config: Config) -> tuple[Gpu, ...]:
    """Return the GPUs that the batch may use."""
    wanted = config.executor.gpus
    if config.training.device == "cpu":
        return ()
    return tuple(card for card in gpus() if wanted == "auto" or card.index in wanted)


def num_slots(config: Config) -> int:
    """Return how many patches will be trained at once: `auto` packing counts as one, for it may come to no more."""
    executor, num_gpus = config.executor, len(cards(config))
    at_once = 1 if executor.patches_per_gpu == "auto" else executor.patches_per_gpu
    return num_gpus * at_once or executor.cpu_slots


def smallest_mib(among: Iterable[Gpu]) -> int | None:
    """Return the memory of the smallest GPU; None without one, or where NVML does not say."""
    return min((card.total_mib for card in among if card.total_mib), default=None)
