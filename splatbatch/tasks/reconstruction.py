"""The stages of a reconstruction as tasks; the product of each stage lies in the folder of its task."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from splatbatch.config import Config, Rung, TaskId
from splatbatch.errors import NotMadeError
from splatbatch.files import write_json
from splatbatch.hashing import FileFacts, Stamps
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import TaskUnit
from splatbatch.output.layout import OutputFolder
from splatbatch.reconstruction.estimate import expected_of
from splatbatch.reconstruction.facts import OURS, ReconstructionRecord
from splatbatch.reconstruction.plan import (
    ReconstructionOptions,
    ReconstructionPlan,
    StageMetrics,
    StageSettings,
    product_of,
    record_of,
    stages,
)
from splatbatch.scene.patches import Patch
from splatbatch.tasks.patch_state import Missing, PatchState, UpToDate
from splatbatch.tasks.product import compare_product, damaged_state
from splatbatch.tasks.task import Task, untrained

STAMPS = Stamps()
"""Shared cache of file hashes: the state of products is asked every second, a file hashed again only if it changes."""
FEWER: tuple[Rung, ...] = ({"features": "x0.5"}, {"features": "x0.5"})
"""Rungs after an attempt ran out of memory: half, then a quarter of the features per photograph."""
ONE_THREAD: tuple[Rung, ...] = ({"threads": 1},)
"""Rung after an attempt ran out of host memory: a single thread."""
LADDERS: Mapping[str, dict[str, tuple[Rung, ...]]] = {
    "features": {"host_memory": FEWER, "gpu_memory": FEWER, "segfault": tuple({"leave_out": one} for one in (1, 2, 3))},
    "matching": {"host_memory": ONE_THREAD},
    "mapping": {"host_memory": ONE_THREAD, "numerics": ({"relaxed": 1}, {"relaxed": 2})},
    "model": {"host_memory": ONE_THREAD},
}
"""Ladders of each stage, by cause of failure; stages and causes that are missing have none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReconstructTask(Task):
    """A task that makes one stage of a reconstruction; its product is a folder, with a record beside it."""

    orders: StageSettings
    required_keys: Mapping[str, str]
    """Keys of the products that the stage reads, by the names of their stages; empty for the first stage."""
    takes: Literal["gpu", "any", "cpu"] = "cpu"
    """Kind of slot: "gpu" for finding and matching features, if pycolmap has CUDA and a GPU is here; else "cpu"."""
    module = "splatbatch.reconstruction"
    tries = 6
    noun: ClassVar[TaskUnit] = "stage"
    limits: ClassVar = {"wall_s": 1e9}

    def product(self) -> PatchState:
        """Return the state of the stage's product, by its record and its files; missing without a readable record.

        The last stage is damaged also if files are missing from the model that it exported.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        products = self.output.path / "patches"
        made, place = StageMetrics.read(record_of(products, self.name)), product_of(products, self.name)
        if made is None:
            return Missing()
        out = Path(self.orders.out)
        state = compare_product(self.inputs, made.inputs, place, made.parts, FileFacts(STAMPS))
        is_gone = self.orders.what == "model" and not all((out / one).exists() for one in ("sparse/0", "images", OURS))
        return damaged_state(f"{out}: the model is incomplete") if is_gone and isinstance(state, UpToDate) else state

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the stages that must be made first; empty: none."""
        return tuple(self.required_keys)

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json of an attempt, and return the command of its process.

        Raises:
            NotMadeError: a required stage has not been made, or from other inputs.
            OSError: settings.json cannot be written.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        products = folder.path.parent.parent
        for name, key in self.required_keys.items():
            made = StageMetrics.read(record_of(products, name))
            if made is None or made.inputs != key:
                raise NotMadeError(f"{patch.name} needs the result of {name}, which has not been made")
        return super().command(patch, folder)

    def keep(self, folder: AttemptFolder) -> None:
        """Move the product to its place, replacing an older one, and write its record last.

        Unfinished products of earlier attempts are removed. Nothing happens if the attempt has no record or no product.

        Raises:
            OSError: the product cannot be moved, or its record cannot be written.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        made, products = StageMetrics.read(folder.metrics), folder.path.parent.parent
        if made is None or not (folder.path / "product").is_dir():
            return
        place, record = product_of(products, self.name), record_of(products, self.name)
        record.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        (folder.path / "product").rename(place)
        write_json(record, made.to_record())
        for one in [*place.parent.glob("snapshots-*"), *(attempt.path / "product" for attempt in folder.earlier())]:
            shutil.rmtree(one, ignore_errors=True)

    @property
    def ladders(self) -> Mapping[str, tuple[Rung, ...]]:
        """Ladders of this stage, by cause of failure; empty: no other settings are tried."""
        return LADDERS.get(self.orders.what, {})

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that rungs may change, by name.

        `features` is the number per photograph, 0 in stages that find none. `leave_out` and `relaxed` are 0 at first.
        """
        return {"features": 0, "leave_out": 0, "relaxed": 0, "threads": self.orders.threads} | self.orders.changes

    def changed(self, changes: Mapping[str, object]) -> Self:
        """Return the task with settings changed by a rung, as fewer features or threads; earlier changes stay."""
        every = {**self.orders.changes, **changes}
        threads = int(every.get("threads", self.orders.threads))
        return replace(self, orders=replace(self.orders, changes=every, threads=threads))


