"""What stands in the files of an attempt: its orders, how it is watched, its start, beats, progress, its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.outcome import Exit, Lost, exit_from_record, exit_to_record
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.process import ProcessIdentity
from splatbatch.output.records.record import ABSENT, TypedRecord, environment, reads


def _limit(value: object) -> Any:
    known = number(value)
    return ABSENT if known is None else max(0.0, known)


@dataclass(frozen=True)
class TimeLimits(TypedRecord):
    """How long an attempt may take."""

    wall_s: float = field(default=float("inf"), metadata=reads(_limit))
    grace_s: float = field(default=10.0, metadata=reads(_limit))
    """Between SIGTERM and SIGKILL."""
    stall_s: float = field(default=0.0, metadata=reads(_limit))
    """Without any sign of life; 0: any time."""


@dataclass(frozen=True)
class Claim(TypedRecord):
    """A task that a worker may train, as long as no higher generation is claimed; what it makes is made under it."""

    worker: str = ""
    generation: int = 0
    follows: int | None = None
    """The newest accepted record when it was made: a splat made under it can only become the next.

    None: an earlier version wrote it.
    """


@dataclass(frozen=True)
class JobSpec(TypedRecord):
    """job.json: what the supervisor is to run, and what a later run asks before it adopts the attempt."""

    key: str = ""
    argv: tuple[str, ...] = ()
    """Empty: it cannot be started."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    gpu: str | None = None
    """UUID."""
    slot: str = ""
    standby: bool = False
    """It prepares, then waits for go.json."""
    limits: TimeLimits = TimeLimits()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which it differs from the YAML of then."""
    depends_on: Fingerprint = field(default=Fingerprint())
    is_retry: bool = False
    """Asked for by `retry`: the better of it and of what is accepted is kept."""
    claim: Claim = Claim()
    """Under which it was made."""


@dataclass(frozen=True)
class Go(TypedRecord):
    """go.json: an attempt that stands by may begin, on this GPU."""

    gpu: str | None = None
    slot: str = ""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    at: float | None = None
    """Seconds since 1970."""


@dataclass(frozen=True)
class Start(ProcessIdentity):
    """start.json: the supervisor, and the control group of all that it started."""

    started_at: float | None = None
    group: str | None = None


@dataclass(frozen=True)
class Heartbeat(TypedRecord):
    """heartbeat.json: moves while the supervisor lives."""

    sequence: int = 0
    child: int | None = None
    below: tuple[str, ...] = ()
    """Processes below it, as number and start: "4711:123456"."""


@dataclass(frozen=True)
class ExitFacts(TypedRecord):
    """exit.json: how the process ended, and what was seen around it."""

    end: Exit = field(default=Lost("unreadable exit record"), metadata=reads(lambda end: end))
    seconds: float | None = None
    ended_at: float | None = None
    out_of_memory: bool = False
    """The kernel's OOM killer struck."""
    kernel_lines: tuple[str, ...] = ()
    disk_free_mib: int | None = None
    """The least that was free while it ran, on the disk of the output folder."""
    own_gpu_peak_mib: float | None = None
    """The most GPU memory that NVML saw it hold."""
    shm_free_mib: int | None = None
    """The same for shared memory."""
    stood_by: bool = False
    """To its end: it was never told to go, or had died by then."""

    @classmethod
    def from_record(cls, record: object) -> ExitFacts:
        """Return what a JSON object says; an end that cannot be read counts as lost."""
        found = mapping(record)
        return super().from_record({**found, "end": exit_from_record(found)})

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object: the fields of the end stand beside the others."""
        facts = super().to_record()
        del facts["end"]
        return {**exit_to_record(self.end), **facts}


@dataclass(frozen=True, kw_only=True)
class AttemptFacts(TypedRecord):
    """What is worth keeping of an attempt that has ended, in the ledger and beside its splat."""

    seconds: float | None = None
    step: int | None = None
    """The last."""
    phase: str | None = None
    gpu_peak_mib: float | None = None
    """The most that was in use on the card."""
    own_gpu_peak_mib: float | None = None
    """The most of it that NVML saw the attempt hold."""


@dataclass(frozen=True)
class Finish(TypedRecord):
    """What should lie in the end below `output` of the attempt's folder, wherever that lies by now."""

    products: tuple[str, ...] = ()
    """Globs of the splat."""
    step: str = ""
    """Regular expression of the step in a product's path."""
    last_step: int | None = None
    files: tuple[str, ...] = ()
    """Globs of further files."""
    awaited: tuple[str, ...] = ()
    """Globs of files that need not come, but are waited for."""


MEASURING = "measuring"
"""The phase in which we measure what an external trainer has made."""


@dataclass(frozen=True)
class Then(TypedRecord):
    """The command that makes a splat of what the first one left."""

    argv: tuple[str, ...] = ()
    finish: Finish = Finish()
    phase: str = "export"


@dataclass(frozen=True)
class WatchSettings(TypedRecord):
    """How an external trainer is run and watched besides what job.json says."""

    cwd: str | None = None
    """Where it is started, as seen from its attempt's folder."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    progress: dict[str, str] = field(default_factory=dict)
    """Regular expressions of figures in the log, by name."""
    max_steps: int = 0
    phase: str = field(default="start", metadata=reads(lambda value: text(value) or "start"))
    finish: Finish = Finish()
    finished_after_s: float = 0.0
    """So long silent with all there, and it counts as done; 0: never."""
    then: Then | None = None
    metrics: tuple[str, ...] = ()
    """Globs of the file that holds its own figures."""
    measure: tuple[str, ...] = ()
    """The command that measures its splat, whose path is added; run in our own environment once all is there."""
    shown: tuple[str, ...] = ()
    """Variables whose values are no secrets: settings that are shown anyway."""

    def final(self) -> Finish:
        """Return what the last of its commands should leave."""
        return self.then.finish if self.then else self.finish

    def globs(self) -> tuple[str, ...]:
        """Return the globs of all that is read below `output` once it has ended."""
        return (*self.final().products, *self.final().files, *self.metrics)


RECORDS_PER_RUN = 60
"""Lines with a loss, at least: the rules of health go by the curve, however fast a program is."""


@dataclass(frozen=True)
class ProgressLine(TypedRecord):
    """A line of progress.jsonl: our own training wrote it, or the supervisor from the log of an external trainer.

    Each line holds what was new then; figures of a step (loss, …) and of an evaluation (psnr, …) come apart.
    """

    t: float | None = None
    """Seconds since 1970."""
    seconds: float | None = None
    """Since the attempt began."""
    phase: str = ""
    """start, load, standby, init, train, eval, export, measuring, done."""
    step: int | None = None
    max_steps: int | None = None
    """After which it ends, as far as is known now."""
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
    """In the evened space, where photographs are evened; `psnr` is on the photographs as they are."""
    ssim_even: float | None = None
    psnr_covered: float | None = None
    """On the pixels that are covered; `psnr` is on all that count."""
    health: str = ""
    """The health rule that ended the run."""
    warning: str = ""
    highest_step: int | None = None
    """An external trainer's: the last that its log has named."""
    step_gap: int | None = None
    """The most between a step named and the next."""
    steps_unheard: bool = False
    """Not all of its log was read."""
    planned_steps: int | None = None
    """In the tail of a training that ends early: those that it was to make."""

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
    processes: tuple[int, ...] = ()
    process_mib: tuple[int | None, ...] = ()
    """What each of them holds."""
    own_mib: int | None = None
    """Of it the attempt's."""
