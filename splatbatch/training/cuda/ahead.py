"""Our kernels compiled while other things are done: in processes of their own, which need no GPU.

Those in Triton go into its cache, those in CUDA C++ beside torch's extensions. A cold cache costs the first patch of a
machine some fifteen seconds if every kernel is compiled when it is first used, one after the other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from splatbatch import processes
from splatbatch.config import Recipe
from splatbatch.machine import gpu
from splatbatch.training.cuda.native import library
from splatbatch.training.cuda.warm import EVENING, NATIVE, OF_DEGREE, OF_FLOATS, OURS, made

LONGEST_S = 60.0
LOOK_S = 0.01


@dataclass
class Compiling:
    """Processes that compile; they end with us."""

    groups: dict[int, Path] = field(default_factory=dict)
    """By number of the process: what says that its kernels are compiled."""
    checksum: Thread | None = None
    """Computes Triton's checksum of itself, for its cache: 0.3 s, once per process."""

    def wait(self) -> None:
        """Return once all have ended; what one of them could not do, or not in time, is done when it is needed."""
        if self.checksum:
            self.checksum.join()
        give_up_at = time.monotonic() + LONGEST_S
        while self.groups:
            for pid in list(self.groups):
                self._look(pid, is_late=time.monotonic() > give_up_at)
            time.sleep(LOOK_S if self.groups else 0.0)

    def _look(self, pid: int, *, is_late: bool) -> None:
        """Note whether one has ended, and how; end one that is late."""
        if is_late:
            processes.send(signal.SIGKILL, [pid])
        ended, status = os.waitpid(pid, 0 if is_late else os.WNOHANG)
        if ended:
            path = self.groups.pop(pid)
            with suppress(OSError):
                if status == 0:
                    path.touch()


def for_training(recipe: Recipe, *, has_masks: bool, is_evened: bool) -> Compiling:
    """Start to compile what a training will use on the GPU that is visible here; nothing if it uses none of ours."""
    capability = _capability()
    if recipe.training.kernels != "auto" or capability is None or torch.cuda.is_initialized():
        return Compiling()
    above = {OF_DEGREE.format(degree) for degree in range(recipe.training.sh_degree + 1, 4)}
    unused = above | (set() if is_evened else {EVENING})
    wanted = (name for name in OURS if name not in unused and (has_masks or not name.startswith(OF_FLOATS)))
    try:
        compiling = start(capability, (NATIVE, *wanted))
        compiling.checksum = Thread(target=_checksum, daemon=True)  # a thread only now: those that fork have none
        compiling.checksum.start()
        return compiling
    except Exception:  # noqa: BLE001 - no Triton, or one that does it otherwise: kernels are compiled when they are used
        return Compiling()


def _capability() -> tuple[int, int] | None:
    """Return that of the GPU this process may see, asked of NVML: CUDA is not touched."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return next((card.capability for card in gpu.gpus() if card.uuid == visible), None)


def start(capability: tuple[int, int], groups: Iterable[str]) -> Compiling:
    """Start to compile what is not compiled yet, for GPUs of a compute capability.

    Nothing here touches CUDA. Must be called before this process has threads.
    """
    missing = {name: path for name in groups if not (path := made(name, capability)).exists()}
    return Compiling({_fork(name, capability): path for name, path in missing.items()})


def _fork(name: str, capability: tuple[int, int]) -> int:
    me = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        processes.die_with_parent(signal.SIGKILL, me)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):  # the log is of what trains
            os.dup2(nowhere, descriptor)
        _compile(name, capability)
        code = 0
    finally:
        os._exit(code)


def _compile(name: str, capability: tuple[int, int]) -> None:
    if name == NATIVE:
        library.built(capability)
    else:
        compile_only(capability)
        OURS[name](torch.device("cpu"))


def compile_only(capability: tuple[int, int]) -> None:
    """Have Triton compile whatever is launched from now on in this process, for such GPUs, and launch nothing."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    def compiled(self: Any, grid: Any) -> Any:
        return lambda *arguments, **options: _compiled(self.run(*arguments, grid=grid, warmup=True, **options))

    torch.set_num_threads(1)
    driver.set_active(_Blueprint(capability))
    JITFunction.__getitem__ = compiled


def _compiled(kernel: Any) -> None:
    """Build what launches a kernel, too, where Triton has that compiled for each."""
    with suppress(Exception):
        _Blueprint.launcher(kernel.src, kernel.metadata)


class _Blueprint:
    """As much of Triton's driver as its compiler asks for, of a GPU that need not be here."""

    launcher: Any = None

    def __init__(self, capability: tuple[int, int]) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
        with suppress(Exception):  # without a driver there is nothing to launch with
            from triton.backends.nvidia.driver import CudaLauncher, CudaUtils

            self.utils = CudaUtils()
            _Blueprint.launcher = CudaLauncher

    def get_current_target(self) -> Any:
        """Return what to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """Return the number of a GPU."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return the number of a stream."""
        del device
        return 0


def _checksum() -> None:
    from triton.runtime.cache import triton_key

    with suppress(Exception):  # whoever needs it says why there is none
        triton_key()
