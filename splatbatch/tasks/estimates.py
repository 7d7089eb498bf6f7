"""Estimates memory and duration of tasks: by patches trained before, else by a model of each task."""

from __future__ import annotations

import contextlib
import heapq
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from splatbatch.config import Config, Recipe
from splatbatch.errors import SceneError, TrainerError
from splatbatch.machine import gpu
from splatbatch.machine.slots import chosen_cards, is_on_cpu, visible_cards
from splatbatch.output.events import Notice
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.result import Result
from splatbatch.processes import available_mib, num_cores
from splatbatch.scene import memory_estimate
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
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.counts import how_many
from splatbatch.tasks.task import Task, patches_of
from splatbatch.text import clock, plural

MOST_RESULTS = 200
"""Largest number of results read to estimate the speed; more results would not improve the estimate."""


def seconds_per_step(finished: Iterable[tuple[float, int]]) -> float | None:
    """Return the median seconds per step of finished trainings, with start and evaluation; None without any.

    Args:
        finished: seconds and steps of each training; those without seconds or steps are skipped.
    """
    paces = [seconds / steps for seconds, steps in finished if steps > 0 and seconds > 0]
    return statistics.median(paces) if paces else None


def makespan_s(seconds: Iterable[float], num_slots: int, busy: Sequence[float] = ()) -> float:
    """Return when the last patch ends, in seconds from now, if each free slot takes the longest remaining patch.

    A slot is room for one attempt.

    Args:
        seconds: duration of each patch, in seconds.
        num_slots: number of slots; fewer than 1 counts as 1.
        busy: seconds until each busy slot is free; all other slots are free already.
    """
    ends = [*busy, *[0.0] * (max(1, num_slots) - len(busy))]
    heapq.heapify(ends)
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def measured(patches: Iterable[Patch]) -> dict[Path, PatchSize]:
    """Return the size of each patch, by its model's folder; patches whose model cannot be read are left out."""
    found = {}
    for patch in patches:
        with contextlib.suppress(SceneError):
            found[patch.sparse] = measure(patch)
    return found


def footprints_of(
    config: Config, tasks: Sequence[Task], extents: Mapping[Path, PatchSize] | None = None
) -> dict[str, MemoryEstimate]:
    """Return the memory estimate of every task, by name, on the smallest GPU of the batch, else on the CPU.

    Patches whose model cannot be read, or that an external trainer trains, are left out.

    Args:
        config: config of the batch.
        tasks: tasks of the batch.
        extents: sizes of the patches, by their models' folders; None: the models are read here.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote the manifest of the backdrop.
    """
    card_mib = smallest_mib(config)
    is_cpu = config.training.device == "auto" and not cards(config)
    ours = [task for task in tasks if task.requested_settings.recipe.program is None]
    extents = measured(patches_of(ours)) if extents is None else extents
    found, num_behind = {}, _num_behind(ours, extents)
    for task in ours:
        if (extent := extents.get(task.patch.sparse)) is not None:
            recipe = extent.settle(task.requested_settings.recipe)
            if task.patch.is_whole:
                extent = thinned(extent, recipe.training.cap())
            elif task.patch.behind:
                extent = replace(extent, num_behind=num_behind)
            found[task.name] = estimate(recipe.with_training({"device": "cpu"}) if is_cpu else recipe, extent, card_mib)
    return found


def _num_behind(tasks: Sequence[Task], extents: Mapping[Path, PatchSize]) -> int:
    """Return the number of Gaussians of the backdrop, or the most it will have; 0 without a backdrop."""
    for task in tasks:
        if task.patch.is_whole and (whole := extents.get(task.patch.sparse)) is not None:
            recipe = whole.settle(task.requested_settings.recipe)
            return expected_gaussians(recipe, thinned(whole, recipe.training.cap()).num_points)
    folder = next((task.patch.behind for task in tasks if task.patch.behind), None)
    result = PatchFolder(folder).read_result() if folder else None
    return (result.num_gaussians if result else 0) or 0


