"""progress.jsonl: where the run is and how it is doing, and the health rules that end a hopeless one."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from splatbatch.errors import TrainerError
from splatbatch.files import append_line
from splatbatch.training.gaussians import Parameters

RECORDS_PER_RUN = 60
MOST_STEPS_BETWEEN = 100
ZERO_GRADIENT_RECORDS = 3
MIB = 1 << 20


class Progress:
    """Writes down phases and, every so many steps, the figures of the run: the only place that waits for the GPU."""

    def __init__(self, path: Path, max_steps: int) -> None:
        self._path = path
        self._max_steps = max_steps
        self._every = max(1, min(MOST_STEPS_BETWEEN, max_steps // RECORDS_PER_RUN))
        self._phase = "start"
        self._step = 0
        self._started = time.monotonic()
        self._without_gradients = 0

    def phase(self, name: str) -> None:
        """Enter a phase: start, load, init, train, eval, export, done."""
        self._phase = name
        self._write()

    def warn(self, warning: str) -> None:
        """Note something odd that is no failure; it ends up in the report."""
        self._write(warning=warning)

    def evaluated(self, metrics: dict[str, Any] | None) -> None:
        """Note the hold-out figures."""
        if metrics:
            self._write(psnr=metrics["psnr"], ssim=metrics["ssim"])

    def due(self, step: int) -> bool:
        """Return whether the figures of this step are to be read."""
        return step % self._every == 0 or step == self._max_steps - 1

    def step(self, step: int, loss: Tensor, gaussians: Parameters) -> None:
        """Read the figures of a step, after its backward pass, and judge them.

        Raises:
            TrainerError: loss not finite, no Gaussian left, or no gradient for several records.
        """
        self._step = step + 1
        num = len(gaussians["means"])
        gradients = [parameter.grad.norm() for parameter in gaussians.values() if parameter.grad is not None]
        norm = float(torch.stack(gradients).norm()) if gradients else 0.0
        value = float(loss.detach())
        self._write(loss=_finite(value), num_gaussians=num, grad_norm=_finite(norm), peak_mib=_peak_mib(loss))
        self._judge(value, num, norm)

    def _judge(self, loss: float, num: int, norm: float) -> None:
        self._without_gradients = 0 if norm else self._without_gradients + 1
        if num == 0:
            self.give_up(f"zero_gaussians: all Gaussians were pruned by step {self._step}")
        if not math.isfinite(loss) or not math.isfinite(norm):
            self.give_up(f"nan_loss: loss {loss}, gradient norm {norm} at step {self._step}")
        if self._without_gradients >= ZERO_GRADIENT_RECORDS:
            self.give_up(
                f"zero_gradients: every gradient was exactly zero at the last {self._without_gradients} records"
                f" up to step {self._step}: nothing is learned"
            )

    def give_up(self, finding: str) -> NoReturn:
        """Note why the run is hopeless, for the diagnosis, and end it.

        Raises:
            TrainerError: always.
        """
        self._write(health=finding)
        raise TrainerError(f"health: {finding}")

    def _write(self, **figures: Any) -> None:
        record = {
            "t": round(time.time(), 2),
            "seconds": round(time.monotonic() - self._started, 2),
            "phase": self._phase,
            "step": self._step,
            "max_steps": self._max_steps,
            **figures,
        }
        with contextlib.suppress(OSError):  # a full disk must not end a good training
            append_line(self._path, record, durable=False)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _peak_mib(tensor: Tensor) -> int | None:
    return torch.cuda.max_memory_allocated() // MIB if tensor.is_cuda else None
