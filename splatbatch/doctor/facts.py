"""What is known of a machine and of a batch, gathered elsewhere or made up in a test; and what a judge finds in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from splatbatch.errors import ExecutorError, TrainerError
from splatbatch.machine.gpu import Presence

Version = tuple[int, int]
"""Major and minor, of CUDA or of a compute capability."""
OF_TRAINER, OF_MACHINE = TrainerError.exit_code, ExecutorError.exit_code


@dataclass(frozen=True)
class TorchBuild:
    """Which torch is installed, read from its files."""

    version: str
    cuda: Version | None
    """None: a build without CUDA."""


@dataclass(frozen=True)
class Machine:
    """What can be seen in milliseconds, without torch."""

    presence: Presence = field(default_factory=Presence)
    driver: str = ""
    driver_cuda: Version | None = None
    """The latest CUDA that the driver runs programs of."""
    torch: TorchBuild | None = None
    shm_mib: tuple[int, int] | None = None
    """Of shared memory: all, and free."""
    open_files: int = 1 << 16
    """As many as a process may have at most."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Python and of packages; a package that is not installed is left out."""


@dataclass(frozen=True)
class Lock:
    """A file that keeps an extension from being built by two at once."""

    path: Path
    age_s: float
    is_compiling: bool
    """Whether any compiler runs on this machine."""


@dataclass(frozen=True)
class Toolchain:
    """What builds kernels here, and what is built already."""

    gsplat: str = ""
    """"prebuilt", "built", or empty: it will be built by who needs it first."""
    nvcc: Path | None = None
    nvcc_version: Version | None = None
    compiler: str = ""
    """The C++ compiler, if there is one."""
    has_headers: bool = True
    """Whether Python's own headers are here: Triton compiles a few lines against them."""
    has_ninja: bool = True
    locks: tuple[Lock, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What a process with torch saw: it may hang or die where the driver does, and we do not."""

    error: str = ""
    """Why there is no answer, or why torch has no CUDA."""
    architectures: tuple[str, ...] = ()
    """That torch was built for, as "sm_90" or "compute_90"."""
    launch_error: str = ""
    """Of a first tiny kernel of torch."""
    triton_error: str = ""
    """Of a first kernel of ours."""
    kernels: tuple[str, ...] = ()
    """Ours, all of them."""
    cached: tuple[str, ...] = ()
    """Those that are compiled already for a GPU that is here."""
    groups: tuple[str, ...] = ()
    """What can be built ahead, each in a process of its own."""
    has_native: bool = False
    """Whether our kernels in CUDA C++ are built for the GPUs here."""


@dataclass(frozen=True)
class Job:
    """What a batch asks of the machine."""

    folder: Path
    """Of the output."""
    can_write: bool = True
    free_mib: int | None = None
    need_mib: int = 0
    wanted_mib: int = 0
    """`limits.free_disk_mib`."""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each trainer: what is missing here."""
    trains_itself: bool = True
    """Whether our own trainer is one of them."""
    on_cpu: bool = False
    extras: frozenset[str] = frozenset()
    """Optional parts that the YAML asks for."""


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`."""

    check: str
    state: Literal["ok", "warning", "problem"]
    message: str
    remedy: str = ""
    exit_code: int = 0
    """Of a problem: 4 if the trainer cannot run here, 5 if it is the machine."""


def ok(check: str, message: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that does not keep anything from being trained."""
    return Finding(check, "warning", message, remedy)


def problem(check: str, message: str, remedy: str, exit_code: int) -> Finding:
    """Return a finding with which nothing can be trained."""
    return Finding(check, "problem", message, remedy, exit_code)


def worst_exit_code(findings: Iterable[Finding]) -> int:
    """Return 5 if the machine has a problem, else 4 if the trainer has one, else 0."""
    return max((finding.exit_code for finding in findings), default=0)