def has_cuda() -> bool:
    """Return whether a wheel of pycolmap with CUDA is installed.

    Pycolmap is not imported, since it takes over SIGTERM.
    """
    return any((one.metadata["Name"] or "").lower().startswith("pycolmap-cuda") for one in distributions())


def reconstruction_tasks(
    config: Config, plan: ReconstructionPlan, out: Path, threads: int, *, on_gpu: bool
) -> tuple[Task, ...]:
    """Return the tasks of all stages of a reconstruction, in their order.

    Args:
        config: config of the batch.
        plan: stages, photographs and options of the reconstruction; its file is not written here.
        out: folder to which the model is exported.
        threads: number of threads of each stage.
        on_gpu: whether finding and matching features take a GPU.
    """
    output, found = OutputFolder(config.output.folder), []
    every = stages(plan)
    keys = {one.name: one.key for one in every}
    for one in every:
        orders = StageSettings(
            one.what,
            one.number,
            str(plan_file(output, plan)),
            str(output.path / "patches"),
            threads,
            str(out),
            {"features": plan.wanted.features} if one.what == "features" else {},
            one.key,
            expected_of(plan, one, threads),
        )
        takes: Literal["gpu", "cpu"] = "gpu" if on_gpu and one.what in ("features", "matching") else "cpu"
        found.append(
            ReconstructTask(
                TaskId(one.name),
                Patch(one.name, out, Path(plan.images)),
                *untrained(config),
                orders=orders,
                takes=takes,
                expected=orders.expected,
                required_keys={name: keys[name] for name in one.needs},
            )
        )
    return tuple(found)


def plan_file(output: OutputFolder, plan: ReconstructionPlan) -> Path:
    """Return the path of a plan, which contains the plan's key, so that two plans never share a file."""
    return output.path / "plans" / f"{plan.key[:32]}.json"


def command_of(output: OutputFolder) -> str:
    """Return the command that continues the latest plan; empty if there is no plan, or if it cannot be read.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    plans = sorted((output.path / "plans").glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    plan = ReconstructionPlan.read(plans[-1]) if plans else None
    if plan is None:
        return ""
    asked, usual = plan.wanted.to_record(), ReconstructionOptions().to_record()
    words = ["splatbatch", "reconstruct", plan.images, "--out", str(output.path.parent)]
    for name in ("features", "camera", "rig", "mapper", "pairs"):
        if asked[name] != usual[name]:
            words += [f"--{name}", ",".join(asked[name]) if name == "rig" else str(asked[name])]
    return shlex.join(words)


def facts_of(output: OutputFolder) -> ReconstructionRecord | None:
    """Return the record of the model that was made last; None if no model was made, or if the record cannot be read.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    return ReconstructionRecord.read(product_of(output.path / "patches", "model") / OURS)
