"""How long a batch will take, by what its trained patches have taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatbatch.batch.batch import Batch
from splatbatch.batch.needs import cards
from splatbatch.batch.pace import makespan_s, seconds_per_step
from splatbatch.files import read_json


def forecast_s(batch: Batch, names: Sequence[str]) -> float | None:
    """Return the seconds that training these patches will take; None while no patch of the output is trained."""
    pace = seconds_per_step(_finished(batch))
    if pace is None or not names:
        return None
    steps = (batch.config.recipe(name, batch.changes).training.max_steps for name in names)
    return makespan_s([pace * one for one in steps], num_slots(batch))


def num_slots(batch: Batch) -> int:
    """Return how many patches will be trained at once: `auto` packing counts as one, for it may come to no more."""
    executor, num_gpus = batch.config.executor, len(cards(batch.config))
    at_once = 1 if executor.patches_per_gpu == "auto" else executor.patches_per_gpu
    return num_gpus * at_once or executor.cpu_slots


def _finished(batch: Batch) -> Iterable[tuple[float, int]]:
    """Yield seconds and steps of every trained patch."""
    for patch in batch.patches:
        result = read_json(batch.output.patch(patch.name).result) or {}
        seconds, step = result.get("seconds"), result.get("step")
        if isinstance(seconds, int | float) and isinstance(step, int):
            yield seconds, step
