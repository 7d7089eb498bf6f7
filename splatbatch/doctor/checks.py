"""Pure checks of facts about a machine and a batch: driver, torch, kernels, disk, trainers, optional parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from splatbatch.config import Recipe
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.errors import ExecutorError, TrainerError
from splatbatch.files import MIB, SHARED_MEMORY_MIB
from splatbatch.machine.gpu import GpuAvailability
from splatbatch.scene.memory_estimate import MemoryEstimate

Version = tuple[int, int]
"""Major and minor version, of CUDA or of a compute capability."""
OF_TRAINER, OF_MACHINE = TrainerError.exit_code, ExecutorError.exit_code
"""Exit codes of `doctor`: 4 if the trainer has a problem, 5 if the machine has one."""
FLOAT = 4  # bytes
BESIDES_MIB = 20
"""Disk space in MiB of a patch besides splat and checkpoint: pictures, log, progress (estimated, not measured)."""
EXTRAS = {
    "gsply": ("web", "splats that open in 3D in report.html, publish.formats: compressed"),
    "apprise": ("notify", "notify.urls"),
    "tensorboard": ("tensorboard", "evaluation.tensorboard"),
    "torchmetrics": ("lpips", "LPIPS beside PSNR and SSIM"),
    "pyproj": ("geo", "3D Tiles on the globe (scene.crs)"),
    "mlflow-skinny": ("mlflow", "tracking.mlflow"),
    "asyncssh": ("stores", "executor.store: ssh://"),
    "obstore": ("stores", "executor.store: s3://"),
}
"""Optional extra of each package, and its purpose."""
FEWEST_FILES = 4096
"""Fewest open files that a process should be allowed: loader workers and cached photographs need thousands."""
MINOR_COMPATIBLE = 11
"""CUDA major version from which a driver runs all minor versions of its own major version (CUDA Compatibility)."""
INSTALL = (
    "pip install -c constraints.txt . (in splatbatch's clone), with the torch that pytorch.org names for the driver."
)
"""Remedy for a missing or unsuitable torch."""


@dataclass(frozen=True)
class TorchBuild:
    """The installed torch, as read from its files without importing it."""

    version: str
    cuda: Version | None
    """CUDA version that torch is built for; None if it is built without CUDA."""


@dataclass(frozen=True)
class Machine:
    """Facts about this machine that are gathered in milliseconds, without importing torch.

    `driver` is the version of the NVIDIA driver, empty if unknown or without a GPU. `torch` is None if torch is not
    installed or cannot be read.
    """

    presence: GpuAvailability = field(default_factory=GpuAvailability)
    """GPUs of this machine, or why they cannot be used; by default there is none."""
    driver: str = ""
    driver_cuda: Version | None = None
    """Latest CUDA version that the driver supports; None: unknown, or no driver."""
    torch: TorchBuild | None = None
    shm_mib: tuple[int, int] | None = None
    """Total and free MiB of /dev/shm; None: this machine has no /dev/shm."""
    open_files: int = 1 << 16
    """Hard limit of open files per process; `sys.maxsize`: there is none."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of splatbatch, Python and packages; packages that are not installed are left out. Empty: not read."""


@dataclass(frozen=True)
class TorchProbe:
    """Result of trying the GPUs in a separate process with torch, which may hang or crash with the driver."""

    error: str = ""
    """Reason why the process gave no answer, or why torch has no CUDA; empty: all is well."""
    architectures: tuple[str, ...] = ()
    """GPU architectures that torch was built for, such as "sm_90" or "compute_90"; empty: unknown."""
    launch_error: str = ""
    """Error of launching a tiny kernel of torch; empty: the kernel ran, or was not tried because of `error`."""
    lacking: tuple[str, ...] = ()
    """Builtin kernels that are not compiled yet for a GPU of this machine; empty: none is, or none was looked for."""
    kernels_error: str = ""
    """Reason why the builtin kernels do not work, or cannot be compiled; empty: they work, or were not tried.

    They are tried only without the errors above, and once none is lacking.
    """
    has_gsplat: bool = False
    """Whether the CUDA extension of gsplat is built; False, too, if `error` is set."""


