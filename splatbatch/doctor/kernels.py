"""Judges what computes on a GPU: torch's kernels for it, gsplat's build, locks, Triton, our kernels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from splatbatch.doctor.facts import (
    OF_MACHINE,
    OF_TRAINER,
    Finding,
    Lock,
    Machine,
    Probe,
    Toolchain,
    Version,
    ok,
    problem,
    warning,
)
from splatbatch.plain_text import counted

STALE_S = 60.0
LEAST_FOR_TRITON = (7, 0)
FIRST_CUDA = {(8, 0): (11, 0), (8, 6): (11, 1), (8, 9): (11, 8), (9, 0): (11, 8), (10, 0): (12, 8), (12, 0): (12, 8)}
"""The CUDA toolkit that first compiles for a compute capability (release notes)."""
DROPPED_BY_13 = (7, 5)
"""CUDA 13 compiles for this and later ones only."""
WARM = "`splatbatch doctor --warm` builds them now, else the first patch does."
PLAIN = "Training works without them, slower (training.kernels: gsplat)"


def of_kernels(machine: Machine, tools: Toolchain, probe: Probe) -> Iterator[Finding]:
    """Yield what there is to say of kernels, on a machine with a GPU."""
    capabilities = tuple(dict.fromkeys(card.capability for card in machine.presence.cards if card.capability))
    yield torch_kernels(probe, capabilities)
    yield gsplat(machine, tools, capabilities)
    yield from locks(tools.locks)
    yield from triton(machine, tools, probe, capabilities)
    yield native(machine, tools, probe, capabilities)


def torch_kernels(probe: Probe, capabilities: Iterable[Version]) -> Finding:
    """Judge whether torch has kernels for the GPUs here: "no kernel image" told beforehand."""
    if probe.error:
        remedy = "Mend what it names; see nvidia-smi, dmesg, and that no other process holds the GPU in exclusive mode."
        return problem("cuda", probe.error, remedy, OF_MACHINE)
    for capability in capabilities:
        if probe.architectures and not can_run(capability, probe.architectures):
            have = f"torch has kernels for {', '.join(probe.architectures)}"
            said = f"no kernel image for compute capability {capability[0]}.{capability[1]}: {have}"
            return problem("cuda", said, "Install a torch that was built for this GPU: see pytorch.org.", OF_TRAINER)
    if probe.launch_error:
        return problem("cuda", f"torch computes nothing: {probe.launch_error}", "See nvidia-smi and dmesg.", OF_MACHINE)
    return ok("cuda", f"torch computes on it, with kernels for {', '.join(probe.architectures) or 'it'}")


def can_run(capability: Version, architectures: Iterable[str]) -> bool:
    """Return whether code for some of these architectures runs on a GPU (CUDA C++ Programming Guide, compatibility).

    Binary code (sm) runs on the same major version and no lower minor one, with an a on that very GPU alone; PTX
    (compute) is compiled on the spot for every later one.
    """
    for name in architectures:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if not found:
            continue
        built = (int(found[2]), int(found[3]))
        if found[4] == "a":
            runs = capability == built
        else:
            runs = capability >= built and (capability[0] == built[0] or (found[1] == "compute" and not found[4]))
        if runs:
            return True
    return False


def gsplat(machine: Machine, tools: Toolchain, capabilities: Iterable[Version]) -> Finding:
    """Judge whether gsplat's kernels are built, or can be."""
    if tools.gsplat:
        return ok("gsplat", f"its kernels are {tools.gsplat}")
    remedy = "Install the CUDA toolkit of torch's version and a C++ compiler (build-essential), or gsplat's own wheel."
    if lacking := _lacking(machine, tools, capabilities):
        return problem("gsplat", f"its kernels are not built, and cannot be: {lacking}", remedy, OF_TRAINER)
    nvcc = f"nvcc {tools.nvcc_version[0]}.{tools.nvcc_version[1]}" if tools.nvcc_version else "nvcc"
    return warning("gsplat", f"its kernels are not built yet: some minutes with {nvcc} at {tools.nvcc}", WARM)


def native(machine: Machine, tools: Toolchain, probe: Probe, capabilities: Iterable[Version]) -> Finding:
    """Judge whether our kernels in CUDA C++ are built, or can be."""
    if probe.has_native:
        return ok("native", "our CUDA kernels are built")
    if lacking := _lacking(machine, tools, capabilities):
        remedy = "gsplat's are used: a step takes almost twice as long. Install the CUDA toolkit of torch's version."
        return warning("native", f"our CUDA kernels are not built, and cannot be: {lacking}", remedy)
    return warning("native", "our CUDA kernels are not built yet: some seconds", WARM)


def _lacking(machine: Machine, tools: Toolchain, capabilities: Iterable[Version]) -> str:
    if tools.nvcc is None:
        return "there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda"
    if not tools.compiler or not tools.has_ninja:
        return "there is no C++ compiler" if tools.has_ninja else "there is no ninja"
    built_for, version = machine.torch.cuda if machine.torch else None, tools.nvcc_version
    if version is None:
        return ""
    number = f"nvcc is of CUDA {version[0]}.{version[1]}"
    if built_for and version[0] != built_for[0]:
        return f"{number}, torch is built for CUDA {built_for[0]}.{built_for[1]}"
    for capability in capabilities:
        first = max((cuda for least, cuda in FIRST_CUDA.items() if least <= capability), default=(0, 0))
        if version < first or (version[0] >= 13 and capability < DROPPED_BY_13):
            return f"{number}, which does not compile for compute capability {capability[0]}.{capability[1]}"
    return ""


def locks(found: Iterable[Lock]) -> Iterator[Finding]:
    """Judge locks of builds: one that nobody holds any more keeps the next build waiting for ever."""
    for lock in found:
        age = f"{lock.age_s / 60:.0f} min old"
        if lock.is_compiling or lock.age_s < STALE_S:
            yield ok("build lock", f"{lock.path}: something is being built, {age}")
        else:
            remedy = f"Remove it: rm {lock.path}"
            yield warning("build lock", f"{lock.path}: {age}, and no compiler runs: left by a build that died", remedy)


def triton(machine: Machine, tools: Toolchain, probe: Probe, capabilities: Iterable[Version]) -> Iterator[Finding]:
    """Judge whether our own kernels can be compiled and are."""
    if "triton" not in machine.versions:
        yield warning("triton", "not installed: our own kernels are not used", f"{PLAIN}: pip install triton.")
        return
    too_old = [one for one in capabilities if one < LEAST_FOR_TRITON]
    if too_old:
        yield warning("triton", f"does not compile for compute capability {too_old[0][0]}.{too_old[0][1]}", f"{PLAIN}.")
        return
    if not tools.compiler or not tools.has_headers:
        lacking = "Python's headers (python3-dev)" if tools.compiler else "a C compiler (build-essential)"
        yield warning("triton", f"{lacking} missing: our own kernels cannot be loaded", f"{PLAIN}; install it.")
        return
    if probe.triton_error:
        yield warning("triton", f"our own kernels do not work here: {probe.triton_error}", f"{PLAIN}.")
        return
    left = [name for name in probe.kernels if name not in probe.cached]
    if left:
        yield warning("triton", f"not compiled yet: {len(left)} of our {counted(len(probe.kernels), 'kernel')}", WARM)
    else:
        yield ok("triton", f"our own kernels ({len(probe.kernels)}) are compiled and cached")
