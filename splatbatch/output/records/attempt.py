"""Records in the folder of an attempt: its job, how it is watched, its start, heartbeat, progress, and its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from splatbatch.fields import mapping, number, text
from splatbatch.outcome import Exit, Lost, exit_from_record, exit_to_record
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.process import ProcessIdentity
from splatbatch.output.records.record import ABSENT, TypedRecord, environment, reads


def _limit(value: object) -> object:
    known = number(value)
    return ABSENT if known is None else max(0.0, known)


@dataclass(frozen=True)
class TimeLimits(TypedRecord):
    """Time limits of an attempt, in seconds, at which the supervisor ends it."""

    wall_s: float = field(default=float("inf"), metadata=reads(_limit))
    """Longest duration of the attempt, in seconds; infinity: no limit. The wait of a standby does not count."""
    grace_s: float = field(default=10.0, metadata=reads(_limit))
    """Seconds that the training gets to end after SIGTERM, before SIGKILL."""
    stall_s: float = field(default=0.0, metadata=reads(_limit))
    """Longest time without a sign of progress, in seconds; 0: no limit."""


@dataclass(frozen=True)
class Claim(TypedRecord):
    """A worker's claim on a task, which holds until a claim with a higher number (generation) is made."""

    worker: str = ""
    """Name of the worker; empty: no worker has claimed the task."""
    generation: int = 0
    """Number of the claim, from 1; 0: the task is not claimed here, as for an attempt that came home from a store."""
    follows: int | None = None
    """Number of the newest accepted record when the task was claimed, or the claim renewed. 0: none yet.

    None: an earlier version made the claim.

    Accepted records are numbered files, one for each splat of the patch that was accepted. A splat trained under the
    claim can only become record `follows` + 1, so that a worker that has lost its claim cannot overwrite a newer splat.
    """


@dataclass(frozen=True)
class JobSpec(TypedRecord):
    """job.json: the command that the supervisor runs, and the facts by which a later run collects the attempt."""

    key: str = ""
    """Name of the attempt, unique among all output folders."""
    argv: tuple[str, ...] = ()
    """Command to run; empty: the attempt cannot be started."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    """Environment variables that are set for the command, beside those of the supervisor."""
    gpu: str | None = None
    """UUID of the GPU; None: the attempt runs on the CPU. For a standby the GPU in go.json counts."""
    slot: str = ""
    """Name of the slot (a GPU, a share of one, or the CPU) on which the attempt runs; for a standby see go.json."""
    standby: bool = False
    """Whether the process is started early, prepares without the GPU, then waits for go.json."""
    limits: TimeLimits = TimeLimits()
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings in which the attempt differs from the YAML at its start, by full name; empty: none."""
    depends_on: Fingerprint = field(default=Fingerprint())
    """Settings and inputs that the attempt trains from; blank: it trains no splat."""
    is_retry: bool = False
    """Whether `retry` requested the attempt: the better one of its splat and the accepted splat is kept."""
    claim: Claim = Claim()
    """Claim on the task when the attempt started."""


