"""The GPUs of this machine by NVML: names, memory, temperature, processes. The only module that imports pynvml.

NVML needs no CUDA context, so the parent may ask at any time. Any figure may be missing: inside MIG instances and WSL2,
some calls answer "not supported". Such errors are never raised.
"""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml as nvml

from splatbatch.files import MIB
from splatbatch.output.records.attempt import GpuSample

if TYPE_CHECKING:  # every supervisor would wait for all of the config
    from splatbatch.config import Cooldown

FREE_MIB = 64
"""GPU memory in MiB, in use beyond the value before the batch, that still counts as free.

An H200 had given 20 GB back 0.1 ms after the end of a process. Drivers and displays vary by some MiB; a CUDA context of
another program takes 400 MiB and more.
"""
DEVICE_FILES = Path("/dev")
"""Folder of the device files; the driver makes a file nvidia0, nvidia1, … for each GPU."""
DRIVER_FILES = Path("/proc/driver/nvidia")
"""Folder that exists while the NVIDIA driver is loaded."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine, identified by its UUID, since CUDA_VISIBLE_DEVICES reorders indices.

    `index` is that of nvidia-smi; `total_mib` is its memory in MiB, 0 if NVML does not say.
    """

    index: int
    uuid: str
    name: str
    total_mib: int
    capability: tuple[int, int] | None = None
    """Compute capability, (9, 0) for 9.0; None if NVML does not say."""


@dataclass(frozen=True)
class GpuAvailability:
    """The NVIDIA GPUs of this machine, and why they cannot be used if NVML fails."""

    cards: tuple[Gpu, ...] = ()
    traces: tuple[str, ...] = ()
    """Files that the driver makes for a GPU; they stay when the driver breaks.

    Empty if NVML lists GPUs, or if there are none.
    """
    error: str = ""
    """Error of NVML; empty if NVML answered."""

    def is_here(self) -> bool:
        """Return whether this machine has a GPU, usable or not."""
        return bool(self.cards or self.traces)

    def why_unusable(self) -> str:
        """Return why the GPUs of this machine cannot be used; empty if they can be used, or if there are none."""
        if self.cards or not self.traces:
            return ""
        said = f"NVML says: {self.error}" if self.error else "the driver (NVML) lists no GPU"
        return f"an NVIDIA GPU is here ({', '.join(self.traces)}), but cannot be used: {said}"


def environment_of(uuids: Iterable[str]) -> dict[str, str]:
    """Return the environment in which CUDA sees exactly the GPUs of these UUIDs, in their order; without any, none."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine in the order of nvidia-smi; empty without a GPU or driver.

    Empty, too, if NVML fails for one of them. NVML is asked once per process.
    """
    return _query()[0]


def presence() -> GpuAvailability:
    """Return the GPUs that NVML lists; if it lists none, the driver's files that show a GPU, and NVML's error."""
    cards = gpus()
    return GpuAvailability(cards) if cards else GpuAvailability((), _traces(), _query()[1])


@cache
def _query() -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs and the error of NVML, empty if it answers; asked once per process."""
    try:
        nvml.nvmlInit()
        atexit.register(nvml.nvmlShutdown)
        return tuple(_gpu(index) for index in range(nvml.nvmlDeviceGetCount())), ""
    except nvml.NVMLError as error:
        return (), str(error)


def _traces() -> tuple[str, ...]:
    devices = sorted(path for path in DEVICE_FILES.glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal())
    return tuple(str(path) for path in (*devices, DRIVER_FILES) if path.exists())


def sample(uuid: str) -> GpuSample:
    """Return memory (MiB), load (percent), temperature (°C) and pids of a GPU now.

    Figures that NVML does not give are None; pids are then empty.

    For an unknown UUID every figure is None.
    """
    gpus()
    handle = _optional(nvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return GpuSample()
    memory = _optional(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _optional(nvml.nvmlDeviceGetUtilizationRates, handle)
    processes = _optional(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return GpuSample(
        used_mib=memory.used // MIB if memory else None,
        total_mib=memory.total // MIB if memory else None,
        utilisation_percent=rates.gpu if rates else None,
        temperature_c=_optional(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        processes=tuple(process.pid for process in processes),
        process_mib=tuple(None if one.usedGpuMemory is None else one.usedGpuMemory // MIB for one in processes),
    )


def serves_many(uuid: str) -> bool:
    """Return whether several processes may use a GPU: NVML reports the default compute mode.

    False for an exclusive mode, and if NVML does not say.
    """
    gpus()
    handle = _optional(nvml.nvmlDeviceGetHandleByUUID, uuid)
    mode = _optional(nvml.nvmlDeviceGetComputeMode, handle) if handle is not None else None
    return bool(mode == nvml.NVML_COMPUTEMODE_DEFAULT)


def bus(uuid: str) -> str:
    """Return the PCI address of a GPU as in the kernel's log, "0000:3b:00"; empty if NVML does not say."""
    gpus()
    handle = _optional(nvml.nvmlDeviceGetHandleByUUID, uuid)
    info = _optional(nvml.nvmlDeviceGetPciInfo, handle) if handle is not None else None
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}" if info else ""


def driver_version() -> str:
    """Return the version of the NVIDIA driver, as "580.1"; empty without a GPU, or if NVML does not say."""
    return str(_optional(nvml.nvmlSystemGetDriverVersion) or "") if gpus() else ""


def cuda_version() -> tuple[int, int] | None:
    """Return the latest CUDA version that the driver supports, (13, 0) for 13.0.

    None without a GPU, or if NVML does not say.
    """
    number = _optional(nvml.nvmlSystemGetCudaDriverVersion_v2) if gpus() else None
    return (number // 1000, number % 1000 // 10) if number else None


def why_not_ready(
    now: GpuSample, before: GpuSample, cooldown: Cooldown, *, ours_mib: float = 0, wanted_mib: float = math.inf
) -> str:
    """Return why a GPU is not ready for the next attempt: memory in use, or too hot; empty if it is ready.

    A figure that NVML does not give never makes a GPU unready.

    Args:
        now: sample of the GPU now.
        before: sample of the same GPU before the batch used it.
        cooldown: temperature below which the GPU must be, in °C; None in it: any.
        ours_mib: memory that attempts of this batch may hold there, in MiB.
        wanted_mib: free memory in MiB that suffices for the next attempt, even if other processes hold more than
            before.
    """
    if now.used_mib is not None and before.used_mib is not None:
        more_mib, free_mib = now.used_mib - before.used_mib, (now.total_mib or 0) - now.used_mib
        if more_mib > FREE_MIB + ours_mib and free_mib < wanted_mib:
            squatters = ", ".join(str(pid) for pid in now.processes if pid not in before.processes)
            held_by = f", held by process {squatters}" if squatters else ""
            return f"{more_mib} MiB more GPU memory in use than before the batch{held_by}"
    if cooldown.below_c is not None and now.temperature_c is not None and now.temperature_c >= cooldown.below_c:
        return f"the GPU has {now.temperature_c} °C, wanted below {cooldown.below_c:g} °C"
    return ""


def _gpu(index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _optional(nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _optional(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_mib=memory.total // MIB if memory else 0,
        capability=(int(capability[0]), int(capability[1])) if capability else None,
    )


def _optional(call: Callable[..., Any], *args: Any) -> Any:
    """Return the result of an NVML call; None if this GPU, driver or system does not support it."""
    try:
        return call(*args)
    except nvml.NVMLError:
        return None
