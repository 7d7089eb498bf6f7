"""Compilation of this package's kernels in the background, before this process opens the CUDA context of its GPU."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from splatbatch.config import Recipe
from splatbatch.machine import gpu
from splatbatch.training.cuda.compile import CompileError, compile_all


@dataclass(frozen=True)
class KernelCompilation:
    """A compilation of this package's kernels in a thread."""

    thread: Thread | None = None
    """The thread, which may have ended; None: nothing is compiled."""

    def wait(self) -> None:
        """Wait, without a limit, until the thread has ended; returns at once without a thread.

        Errors of the compilation are not raised here, but where a kernel is first used.
        """
        if self.thread:
            self.thread.join()


def for_training(recipe: Recipe) -> KernelCompilation:
    """Start to compile this package's kernels for the GPU that CUDA_VISIBLE_DEVICES names, and return at once.

    Nothing is compiled if the recipe uses gsplat's kernels, or if the variable does not name a GPU by its UUID. Kernels
    that are in the wheel or the cache are only read.
    """
    if recipe.training.kernels != "auto":
        return KernelCompilation()
    thread = Thread(target=_compile, daemon=True)
    thread.start()
    return KernelCompilation(thread)


def _compile() -> None:
    if (capability := _capability()) is not None:
        with suppress(CompileError):
            compile_all(capability)


def _capability() -> tuple[int, int] | None:
    """Return the compute capability of the visible GPU, from NVML, without touching CUDA; None if it is not known."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return next((card.capability for card in gpu.gpus() if card.uuid == visible), None)
