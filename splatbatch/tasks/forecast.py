"""How long a batch will take: by what its trained patches took, else by what of each is trained, and where."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from splatbatch.config import Recipe
from splatbatch.errors import TrainerError
from splatbatch.machine.slots import chosen_cards, is_on_cpu
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.result import Result
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.counts import how_many
from splatbatch.tasks.memory_estimates import cards, num_slots
from splatbatch.tasks.throughput import MOST_RESULTS, makespan_s, seconds_per_step
from splatbatch.text import clock, plural

UNASKED_S = 3600.0
"""So long a batch trains on the CPU without having been told to."""


@dataclass(frozen=True)
class Forecast:
    """How long some patches will take, and by what that is known."""

    seconds: float | None
    """None: nobody can know."""
    basis: str
    patches: str
    """As "14 patches of 30,000 steps"."""

    def in_words(self) -> str:
        """Return it as a line."""
        if self.seconds is None:
            return f"no estimate yet: {self.patches}, {self.basis}"
        return f"expected to take about {clock(self.seconds)}: {self.patches}, {self.basis}"


def forecast(batch: Batch, names: Sequence[str], footprints: Mapping[str, MemoryEstimate]) -> Forecast:
    """Return how long the training of these patches will take, which are some of the batch."""
    own = [task.kind.expected for task in batch.only(names).tasks if task.kind.expected]
    if own and len(own) == len(names):
        most = max(host_mib for _, host_mib in own)
        basis = f"each needs at most {most:,.0f} MiB, based on benchmarks on one server core"
        return Forecast(sum(seconds for seconds, _ in own), basis, how_many(batch.names, batch.noun))
    on_cpu = is_on_cpu(batch.config.executor, batch.config.training.device)
    recipes = {task.name: task.requested_settings.recipe for task in batch.only(names).tasks}
    spelled = _spell(recipes)
    done = list(_finished(batch, on_cpu=on_cpu))
    if (throughput := seconds_per_step(done)) is not None:
        seconds = [throughput * recipe.training.max_steps for recipe in recipes.values()]
        basis = f"based on {plural(len(done), 'trained patch', 'es')}"
        return Forecast(makespan_s(seconds, num_slots(batch.config)), basis, spelled)
    pace_of_all = memory_estimate.CPU if on_cpu else memory_estimate.H200
    known = [
        memory_estimate.training_s(recipes[name], footprints[name], pace_of_all) for name in names if name in footprints
    ]
    if not known:
        return Forecast(None, "no patch is trained yet", spelled)
    at_once = min(len(names), num_slots(batch.config), num_cores() if on_cpu else len(names))
    seconds = known + [fmean(known)] * (len(names) - len(known))
    return Forecast(makespan_s(seconds, at_once), _basis(batch, at_once, on_cpu=on_cpu), spelled)


def check_place(batch: Batch, expected: Forecast) -> None:
    """See that the batch can and may train where it would; a GPU batch may take as long as it likes.

    Raises:
        ExecutorError: a GPU is wanted that is not here, or one is here that cannot be used.
        TrainerError: it would train on the CPU for long, and nobody has asked for that.
    """
    executor, device = batch.config.executor, batch.config.training.device
    if chosen_cards(executor, device) or executor.gpus == () or expected.seconds is None:
        return
    if expected.seconds <= UNASKED_S or all(one.training.device == "cpu" for one in batch.recipes().values()):
        return
    raise TrainerError(
        f"no NVIDIA GPU was found, and on the CPU this is {expected.in_words()}",
        "Use a machine with a GPU (`splatbatch doctor` lists what was found), or set training.device: cpu to train on"
        " the CPU for that long. Fewer training.max_steps, a lower cap_max and a smaller resolution take less time.",
    )


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _basis(batch: Batch, at_once: int, *, on_cpu: bool) -> str:
    if on_cpu:
        here = f"{at_once} at a time on this machine's {plural(num_cores(), 'core')}"
        return f"on the CPU, based on the measured speed of its rasteriser, {here}"
    if all("H200" in card.name for card in cards(batch.config)) and cards(batch.config):
        return "based on the speed of an H200"
    return "estimated from the speed of an H200; other GPUs differ"


def _spell(recipes: Mapping[str, Recipe]) -> str:
    steps = sorted(recipe.training.max_steps for recipe in recipes.values())
    each = "" if not steps else f"{steps[0]:,}" if steps[0] == steps[-1] else f"{steps[0]:,} to {steps[-1]:,}"
    return how_many(recipes) + (f" of {each} steps" if steps else "")


def _finished(batch: Batch, *, on_cpu: bool) -> Iterable[tuple[float, int]]:
    """Yield seconds and steps of patches of this output that were trained where these will be, as far as is known."""
    folders = (PatchFolder(path) for path in sorted(batch.output.patch("").path.glob("*")))
    for folder in islice(folders, MOST_RESULTS):
        result = folder.read_result() or Result()
        seconds, step, made_on = result.seconds, result.step, result.metrics.made_on
        fits = not made_on or (made_on == "CPU") == on_cpu
        if fits and seconds is not None and step is not None:
            yield seconds, step
