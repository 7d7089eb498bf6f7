"""Our kernels compiled while other things are done: in threads, for a GPU that this process has not touched yet."""

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
    """Kernels on their way; none where there is nothing to compile."""

    thread: Thread | None = None

    def wait(self) -> None:
        """Return once they are compiled; an error is raised where the kernel is needed."""
        if self.thread:
            self.thread.join()


def for_training(recipe: Recipe) -> KernelCompilation:
    """Start to compile what a training will use on the GPU that is visible here; nothing if it uses none of ours."""
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
    """Return that of the GPU this process may see, asked of NVML: CUDA is not touched."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return next((card.capability for card in gpu.gpus() if card.uuid == visible), None)
