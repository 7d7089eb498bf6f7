"""Judges what is seen in milliseconds: driver, NVML, GPUs, torch against them, shared memory, open files. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from splatbatch.doctor.facts import OF_MACHINE, OF_TRAINER, Finding, Machine, TorchBuild, Version, ok, problem, warning

FEWEST_FILES = 4096
"""Loader workers and cached photographs need thousands."""
SHARED_MEMORY_MIB = 64
MINOR_COMPATIBLE = 11
"""From CUDA 11 on a driver runs programs of every minor version of its own major one (CUDA Compatibility)."""
INSTALL = "pip install -c constraints.txt ., with the wheel of torch that pytorch.org names for the driver's CUDA."


def of_machine(machine: Machine, *, on_cpu: bool = False) -> Iterator[Finding]:
    """Yield what there is to say of a machine; `on_cpu`: whoever trains has asked for the CPU."""
    yield versions(machine)
    if on_cpu:
        yield ok("device", "trains on the CPU, as the YAML says")
    else:
        yield driver(machine)
        yield from cards(machine)
        yield torch_build(machine)
    yield shared_memory(machine.shm_mib)
    yield open_files(machine.open_files)


def versions(machine: Machine) -> Finding:
    """Say what is installed in which version."""
    return ok("versions", ", ".join(f"{name} {number}" for name, number in machine.versions.items()))


def driver(machine: Machine) -> Finding:
    """Judge whether NVML answers, and what it says of the driver."""
    if why := machine.presence.why_unusable():
        remedy = "Reboot after a driver update, see dmesg and nvidia-smi; start a container with its GPUs (--gpus all)."
        return problem("driver", why, remedy, OF_MACHINE)
    if not machine.presence.cards:
        return ok("driver", "no NVIDIA GPU here: trains on the CPU; more than an hour of it needs training.device: cpu")
    cuda = f", CUDA {_spell(machine.driver_cuda)}" if machine.driver_cuda else ""
    return ok("driver", f"NVIDIA driver {machine.driver or 'of unknown version'}{cuda}; NVML answers")


def cards(machine: Machine) -> Iterator[Finding]:
    """Say which GPUs there are."""
    for card in machine.presence.cards:
        capability = f", compute capability {_spell(card.capability)}" if card.capability else ""
        yield ok(f"gpu {card.index}", f"{card.name}, {card.total_mib:,} MiB{capability}")


def torch_build(machine: Machine) -> Finding:
    """Judge whether the torch that is installed can use the GPUs and their driver."""
    build, here = machine.torch, machine.presence
    if build is None:
        return problem("torch", "the Python package torch is not installed", INSTALL, OF_TRAINER)
    if not here.cards:
        return ok("torch", f"torch {build.version}")
    if build.cuda is None:
        return problem("torch", f"torch {build.version} is built without CUDA, and a GPU is here", INSTALL, OF_TRAINER)
    if machine.driver_cuda and not _runs(machine.driver_cuda, build.cuda):
        said = f"torch {build.version} needs CUDA {_spell(build.cuda)}, the driver is too old: it runs CUDA up to"
        return problem("torch", f"{said} {_spell(machine.driver_cuda)}", f"Update the driver; or {INSTALL}", OF_MACHINE)
    return ok("torch", f"torch {build.version} for CUDA {_spell(build.cuda)}, which the driver runs")


def shared_memory(shm_mib: tuple[int, int] | None) -> Finding:
    """Judge the room in /dev/shm; the batch waits while there is less than it wants, as its gate does."""
    if shm_mib is None:
        return ok("shared memory", "no /dev/shm here")
    total, free = shm_mib
    if free < min(SHARED_MEMORY_MIB, total // 2):
        remedy = "Free some: nothing is started before. Files of programs that died lie in /dev/shm; docker --shm-size."
        return problem("shared memory", f"{free} MiB of {total} free in /dev/shm", remedy, OF_MACHINE)
    if total <= SHARED_MEMORY_MIB:
        remedy = "Enough for our own trainer; others with loader workers want docker --shm-size=8g."
        return warning("shared memory", f"only {total} MiB of /dev/shm, {free} free", remedy)
    return ok("shared memory", f"{free:,} of {total:,} MiB free in /dev/shm")


def open_files(most: int) -> Finding:
    """Judge how many files a process may open at most: attempts raise their own limit to that."""
    if most < FEWEST_FILES:
        remedy = f"Raise the hard limit: ulimit -Hn {FEWEST_FILES * 16}, /etc/security/limits.conf, LimitNOFILE=."
        return warning("open files", f"a process may open {most} at most", remedy)
    return ok("open files", f"up to {most:,} per process")


def _runs(driver_cuda: Version, built_for: Version) -> bool:
    same_major = driver_cuda[0] == built_for[0] >= MINOR_COMPATIBLE
    return same_major or driver_cuda >= built_for


def _spell(version: Version | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "?"


def parse_build(text: str) -> TorchBuild:
    """Return what torch/version.py says.

    Raises:
        ValueError: it says nothing of a version.
    """
    values = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and (line[:1].isalpha() or line.startswith("__version__")):
            values[name.partition(":")[0].strip()] = value.strip().strip("'\"")
    if "__version__" not in values:
        raise ValueError("no __version__")
    return TorchBuild(values["__version__"], parse_version(values.get("cuda", "")))


def parse_version(text: str) -> Version | None:
    """Return the first two numbers of "13.0.88"; None of anything else."""
    numbers = text.split(".")[:2]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 and all(map(str.isdecimal, numbers)) else None
