"""How an attempt is doing: the lines of progress.jsonl and gpu.jsonl."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import number
from splatbatch.store.records.record import TypedRecord, reads


def _step(value: object) -> int | None:
    known = number(value)
    return None if known is None else int(known)


@dataclass(frozen=True)
class Progress(TypedRecord):
    """A line of progress.jsonl: our own training wrote it, or the supervisor from the log of an external trainer.

    Each line holds what was new then; figures of a step (loss, …) and of an evaluation (psnr, …) come apart.
    """

    t: float | None = None
    """Seconds since 1970."""
    seconds: float | None = None
    """Since the attempt began."""
    phase: str = ""
    """start, load, standby, init, train, eval, export, done."""
    step: int | None = field(default=None, metadata=reads(_step))
    max_steps: int | None = field(default=None, metadata=reads(_step))
    loss: float | None = None
    grad_norm: float | None = None
    """Norm of all gradients."""
    num_gaussians: int | None = None
    peak_mib: float | None = None
    """The most GPU memory torch has had in use."""
    reserved_mib: float | None = None
    """What torch keeps of the GPU, in use or not: with the context, what others see of it."""
    psnr: float | None = None
    ssim: float | None = None
    lpips: float | None = None
    training_psnr: float | None = None
    psnr_even: float | None = None
    """In the evened space, where photographs have tones; `psnr` is on the photographs as they are."""
    ssim_even: float | None = None
    health: str = ""
    """The health rule that ended the run."""
    warning: str = ""
    highest_step: int | None = field(default=None, metadata=reads(_step))
    """An external trainer's: the last that its log has named."""
    step_gap: int | None = field(default=None, metadata=reads(_step))
    """The most between a step named and the next."""
    steps_unheard: bool = False
    """Not all of its log was read."""

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object that holds what was new, and nothing else."""
        said = super().to_record()
        return {name: value for name, value in said.items() if value not in (None, "") and value is not False}

    def figure(self, name: str) -> float | None:
        """Return a figure by its name, as "psnr"."""
        value: float | None = getattr(self, name)
        return value


@dataclass(frozen=True)
class GpuSample(TypedRecord):
    """What NVML says of a GPU at one moment, None where it cannot tell; with its time a line of gpu.jsonl."""

    t: float | None = None
    used_mib: int | None = None
    total_mib: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: bool | None = None
    processes: tuple[int, ...] = ()
    process_mib: tuple[int | None, ...] = ()
    """What each of them holds."""
    own_mib: int | None = None
    """Of it the attempt's."""