@dataclass(frozen=True)
class MachineNeeds:
    """Needs of a batch, and whether the machine meets them: disk, trainers, device."""

    folder: Path
    """The output folder."""
    can_write: bool = True
    """Whether the output folder can be written, or made."""
    free_mib: int | None = None
    """Free space for the output folder, in MiB; None: unknown."""
    need_mib: int = 0
    """Estimated size of all files that the batch will write, in MiB, without patches of unknown size; 0: unknown."""
    wanted_mib: int = 0
    """Free space in MiB below which no patch is started: `limits.free_disk_mib`; 0: no limit."""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Messages on everything that is missing for a trainer, by trainer; empty for a trainer that is complete."""
    on_cpu: bool = False
    """Whether the batch trains on the CPU although the machine has a GPU."""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check, a line of `doctor`: its state, a message, and what to do about it (empty if nothing)."""

    check: str
    state: Literal["ok", "warning", "problem"]
    message: str
    remedy: str = ""
    exit_code: int = 0
    """For a problem: 4 if the trainer cannot run here, 5 if the machine is the cause; otherwise 0."""


def ok(check: str, message: str) -> CheckResult:
    """Return a result that needs no action."""
    return CheckResult(check, "ok", message)


def warning(check: str, message: str, remedy: str) -> CheckResult:
    """Return a result that does not prevent training; `remedy` says what to do."""
    return CheckResult(check, "warning", message, remedy)


def problem(check: str, message: str, remedy: str, exit_code: int) -> CheckResult:
    """Return a result that prevents training.

    Args:
        check: name of the check.
        message: what is wrong.
        remedy: what to do about it.
        exit_code: 4 if the trainer cannot run here, 5 if the machine is the cause.
    """
    return CheckResult(check, "problem", message, remedy, exit_code)


@dataclass(frozen=True)
class DoctorOutput:
    """Result of `doctor --json`: the results of all checks, and the exit code that follows from them."""

    findings: tuple[CheckResult, ...]
    told: ClassVar = ("exit_code",)

    @property
    def exit_code(self) -> int:
        """Return 5 if the machine has a problem, else 4 if the trainer has one, else 0."""
        return max((finding.exit_code for finding in self.findings), default=0)


def of_job(job: MachineNeeds) -> Iterator[CheckResult]:
    """Yield the results of the checks of a batch: output folder, disk, trainers."""
    yield output_folder(job)
    yield disk(job)
    yield from trainers(job.lacking)


def output_folder(job: MachineNeeds) -> CheckResult:
    """Return the result of the check that the output folder can be written: "ok", or a problem of the machine."""
    if job.can_write:
        return ok("output folder", f"{job.folder} can be written")
    return problem(
        "output folder",
        f"{job.folder} cannot be written",
        "Choose another output.folder, or fix its permissions.",
        OF_MACHINE,
    )


def disk(job: MachineNeeds) -> CheckResult:
    """Return the result of the check of free disk space.

    Below `limits.free_disk_mib` no patch starts: a problem. Too little for the whole batch is a warning. If the free
    space is unknown, the result is "ok".
    """
    if job.free_mib is None:
        return ok("disk", f"the free space of {job.folder} is unknown")
    room, remedy = f"{job.free_mib:,} MiB free for {job.folder}", "Free space, or choose another output.folder."
    wanted, written = f"{job.wanted_mib:,} MiB", f"the batch will write about {job.need_mib:,} MiB"
    if job.free_mib < job.wanted_mib:
        said = f"{room}, {wanted} required (limits.free_disk_mib): no patch starts with less"
        return problem("disk", said, remedy, OF_MACHINE)
    if job.free_mib < job.need_mib + job.wanted_mib:
        return warning("disk", f"{room}; {written} and pauses below {wanted}", remedy)
    return ok("disk", f"{room}, {written}")


