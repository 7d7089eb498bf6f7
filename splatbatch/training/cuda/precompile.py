"""Compilation of this package's kernels before this process opens the CUDA context of its GPU."""

from __future__ import annotations

import os
from contextlib import suppress

from splatbatch.config import Recipe
from splatbatch.machine import gpu
from splatbatch.training.cuda.compile import CompileError, compile_all


def compile_kernels(recipe: Recipe) -> None:
    """Compile this package's kernels for the GPU that CUDA_VISIBLE_DEVICES names; CUDA is not touched.

    Nothing is compiled if the recipe uses gsplat's kernels, or if the variable does not name a GPU by its UUID. Kernels
    that are in the wheel or the cache are only read. Errors are not raised here, but where a kernel is first used.
    """
    if recipe.training.kernels == "auto" and (capability := _capability()) is not None:
        with suppress(CompileError):
            compile_all(capability)


def _capability() -> tuple[int, int] | None:
    """Return the compute capability of the visible GPU, from NVML, without touching CUDA; None if it is not known."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return next((card.capability for card in gpu.gpus() if card.uuid == visible), None)
