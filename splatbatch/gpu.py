"""The GPUs as NVML sees them: which there are, how full, hot and faulty. The only door to pynvml.

NVML needs no CUDA context, so the parent may ask as often as it likes. Every figure is independently optional:
inside MIG instances and WSL2 single calls answer "not supported".
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import pynvml as nvml

from splatbatch.config import Cooldown
from splatbatch.files import MIB, Record

# nvml.h, nvmlClocksEventReasons: hardware slow-down, software and hardware thermal slow-down, power brake
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine; matched by UUID, since CUDA_VISIBLE_DEVICES reorders indices."""

    index: int
    uuid: str
    name: str
    total_mib: int


@dataclass(frozen=True)
class Sample:
    """What NVML says of a GPU at one moment; None where it cannot tell."""

    used_mib: int | None = None
    total_mib: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: bool | None = None
    processes: tuple[int, ...] = ()
    process_mib: tuple[int | None, ...] = ()
    """What each of them holds."""

    def to_record(self) -> Record:
        """Return the sample as JSON fields."""
        return asdict(self)


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine in the order of nvidia-smi; none without a driver."""
    try:
        nvml.nvmlInit()
        atexit.register(nvml.nvmlShutdown)
        return tuple(_gpu(index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return ()


def sample(uuid: str) -> Sample:
    """Return what NVML says of a GPU now; an empty sample if it does not answer."""
    gpus()
    handle = _optional(nvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return Sample()
    memory = _optional(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _optional(nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _optional(nvml.nvmlDeviceGetPowerUsage, handle)
    reasons = _optional(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    processes = _optional(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return Sample(
        used_mib=memory.used // MIB if memory else None,
        total_mib=memory.total // MIB if memory else None,
        utilisation_percent=rates.gpu if rates else None,
        temperature_c=_optional(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=milliwatts / 1000 if milliwatts is not None else None,
        throttled=bool(reasons & THROTTLED) if reasons is not None else None,
        processes=tuple(process.pid for process in processes),
        process_mib=tuple(None if one.usedGpuMemory is None else one.usedGpuMemory // MIB for one in processes),
    )


def bus(uuid: str) -> str:
    """Return where a GPU sits as the kernel's log names it, "0000:3b:00"; empty if NVML does not say."""
    gpus()
    handle = _optional(nvml.nvmlDeviceGetHandleByUUID, uuid)
    info = _optional(nvml.nvmlDeviceGetPciInfo, handle) if handle is not None else None
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}" if info else ""


def driver_version() -> str:
    """Return the version of the NVIDIA driver; empty without one."""
    return str(_optional(nvml.nvmlSystemGetDriverVersion) or "") if gpus() else ""


def why_not_ready(now: Sample, before: Sample, cooldown: Cooldown, *, ours_mib: float = 0) -> str:
    """Say why a GPU is not fit for the next attempt; empty if it is.

    Args:
        now: the GPU at this moment.
        before: the same GPU before the batch touched it.
        cooldown: how free and how cool it has to be.
        ours_mib: what our own attempts there may hold.
    """
    allowed_mib = cooldown.free_mib + ours_mib
    if now.used_mib is not None and before.used_mib is not None and now.used_mib > before.used_mib + allowed_mib:
        squatters = ", ".join(str(pid) for pid in now.processes if pid not in before.processes)
        held_by = f" held by process {squatters}" if squatters else ""
        return f"{now.used_mib - before.used_mib} MiB more in use than before the batch{held_by}"
    if cooldown.below_c is not None and now.temperature_c is not None and now.temperature_c >= cooldown.below_c:
        return f"{now.temperature_c} °C, wanted below {cooldown.below_c:g} °C"
    return ""


def _gpu(index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _optional(nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_mib=memory.total // MIB if memory else 0,
    )


def _optional(call: Callable[..., Any], *args: Any) -> Any:
    """Return what an NVML call says, or None if this GPU, driver or system cannot tell."""
    try:
        return call(*args)
    except nvml.NVMLError:
        return None
