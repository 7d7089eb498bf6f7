"""Whether this machine can train, and a batch on it: every check in its order, each finding with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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
from splatbatch.output.records.record import read_as
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.supervisor.ask import ask
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.estimates import check_place, footprints_of, forecast

PROBE, WARM = "splatbatch.training.probe", "splatbatch.training.cuda.warm"
PROBE_S = 120.0
WARM_S = 1800.0
"""gsplat's build takes some minutes on a few cores; ours some seconds."""


def probe(machine: Machine) -> TorchProbe:
    """Ask torch what it can do with the GPUs here."""
    (answer,) = ask([[PROBE]], PROBE_S, _visible(machine))
    if isinstance(answer, str):
        return TorchProbe(error=f"torch does not start: {answer}")
    return read_as(TorchProbe, answer)


def warm(machine: Machine, wanted: Sequence[str]) -> Iterator[CheckResult]:
    """Build `kernels`, which are ours, or those of `gsplat`, side by side; yield how each build ended."""
    answers = ask([[WARM, name] for name in wanted], WARM_S, _visible(machine))
    for name, answer in zip(wanted, answers, strict=True):
        record = {"error": answer} if isinstance(answer, str) else answer
        if error := str(record.get("error") or ""):
            remedy = "Run `splatbatch doctor` without --warm to see what is missing."
            yield problem(f"build {name}", error, remedy, OF_TRAINER)
        else:
            yield ok(f"build {name}", f"done in {number(record.get('seconds')) or 0:.1f} s")


def _visible(machine: Machine) -> dict[str, str]:
    """Make exactly the GPUs that NVML lists visible, as attempts will see them."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in machine.presence.cards)}


def examine(batch: Batch | None, *, build: bool, has_viewer: bool) -> Iterator[CheckResult]:
    """Yield what there is to say of this machine, and of training a batch on it.

    Args:
        batch: None: it is about the machine alone.
        build: kernels that are not there are built.
        has_viewer: the viewer of the pages was built.
    """
    machine = replace(inventory.machine(), versions=inventory.versions())
    expected = footprints_of(batch.config, batch.tasks) if batch else {}
    recipes = batch.recipes() if batch else {}
    job = inventory.job(batch.config, recipes, expected) if batch else None
    yield from of_machine(machine, on_cpu=bool(job and job.on_cpu))
    if machine.presence.cards and not (job and job.on_cpu):
        wants_gsplat = any(recipe.training.kernels == "gsplat" for recipe in recipes.values())
        yield from _of_gpus(machine, build=build, wants_gsplat=wants_gsplat)
    else:
        yield from _without_gpu(machine, build=build)
    if batch and job:
        yield from of_job(job)
        yield _place(batch, expected)
    yield from extras(machine.versions, job.extras if job else frozenset(), has_viewer=has_viewer)


def _of_gpus(machine: Machine, *, build: bool, wants_gsplat: bool) -> Iterator[CheckResult]:
    seen = probe(machine)
    if build and not seen.error:
        yield from warm(machine, ["kernels", "gsplat"] if wants_gsplat else ["kernels"])
        seen = probe(machine)
    yield from of_kernels(machine, inventory.toolchain(), seen, wants_gsplat=wants_gsplat)


def _without_gpu(machine: Machine, *, build: bool) -> Iterator[CheckResult]:
    """Say whether torch comes up at all; without a usable GPU that is what the CPU needs."""
    if machine.torch:
        error = probe(Machine()).error
        yield problem("torch", error, "Reinstall torch.", OF_TRAINER) if error else ok("cpu", "torch starts")
    if build:
        yield ok("build", "there is nothing to build: no usable NVIDIA GPU here, and the CPU needs no kernels")


def _place(batch: Batch, expected: Mapping[str, MemoryEstimate]) -> CheckResult:
    """Say how long the whole batch takes, and whether `train` would train it here."""
    outlook = forecast(batch, batch.names, expected)
    try:
        check_place(batch, outlook)
    except (ExecutorError, TrainerError) as error:
        return problem("device", error.message, error.hint, error.exit_code)
    return ok("forecast", outlook.in_words())
