"""Compilation of our kernels in the background, for a GPU whose CUDA context this process has not opened yet."""

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
    """A compilation of our kernels that runs in a thread; None where nothing is compiled."""

    thread: Thread | None = None

    def wait(self) -> None:
        """Wait until the thread has ended. Errors are not raised here, but where a kernel is first used."""
        if self.thread:
            self.thread.join()


def for_training(recipe: Recipe) -> KernelCompilation:
    """Start to compile our kernels for the GPU that CUDA_VISIBLE_DEVICES names, unless the recipe uses gsplat's."""
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
