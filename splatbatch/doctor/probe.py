"""Asks processes with torch: what it can do here, and to build all kernels ahead; none may hang or take us with it."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.doctor.checks import OF_TRAINER, Finding, Machine, Probe, ok, problem
from splatbatch.fields import texts
from splatbatch.supervisor.ask import Answer, ask

PROBE, WARM = "splatbatch.training.probe", "splatbatch.training.cuda.warm"
PROBE_S = 120.0
WARM_S = 1800.0
"""gsplat's build takes some minutes on a few cores; ours some seconds."""


def probe(machine: Machine) -> Probe:
    """Ask torch what it can do with the GPUs here."""
    (answer,) = ask([[PROBE]], PROBE_S, _visible(machine))
    if answer.record is None:
        return Probe(error=f"torch does not start: {answer.error}")
    record = answer.record
    return Probe(
        error=str(record.get("error") or ""),
        launch_error=str(record.get("launch_error") or ""),
        kernels_error=str(record.get("kernels_error") or ""),
        has_gsplat=record.get("has_gsplat") is True,
        **{name: texts(record.get(name)) for name in ("architectures", "lacking")},
    )


def warm(machine: Machine, wanted: Sequence[str]) -> list[Finding]:
    """Build `kernels`, which are ours, or those of `gsplat`, side by side; return what came of each."""
    answers = ask([[WARM, name] for name in wanted], WARM_S, _visible(machine))
    return [_built(name, answer) for name, answer in zip(wanted, answers, strict=True)]


def _built(wanted: str, answer: Answer) -> Finding:
    error = answer.error if answer.record is None else str(answer.record.get("error") or "")
    name = f"build {wanted}"
    if error:
        return problem(name, error, "`splatbatch doctor` without --warm says what it lacks.", OF_TRAINER)
    seconds = (answer.record or {}).get("seconds")
    return ok(name, f"done in {seconds:.1f} s" if isinstance(seconds, int | float) else "done")


def _visible(machine: Machine) -> dict[str, str]:
    """Make exactly the GPUs that NVML lists visible, as attempts will see them."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in machine.presence.cards)}