def trainers(lacking: Mapping[str, tuple[str, ...]]) -> Iterator[CheckResult]:
    """Yield a result for each trainer: a problem if something that it needs is missing, else "ok".

    Args:
        lacking: messages on everything that is missing, by trainer; empty messages: nothing is missing.
    """
    for name, missing in lacking.items():
        fix = f"Fix trainers.{name} in the YAML, or install the trainer; see `splatbatch doctor --trainers`."
        remedy = f"Install splatbatch: {INSTALL}" if name == OUR_TRAINER else fix
        check = f"trainer {name}"
        yield problem(check, "; ".join(missing), remedy, OF_TRAINER) if missing else ok(check, "found")


def extras(versions: Mapping[str, str], wanted: frozenset[str]) -> Iterator[CheckResult]:
    """Yield a result for each package of an extra: a warning if the YAML needs a missing one, else "ok".

    Args:
        versions: versions of installed packages, by name.
        wanted: packages of extras that the YAML needs.
    """
    for package, (extra, purpose) in EXTRAS.items():
        remedy = f"pip install 'splatbatch[{extra}]'"
        if package in versions:
            yield ok(f"extra {extra}", f"{package} {versions[package]}: {purpose}")
        elif package in wanted:
            yield warning(f"extra {extra}", f"not installed, and the YAML asks for it: {purpose}", f"Run {remedy}.")
        else:
            yield ok(f"extra {extra}", f"not installed (optional): {purpose}: {remedy}")


def disk_mib(recipes: Mapping[str, Recipe], footprints: Mapping[str, MemoryEstimate]) -> int:
    """Return an upper estimate in MiB of the files that training these patches writes, for the check of free space.

    Args:
        recipes: recipe of each patch, by name.
        footprints: memory estimates by patch; patches without an estimate are not counted.
    """
    total = 0
    for name, footprint in footprints.items():
        training = recipes[name].training
        floats = 11 + 3 * (training.sh_degree + 1) ** 2  # position, scales, quaternion, opacity; harmonics
        copies = 4 if training.checkpoint_every else 1  # a checkpoint also has Adam's two moments
        total += BESIDES_MIB + footprint.num_gaussians * floats * FLOAT * copies // MIB
    return total


def of_machine(machine: Machine, job: MachineNeeds | None = None) -> Iterator[CheckResult]:
    """Yield the results of the checks of a machine.

    Args:
        machine: facts about the machine.
        job: needs of a batch; None: a batch of the builtin trainer is assumed. Without that trainer, torch is not
            checked; on the CPU neither torch, driver nor GPUs are.
    """
    yield ok("versions", ", ".join(f"{name} {number}" for name, number in machine.versions.items()))
    if job and job.on_cpu:
        yield ok("device", "trains on the CPU, as the YAML says")
    else:
        yield driver(machine)
        for card in machine.presence.cards:
            capability = f", compute capability {spell(card.capability)}" if card.capability else ""
            yield ok(f"gpu {card.index}", f"{card.name}, {card.total_mib:,} MiB{capability}")
        if not job or OUR_TRAINER in job.lacking:
            yield torch_build(machine)
    yield shared_memory(machine.shm_mib, waits=not job or job.wanted_mib > 0)
    yield open_files(machine.open_files)


def driver(machine: Machine) -> CheckResult:
    """Return the result of the check that NVML answers, with the version of the driver.

    A machine without a GPU is "ok"; a GPU that cannot be used is a problem.
    """
    if why := machine.presence.why_unusable():
        remedy = "Reboot after a driver update; check dmesg and nvidia-smi; start containers with --gpus all."
        return problem("driver", why, remedy, OF_MACHINE)
    if not machine.presence.cards:
        return ok(
            "driver", "no NVIDIA GPU here: trains on the CPU; a batch of more than an hour needs training.device: cpu"
        )
    cuda = f", CUDA {spell(machine.driver_cuda)}" if machine.driver_cuda else ""
    return ok("driver", f"NVIDIA driver {machine.driver or 'of unknown version'}{cuda}; NVML answers")


