"""Runs all checks of `doctor` in order, for this machine and optionally for a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from splatbatch.caches import extensions_folder
from splatbatch.doctor import inventory
from splatbatch.doctor.checks import (
    OF_TRAINER,
    CheckResult,
    Machine,
    TorchProbe,
    extras,
    of_job,
    of_kernels,
    of_machine,
    ok,
    problem,
)
from splatbatch.errors import ExecutorError, TrainerError
from splatbatch.fields import number
from splatbatch.machine.gpu import environment_of
from splatbatch.output.records.record import read_as
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.supervisor.ask import ask
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.estimates import check_place, footprints_of, forecast

PROBE, WARM = "splatbatch.training.probe", "splatbatch.training.cuda.warm"
"""Modules of the processes that try the GPUs, and that build kernels."""
PROBE_S = 120.0
"""Time limit in seconds of the process that tries the GPUs."""
WARM_S = 1800.0
"""Time limit of a build in seconds: gsplat's takes some minutes on a few cores, the builtin kernels' some seconds."""
REMEDIES = {
    "kernels": "Run `splatbatch doctor` without --warm to see what is missing.",
    "gsplat": "The build needs ninja, a C++ compiler and the CUDA toolkit of torch's version. If it never ends, remove"
    " the file `lock` below {folder}, which a killed build has left.",
}
"""Remedy for a build that failed, by name of the kernels."""


def probe(machine: Machine) -> TorchProbe:
    """Start a process with torch that tries the GPUs, and return its result; this may take `PROBE_S` seconds.

    A process that gives no answer is a result with an error, no exception.

    Raises:
        OSError: no process can be started.
    """
    (answer,) = ask([[PROBE]], PROBE_S, environment_of(card.uuid for card in machine.presence.cards))
    if isinstance(answer, str):
        return TorchProbe(error=f"torch does not start: {answer}")
    return read_as(TorchProbe, answer)


def warm(machine: Machine, wanted: Sequence[str]) -> Iterator[CheckResult]:
    """Build kernels in parallel, each in a process; yield how each build ended, as "ok" or a problem.

    Args:
        machine: facts about the GPUs.
        wanted: names of kernels to build: "kernels" (builtin) or "gsplat".

    Raises:
        OSError: no process can be started.
    """
    answers = ask(
        [[WARM, name] for name in wanted], WARM_S, environment_of(card.uuid for card in machine.presence.cards)
    )
    for name, answer in zip(wanted, answers, strict=True):
        record = {"error": answer} if isinstance(answer, str) else answer
        if error := str(record.get("error") or ""):
            yield problem(f"build {name}", error, REMEDIES[name].format(folder=extensions_folder()), OF_TRAINER)
        else:
            yield ok(f"build {name}", f"done in {number(record.get('seconds')) or 0:.1f} s")


def examine(batch: Batch | None, *, build: bool, has_viewer: bool) -> Iterator[CheckResult]:
    """Yield the results of all checks of this machine, and of training a batch on it.

    Args:
        batch: the batch; None: only the machine is checked.
        build: whether missing kernels are built.
        has_viewer: whether the 3D viewer of the pages is installed.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist, so that the batch is not judged.
        OSError: no process can be started.
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    machine = replace(inventory.machine(), versions=inventory.versions())
    expected = footprints_of(batch.config, batch.tasks) if batch else {}
    recipes = batch.recipes() if batch else {}
    job = inventory.job(batch.config, recipes, expected) if batch else None
    yield from of_machine(machine, job)
    if machine.presence.cards and not (job and job.on_cpu):
        wants_gsplat = any(recipe.training.kernels == "gsplat" for recipe in recipes.values())
        yield from _of_gpus(machine, build=build, wants_gsplat=wants_gsplat)
    else:
        yield from _without_gpu(machine, build=build)
    if batch and job:
        yield from of_job(job)
        yield _place(batch, expected)
    yield from extras(machine.versions, inventory.wanted_extras(batch.config) if batch else frozenset())
    without = "not included: installed from source without npm; release wheels include it"
    yield ok("3D viewer", "included in the report" if has_viewer else without)


def _of_gpus(machine: Machine, *, build: bool, wants_gsplat: bool) -> Iterator[CheckResult]:
    seen = probe(machine)
    if build and not seen.error:
        yield from warm(machine, ["kernels", "gsplat"] if wants_gsplat else ["kernels"])
        seen = probe(machine)
    yield from of_kernels(machine, seen, wants_gsplat=wants_gsplat)


def _without_gpu(machine: Machine, *, build: bool) -> Iterator[CheckResult]:
    """Yield whether torch starts, which is all that training on the CPU needs."""
    if machine.torch:
        error = probe(Machine()).error
        yield problem("torch", error, "Reinstall torch.", OF_TRAINER) if error else ok("cpu", "torch starts")
    if build:
        yield ok("build", "there is nothing to build: no usable NVIDIA GPU here, and the CPU needs no kernels")


def _place(batch: Batch, expected: Mapping[str, MemoryEstimate]) -> CheckResult:
    """Return the forecast of the batch's time, or the reason why `train` would refuse to train it here."""
    outlook = forecast(batch, batch.names, expected)
    try:
        check_place(batch, outlook)
    except (ExecutorError, TrainerError) as error:
        return problem("device", error.message, error.hint, error.exit_code)
    return ok("forecast", outlook.in_words())