@dataclass(frozen=True)
class Go(TypedRecord):
    """go.json: order to an attempt that waits for a GPU to train on it; ahead.json: to open its CUDA context there."""

    gpu: str | None = None
    """UUID of the GPU; None: the slot is the CPU."""
    slot: str = ""
    """Name of the slot (a GPU, a share of one, or the CPU) on which the attempt trains."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    """Environment variables by which the process sees that GPU alone, and those of the slot, as for CUDA MPS."""
    at: float | None = None
    """Time of the order in seconds since 1970; None: unknown."""


@dataclass(frozen=True)
class Start(ProcessIdentity):
    """start.json: identity of the supervisor, its start in seconds since 1970, and the control group of its processes.

    `group` is None where there is no control group, `started_at` if the start is unknown.
    """

    started_at: float | None = None
    group: str | None = None


@dataclass(frozen=True)
class Heartbeat(TypedRecord):
    """heartbeat.json: a number (`sequence`) that grows while the supervisor lives, and the processes below it."""

    sequence: int = 0
    child: int | None = None
    """Process id of the command that the supervisor runs; None: unknown."""
    below: tuple[str, ...] = ()
    """Descendant processes of the supervisor, each by process id and start in clock ticks since boot: "4711:123456"."""


@dataclass(frozen=True)
class ExitFacts(TypedRecord):
    """exit.json: how the process ended, and the state of memory and disks, for the diagnosis.

    None in a field: unknown.
    """

    end: Exit = field(default=Lost("exit.json cannot be read"), metadata=reads(lambda end: end))
    seconds: float | None = None
    """Duration of the attempt in seconds, without the wait of a standby for its GPU."""
    ended_at: float | None = None
    """Time of the end in seconds since 1970."""
    out_of_memory: bool = False
    """Whether the kernel's OOM killer ended a process of the attempt."""
    kernel_lines: tuple[str, ...] = ()
    """Lines of the kernel's log that concern the attempt, as of its GPU; empty: none."""
    disk_free_mib: int | None = None
    """Least free space on the disk of the output folder while the attempt ran, in MiB; None: unknown."""
    own_gpu_peak_mib: float | None = None
    """Most GPU memory that NVML saw the attempt hold, in MiB; None: unknown."""
    shm_free_mib: int | None = None
    """Least free shared memory while the attempt ran, in MiB; None: unknown."""
    stood_by: bool = False
    """Whether the attempt only waited for a GPU: it was never told to train, or had died by then."""

    @classmethod
    def from_record(cls, record: object) -> ExitFacts:
        """Return the record of a JSON object; an end that cannot be read counts as `Lost`, and nothing is raised."""
        found = mapping(record)
        return super().from_record({**found, "end": exit_from_record(found)})

    def to_record(self) -> dict[str, Any]:
        """Return the record as a JSON object, with the fields of `end` among its own."""
        facts = super().to_record()
        del facts["end"]
        return {**exit_to_record(self.end), **facts}


@dataclass(frozen=True, kw_only=True)
class AttemptFacts(TypedRecord):
    """Facts on an ended attempt that both the ledger and the manifest of its splat hold; None in a field: unknown."""

    seconds: float | None = None
    """Duration of the attempt in seconds, without the wait of a standby for its GPU."""
    step: int | None = None
    """Last step of the training."""
    phase: str | None = None
    """Last phase of the attempt, see `ProgressLine.phase`; in the ledger also the phase of a fault before or after the
    training, as "collect"."""
    gpu_peak_mib: float | None = None
    """Most memory in use on the GPU while the attempt ran, by all processes, in MiB."""
    own_gpu_peak_mib: float | None = None
    """Most GPU memory that NVML saw the attempt hold, in MiB."""


@dataclass(frozen=True)
class Finish(TypedRecord):
    """Files by which an external trainer is known to have finished, as paths below `output` of the attempt's folder."""

    products: tuple[str, ...] = ()
    """Globs of the splat: the file of the highest step counts, of equal ones the newest. Empty: an export follows."""
    step: str = ""
    """Regular expression that finds the step in the path of a splat; empty: the path names none."""
    last_step: int | None = None
    """Step that the splat must have reached; None: unknown."""
    files: tuple[str, ...] = ()
    """Globs of further required files; empty: none."""
    awaited: tuple[str, ...] = ()
    """Globs of optional files, which are waited for; empty: none."""


MEASURING = "measuring"
"""Phase in which splatbatch measures the splat of an external trainer."""


@dataclass(frozen=True)
class Then(TypedRecord):
    """Second command of an external trainer, which exports a splat from the files of the first command."""

    argv: tuple[str, ...] = ()
    finish: Finish = Finish()
    phase: str = "export"