def tight(found: Mapping[str, MemoryEstimate], config: Config) -> dict[str, str]:
    """Return the patches that may not fit into the smallest GPU of the batch, by name, with the reason for each.

    Empty if all fit, without a GPU, or if its memory is unknown.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    card_mib = smallest_mib(config)
    reasons = {name: why_tight(footprint, card_mib) for name, footprint in found.items()} if card_mib else {}
    return {name: reason for name, reason in reasons.items() if reason}


def record(found: Mapping[str, MemoryEstimate], config: Config, ledger: Ledger) -> None:
    """Write a notice into the ledger for each memory estimate, and for each patch that may not fit into the GPU.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        OutputError: the ledger cannot be written.
    """
    reasons = tight(found, config)
    for name, footprint in found.items():
        ledger.write(Notice("expected", patch=name, facts=vars(footprint)))
        if name in reasons:
            ledger.write(Notice("tight", reasons[name], name))


def cards(config: Config) -> tuple[gpu.Gpu, ...]:
    """Return the GPUs that the batch may use; empty with `device: cpu`, or if none is found.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    wanted = config.executor.gpus
    if config.training.device == "cpu":
        return ()
    return visible_cards() if wanted == "auto" else tuple(card for card in gpu.gpus() if card.index in wanted)


def num_slots(config: Config, needs: Iterable[MemoryEstimate]) -> int:
    """Return how many patches with these memory estimates will train at once, on all GPUs, else on the CPU.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    return len(cards(config)) * seats_per_gpu(config, needs) or config.executor.cpu_slots


MOST_AT_ONCE = 4
"""Most patches on a GPU with `patches_per_gpu: auto`.

On an H200 four patches of the scene caliterra take 0.67 (`default`) to 0.77 (`mcmc`, a million Gaussians) of the time
of four in turn; two take 0.83.
"""
PACKED_SHARE = 0.75
"""Ratio of the time of patches that share a GPU to that of the same patches in turn, until the ratio is measured."""
PLANNED_SHARE = 0.6
"""Share of the free memory, of GPU and host, that patches on one GPU may need together by their estimates."""
CORES_EACH = 2
"""Cores of the host per training on a GPU: one starts the steps, the other decodes and evaluates."""


def seats_per_gpu(config: Config, needs: Iterable[MemoryEstimate], free_mib: float = 0.0) -> int:
    """Return how many patches should share each GPU at the start of a batch, at least 1.

    That is `patches_per_gpu` if it is a number. With `auto` it is as many as memory, cores of the host and
    `MOST_AT_ONCE` allow; 1 if the GPU must rest between patches (`cooldown.floor_s`), or if no estimate is known.

    Args:
        config: config of the batch.
        needs: known memory estimates of its patches.
        free_mib: free memory of the GPU before the batch, in MiB; 0: unknown, and all of the smallest GPU is assumed.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    if (wanted := config.executor.patches_per_gpu) != "auto":
        return wanted
    on_gpu = [need for need in needs if need.gpu_mib]
    if not on_gpu or config.cooldown.floor_s:
        return 1
    of_gpu = PLANNED_SHARE * (free_mib or smallest_mib(config) or 0) / max(need.gpu_mib for need in on_gpu)
    of_host = PLANNED_SHARE * available_mib() / max(need.host_mib for need in on_gpu)
    return max(1, int(min(of_gpu, of_host, num_cores() / CORES_EACH, MOST_AT_ONCE)))


def packed_slowdown(config: Config, at_once: int) -> float:
    """Return the factor by which each patch takes longer while `at_once` share the GPUs; 1.0 without a GPU.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    num_gpus = len(cards(config))
    return max(1.0, PACKED_SHARE * at_once / num_gpus) if num_gpus else 1.0


def smallest_mib(config: Config) -> int | None:
    """Return the memory of the smallest GPU of a batch in MiB; None without a GPU, or if NVML does not report it.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    return min((card.total_mib for card in cards(config) if card.total_mib), default=None)


UNASKED_S = 3600.0
"""Longest expected duration, in seconds, for which a batch trains on the CPU without `training.device: cpu`."""


@dataclass(frozen=True)
class Forecast:
    """Expected duration of some patches, with the basis of the estimate, for `plan` and the begin of `train`."""

    seconds: float | None
    """Expected seconds; None: unknown."""
    basis: str
    """Words on how the duration was estimated, or why it is unknown."""
    patches: str
    """Patches in words, as "14 patches of 30,000 steps"; stages of a reconstruction as "7 stages"."""

    def in_words(self) -> str:
        """Return the forecast as a line for the user; an unknown duration is named as such."""
        if self.seconds is None:
            return f"no estimate yet: {self.patches}, {self.basis}"
        return f"expected to take about {clock(self.seconds)}: {self.patches}, {self.basis}"