def torch_build(machine: Machine) -> CheckResult:
    """Return the result of the check that torch is built for CUDA, and for a version that the driver supports.

    From CUDA 11 on, a driver runs all minor versions of its major one; a driver of unknown CUDA passes. Without a GPU
    any torch is "ok". A missing torch is a problem.
    """
    build, here = machine.torch, machine.presence
    if build is None:
        return problem("torch", "the Python package torch is not installed", INSTALL, OF_TRAINER)
    if not here.cards:
        return ok("torch", f"torch {build.version}")
    if build.cuda is None:
        return problem(
            "torch", f"torch {build.version} is built without CUDA, but this machine has a GPU", INSTALL, OF_TRAINER
        )
    driver_cuda = machine.driver_cuda or build.cuda
    is_minor = driver_cuda[0] == build.cuda[0] >= MINOR_COMPATIBLE
    if driver_cuda < build.cuda and not is_minor:
        said = f"torch {build.version} needs CUDA {spell(build.cuda)}, the driver is too old: it runs CUDA up to"
        return problem("torch", f"{said} {spell(driver_cuda)}", f"Update the driver; or {INSTALL}", OF_MACHINE)
    return ok("torch", f"torch {build.version} for CUDA {spell(build.cuda)}, which the driver runs")


def shared_memory(shm_mib: tuple[int, int] | None, *, waits: bool = True) -> CheckResult:
    """Return the result of the check of free space in /dev/shm.

    No patch starts while less than `SHARED_MEMORY_MIB`, and less than half of its size, is free: a problem. A size of
    at most `SHARED_MEMORY_MIB` is a warning.

    Args:
        shm_mib: total and free MiB; None: this machine has no /dev/shm, which is "ok".
        waits: whether patches wait for free space there; if not, too little is no problem.
    """
    if shm_mib is None:
        return ok("shared memory", "no /dev/shm here")
    total, free = shm_mib
    if waits and free < (needed := min(SHARED_MEMORY_MIB, total // 2)):
        remedy = f"A patch needs {needed} MiB free to start. Remove old files there, or start docker with --shm-size."
        return problem("shared memory", f"{free} MiB of {total} free in /dev/shm", remedy, OF_MACHINE)
    if total <= SHARED_MEMORY_MIB:
        remedy = "Enough for the builtin trainer; others may need more: start docker with --shm-size=8g."
        return warning("shared memory", f"only {total} MiB of /dev/shm, {free} free", remedy)
    return ok("shared memory", f"{free:,} of {total:,} MiB free in /dev/shm")


def open_files(most: int) -> CheckResult:
    """Return the result of the check of the hard limit of open files; fewer than `FEWEST_FILES` are a warning.

    Attempts raise their own limit up to the hard limit.

    Args:
        most: hard limit of open files per process.
    """
    if most < FEWEST_FILES:
        remedy = f"Raise it: ulimit -Hn {FEWEST_FILES * 16}, /etc/security/limits.conf, or systemd's LimitNOFILE=."
        return warning("open files", f"a process may open {most} files at most", remedy)
    return ok("open files", f"up to {most:,} per process")


def spell(version: Version) -> str:
    """Return a version as text, such as "9.0" for (9, 0)."""
    return f"{version[0]}.{version[1]}"


def parse_build(text: str) -> TorchBuild:
    """Return the torch build from the text of torch/version.py.

    Raises:
        KeyError: the text has no version.
    """
    values = dict(re.findall(r"^(__version__|cuda)\b[^=\n]*= *['\"]?([^'\"\n]+)", text, re.MULTILINE))
    cuda = re.match(r"(\d+)\.(\d+)(\.|$)", values.get("cuda", ""))
    return TorchBuild(values["__version__"], (int(cuda[1]), int(cuda[2])) if cuda else None)


def of_kernels(machine: Machine, probe: TorchProbe, *, wants_gsplat: bool = False) -> Iterator[CheckResult]:
    """Yield the results of the checks of kernels on a machine with a GPU.

    The builtin kernels are checked only if torch runs there.

    Args:
        machine: facts about the GPUs and torch.
        probe: result of the process that tried the GPUs.
        wants_gsplat: whether a patch is trained with `training.kernels: gsplat`.
    """
    capabilities = tuple(dict.fromkeys(card.capability for card in machine.presence.cards if card.capability))
    yield torch_kernels(probe, capabilities)
    if not probe.error and not probe.launch_error:
        yield own_kernels(probe)
    if wants_gsplat:
        yield gsplat(probe)


def torch_kernels(probe: TorchProbe, capabilities: Iterable[Version]) -> CheckResult:
    """Return the result of the check that torch has kernels for the GPUs of this machine, and runs one.

    Without kernels for a GPU, a training would fail with "no kernel image".

    Args:
        probe: result of the process that tried the GPUs.
        capabilities: compute capability of each GPU; empty: unknown, and only the result of the process counts.
    """
    if probe.error:
        remedy = (
            "Fix what the message names; check nvidia-smi, dmesg, and that no process holds the GPU in exclusive mode."
        )
        return problem("cuda", probe.error, remedy, OF_MACHINE)
    for capability in capabilities:
        if probe.architectures and not can_run(capability, probe.architectures):
            have = f"torch has kernels for {', '.join(probe.architectures)}"
            said = f"no kernel image for compute capability {spell(capability)}: {have}"
            return problem("cuda", said, "Install a torch that was built for this GPU: see pytorch.org.", OF_TRAINER)
    if probe.launch_error:
        return problem(
            "cuda", f"torch cannot run a kernel: {probe.launch_error}", "Check nvidia-smi and dmesg.", OF_MACHINE
        )
    return ok("cuda", f"torch runs here; built for {', '.join(probe.architectures) or 'this GPU'}")


def can_run(capability: Version, architectures: Iterable[str]) -> bool:
    """Return whether code for one of these architectures runs on a GPU (CUDA C++ Programming Guide, compatibility).

    Binary code (sm) runs on the same major version with an equal or later minor version. PTX (compute) is compiled at
    load time for every later capability; with the suffix f only within its major version. With the suffix a, both run
    on exactly that capability.

    Args:
        capability: compute capability of the GPU, as (9, 0).
        architectures: names such as "sm_90" or "compute_90"; others are ignored.
    """
    for kind, major, minor, suffix in re.findall(r"\b(sm|compute)_(\d+)(\d)([af]?)\b", " ".join(architectures)):
        built = (int(major), int(minor))
        is_later = capability >= built and suffix != "a"
        if capability == built or (is_later and (capability[0] == built[0] or (kind == "compute" and not suffix))):
            return True
    return False


def own_kernels(probe: TorchProbe) -> CheckResult:
    """Return the result of the check that the builtin kernels work, or will once they are compiled.

    If they do not work, this is a warning where gsplat's kernels can replace them, else a problem.
    """
    if probe.lacking or not probe.kernels_error:
        at_first_use = "are compiled at first use, in seconds; `splatbatch doctor --warm` compiles them now"
        return ok("kernels", f"splatbatch's GPU kernels {at_first_use if probe.lacking else 'are compiled and work'}")
    said = f"splatbatch's GPU kernels do not work here: {probe.kernels_error}"
    if probe.has_gsplat:
        return warning("kernels", said, "gsplat's kernels are used instead; a step takes almost twice as long.")
    return problem("kernels", said, f"Fix what the message names; or {INSTALL}", OF_TRAINER)


def gsplat(probe: TorchProbe) -> CheckResult:
    """Return the result of the check that gsplat's kernels are built.

    No training builds them, so a missing build is a problem.
    """
    if probe.has_gsplat:
        return ok("gsplat", "the GPU kernels of gsplat are built")
    remedy = "Build them in some minutes with `splatbatch doctor --warm`, or install gsplat's own wheel."
    return problem("gsplat", "the GPU kernels of gsplat are not built, and no training builds them", remedy, OF_TRAINER)