@dataclass(frozen=True)
class WatchSettings(TypedRecord):
    """watch.json: how the supervisor runs and watches an external trainer, in addition to job.json."""

    cwd: str | None = None
    """Working folder of the trainer, absolute or relative to the attempt's folder; None: not set."""
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    """Environment variables that the YAML sets for the trainer."""
    progress: dict[str, str] = field(default_factory=dict)
    """Regular expressions that find figures in the log, by the name of the figure; an empty one finds none."""
    max_steps: int = 0
    """Number of steps of the training; 0: unknown."""
    phase: str = field(default="start", metadata=reads(lambda value: text(value) or "start"))
    """Phase in which the command begins: "start" for the training, "export" or "measuring" for a later command."""
    finish: Finish = Finish()
    finished_after_s: float = 0.0
    """Seconds of silence after which a trainer whose files are complete counts as finished; 0: never."""
    then: Then | None = None
    """Second command, run after the first one has succeeded; None: there is none."""
    metrics: tuple[str, ...] = ()
    """Globs of the file with the trainer's own figures; empty: it writes none."""
    measure: tuple[str, ...] = ()
    """Command that measures the splat, to which the path of the splat is appended; empty: no measurement.

    The command runs in the environment of splatbatch once all files of the trainer exist.
    """
    shown: tuple[str, ...] = ()
    """Names of environment variables whose values may be shown: settings, or texts too short to be secrets."""

    def final(self) -> Finish:
        """Return the files that the last command of the trainer should write."""
        return self.then.finish if self.then else self.finish

    def globs(self) -> tuple[str, ...]:
        """Return the globs of all files that are read below `output` once the trainer has ended.

        Empty if there are none.
        """
        return (*self.final().products, *self.final().files, *self.metrics)


RECORDS_PER_RUN = 60
"""Least number of progress lines with a loss per run; the health rules need that many, however fast the trainer is."""


@dataclass(frozen=True)
class ProgressLine(TypedRecord):
    """A line of progress.jsonl: the builtin trainer wrote it, or the supervisor from the log of an external trainer.

    Each line holds new figures only, all others are blank. The figures of a step (loss, …) and of an evaluation (psnr,
    …) are on separate lines.
    """

    t: float | None = None
    """Time of the line in seconds since 1970."""
    seconds: float | None = None
    """Seconds since the attempt began or, for a standby, since its wait ended."""
    phase: str = ""
    """One of: start, load, standby, init, train, eval, export, measuring, done; empty: unknown.

    An inspection, and the evaluation of a merged scene, have phases of their own.
    """
    step: int | None = None
    max_steps: int | None = None
    """Step after which the training ends, as far as is known at this time."""
    loss: float | None = None
    grad_norm: float | None = None
    """Norm of all gradients of the step."""
    num_gaussians: int | None = None
    peak_mib: float | None = None
    """Most GPU memory that torch has had in use, in MiB."""
    reserved_mib: float | None = None
    """GPU memory that torch reserves, in use or not, in MiB; with the context, other programs see it as taken."""
    psnr: float | None = None
    ssim: float | None = None
    lpips: float | None = None
    training_psnr: float | None = None
    psnr_even: float | None = None
    """PSNR in dB on colour-corrected photographs, where there are any; `psnr` is on the original ones."""
    ssim_even: float | None = None
    psnr_covered: float | None = None
    """PSNR in dB on covered pixels; `psnr` is on all pixels that count."""
    health: str = ""
    """Sentence of the health rule that ended the run; empty: none did."""
    warning: str = ""
    highest_step: int | None = None
    """Highest step named in the log of an external trainer; None: the log names none."""
    step_gap: int | None = None
    """Largest distance between two successive steps named in the log of an external trainer."""
    steps_unheard: bool = False
    """Whether a part of the log of an external trainer was not read."""
    planned_steps: int | None = None
    """Number of steps planned at first, in lines since an early end of the training was decided; else None."""

    def to_record(self) -> dict[str, Any]:
        """Return the line as a JSON object without fields that are None, "" or False."""
        said = super().to_record()
        return {name: value for name, value in said.items() if value not in (None, "") and value is not False}

    def figure(self, name: str) -> float | None:
        """Return a figure by the name of its field, as "psnr"; None: the line has none.

        Raises:
            AttributeError: there is no such field.
        """
        value: float | None = getattr(self, name)
        return value


@dataclass(frozen=True)
class GpuSample(TypedRecord):
    """A sample of a GPU by NVML, and a line of gpu.jsonl; figures that NVML cannot give are None."""

    t: float | None = None
    """Time of the sample in seconds since 1970; None: unknown."""
    used_mib: int | None = None
    total_mib: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    processes: tuple[int, ...] = ()
    """Ids of the processes that use the GPU; empty: there are none, or NVML cannot say."""
    process_mib: tuple[int | None, ...] = ()
    """GPU memory held by each of `processes`, in MiB and in the same order; None: unknown."""
    own_mib: int | None = None
    """GPU memory held by the attempt's own processes, in MiB; None: unknown."""