def training_times(batch: Batch) -> list[tuple[float, int]]:
    """Return seconds and steps of the trained patches of a batch, of those on the device that it trains on now.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    return [(result.seconds or 0.0, result.step or 0) for _, result in past_trainings(batch, on_cpu=on_cpu)]


def forecast(
    batch: Batch,
    names: Sequence[str],
    footprints: Mapping[str, MemoryEstimate],
    done: Sequence[tuple[float, int]] | None = None,
) -> Forecast:
    """Return how long the named tasks of a batch will take: by trained patches, else by the model of training time.

    If all tasks state their own expected duration, such as stages of a reconstruction, these are added up.

    Args:
        batch: the batch.
        names: names of the tasks.
        footprints: memory estimates by task name; without trained patches, tasks that have none count with the mean
            time of the others. If all have none, the duration is unknown.
        done: result of `training_times`, for callers that ask often; None: it is read now.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    own = [task.expected for task in batch.only(names).tasks if task.expected]
    if own and len(own) == len(names):
        most = max(host_mib for _, host_mib in own)
        basis = f"each needs at most {most:,.0f} MiB of memory, based on benchmarks on one server core"
        return Forecast(sum(seconds for seconds, _ in own), basis, how_many(batch.names, "stage"))
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    recipes = {task.name: task.requested_settings.recipe for task in batch.only(names).tasks}
    spelled = _spell(recipes)
    # on the CPU all steps count: what takes more than an hour there must be asked for, see `check_place`
    steps = {name: one.training.max_steps if on_cpu else one.expected_steps() for name, one in recipes.items()}
    slots = num_slots(batch.config, footprints.values())
    done = training_times(batch) if done is None else done
    if (step_s := seconds_per_step(done)) is not None:
        seconds = [step_s * one for one in steps.values()]
        basis = f"based on {plural(len(done), 'trained patch', 'es')}"
        return Forecast(makespan_s(seconds, slots), basis, spelled)
    pace_of_all = memory_estimate.CPU if on_cpu else memory_estimate.H200
    known = [
        pace_of_all.start + memory_estimate.stepping_s(recipes[name], footprints[name], pace_of_all, steps[name])
        for name in names
        if name in footprints
    ]
    if not known:
        return Forecast(None, "no patch is trained yet", spelled)
    at_once = min(len(names), slots, num_cores() if on_cpu else len(names))
    seconds = known + [fmean(known)] * (len(names) - len(known))
    basis = "estimated from the speed of an H200; other GPUs differ"
    if on_cpu:
        basis = f"on the CPU, based on benchmarks on CPUs, {at_once} at a time"
        basis += f" on this machine's {plural(num_cores(), 'core')}"
    elif (used := cards(batch.config)) and all("H200" in card.name for card in used):
        basis = "based on the speed of an H200"
    return Forecast(packed_slowdown(batch.config, at_once) * makespan_s(seconds, at_once), basis, spelled)


def check_place(batch: Batch, expected: Forecast) -> None:
    """Check that the batch does not train on the CPU for more than an hour without `training.device: cpu`.

    A forecast without a duration passes, and so does `executor.gpus: []`.

    Raises:
        ExecutorError: a requested GPU is missing, or cannot be used.
        TrainerError: the batch would train on the CPU for longer, which was not requested.
    """
    executor, device = batch.config.executor, batch.config.training.device
    if chosen_cards(executor, device) or executor.gpus == () or expected.seconds is None:
        return
    if expected.seconds <= UNASKED_S or all(one.training.device == "cpu" for one in batch.recipes().values()):
        return
    raise TrainerError(
        f"no NVIDIA GPU was found, and on the CPU training is {expected.in_words()}",
        "Use a machine with a GPU (`splatbatch doctor` lists what was found), or set training.device: cpu to train on"
        " the CPU for that long. Fewer training.max_steps, a lower cap_max and a smaller resolution take less time.",
    )


def _spell(recipes: Mapping[str, Recipe]) -> str:
    steps = sorted(recipe.training.max_steps for recipe in recipes.values())
    each = "" if not steps else f"{steps[0]:,}" if steps[0] == steps[-1] else f"{steps[0]:,} to {steps[-1]:,}"
    most = "up to " if any(recipe.stops_after() for recipe in recipes.values()) else ""
    return how_many(recipes) + (f" of {most}{each} steps" if steps else "")


def past_trainings(batch: Batch, *, on_cpu: bool) -> Iterator[tuple[Task, Result]]:
    """Yield the trained tasks of a batch, each with its manifest (result.json), of the same kind of device.

    Only the first `MOST_RESULTS` tasks are read. Tasks without a manifest, known duration or steps are left out.

    Args:
        batch: the batch.
        on_cpu: whether trainings on the CPU are wanted, or those on a GPU; trainings of an unknown device count for
            both.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    for task in batch.every[:MOST_RESULTS]:
        result = batch.output.patch(task.name).read_result() or Result()
        made_on = result.metrics.made_with.get("on")
        if result.seconds and result.step and (not made_on or (made_on == "CPU") == on_cpu):
            yield task, result
