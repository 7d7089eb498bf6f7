"""The most memory held at once, in training and in evaluation apart: evaluation must not be what needs it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import torch

from splatbatch.files import MIB

KIB_PER_MIB = 1 << 10


class MemoryPeaks:
    """Torch's own count of what lay on the GPU at once, in MiB; what the driver adds is in NVML's figure alone."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._highest = {"training": 0, "evaluation": 0}

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count what happens inside as evaluation, all else as training."""
        self._close("training")
        try:
            yield
        finally:
            self._close("evaluation")

    def _close(self, phase: str) -> None:
        """End a stretch of a phase; the next one starts from what lies there now."""
        if self._is_cuda:
            self._highest[phase] = max(self._highest[phase], torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

    def to_record(self) -> dict[str, int]:
        """Return the peaks in MiB; without a GPU only that of the process in host memory."""
        self._close("training")
        host = {"host_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // KIB_PER_MIB}
        highest = {f"{phase}_mib": -(-peak // MIB) for phase, peak in self._highest.items()}
        return highest | host if self._is_cuda else host
