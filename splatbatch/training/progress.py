"""progress.jsonl of an attempt: phases, warnings and figures of the run, judged by the rules of `splats.health`.

A fatal finding of these health rules ends the run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splatbatch.errors import TrainerError
from splatbatch.files import MIB, append_line
from splatbatch.output.records import attempt
from splatbatch.splats.health import Expectations, HealthFinding, StepFigures, judge, judge_evaluation

MOST_SAMPLES = 10_000
"""Largest number of Gaussians from which a histogram is made."""
RECORDS_PER_HISTOGRAM = 10
"""Histograms are written to TensorBoard with every tenth record of figures."""
MISSING = "tensorboard: no event files: the package is not installed: pip install 'splatbatch[tensorboard]'"

MOST_STEPS_BETWEEN = 100
"""Largest number of steps between two records of figures."""
REGULARISED = ("scales", "opacities")
"""Parameters that get a gradient from regularisers, even if no photograph shows the Gaussian."""


class ProgressRecorder:
    """Writer of phases, warnings and, at even intervals, the figures of a run to progress.jsonl; judges these figures.

    Reading the figures of a step waits for the GPU. Errors of the file system do not end a training: lines that cannot
    be written are lost.
    """

    def __init__(self, path: Path, max_steps: int) -> None:
        """Write to the file `path`, which need not exist; `max_steps` is the planned number of steps or stages."""
        self._path = path
        self._max_steps = max_steps
        self._planned_steps: int | None = None  # set when the run ends early
        self._every = max(1, min(MOST_STEPS_BETWEEN, max_steps // attempt.RECORDS_PER_RUN))
        self._phase = "start"
        self._step = 0
        self._started = time.monotonic()
        self._history: list[StepFigures] = []
        self._expected: Expectations | None = None
        self._highest_mib = 0
        self._tensorboard: TensorBoard | None = None
        self._flagged: set[str] = set()

    def expect(self, expected: Expectations) -> None:
        """Set what the health rules expect of the run; no step is judged before this call."""
        self._expected = expected

    def end_at(self, step: int) -> None:
        """Set an earlier end of the run, after `step` steps, as early stopping decides, and record this number."""
        self._planned_steps, self._max_steps = self._max_steps, step
        if self._expected is not None:
            self._expected = replace(self._expected, max_steps=step)
        self._write()

    def show_on(self, folder: Path) -> None:
        """Write all further figures to TensorBoard files in a folder too; where that is not possible, only warn."""
        try:
            self._tensorboard = TensorBoard(folder)
        except ImportError:
            self.warn(MISSING)
        except OSError as error:
            why = f"{folder} cannot be written ({error.strerror}): check disk and permissions"
            self.warn(f"tensorboard: no event files: {why}")

    def begin(self) -> None:
        """Restart the clock of `seconds`, at the end of a standby."""
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the time in seconds since the start or, after a standby, since its end."""
        return round(time.monotonic() - self._started, 2)

    def phase(self, name: str, step: int | None = None) -> None:
        """Record that a phase begins: start, load, standby, init, train, eval, export or done.

        An inspection, and the evaluation of a merged scene, have phases of their own.
        `step` is the number of steps done, for a process that records no steps otherwise; None: as last recorded.
        """
        self._phase, self._step = name, self._step if step is None else step
        self._write()

    def warn(self, warning: str) -> None:
        """Record a warning, which the report shows; the attempt does not fail by a warning."""
        self._write(warning=warning)

    def evaluated(self, metrics: dict[str, Any]) -> None:
        """Record the main figures of an evaluation, as PSNR and SSIM; warn if training views are far better.

        They are compared with held-out views, on covered pixels where these are known.
        """
        names = ("psnr", "ssim", "lpips", "training_psnr", "psnr_even", "ssim_even", "psnr_covered")
        self._write(**{name: metrics[name] for name in names if metrics.get(name) is not None})
        self.found(judge_evaluation(metrics.get("training_psnr"), metrics.get("psnr_covered", metrics.get("psnr"))))

    def found(self, finding: HealthFinding | None) -> None:
        """Record a health finding as a warning, once per rule; None, for no finding, is ignored.

        Raises:
            TrainerError: the finding is fatal.
        """
        if finding is None:
            return
        if finding.is_fatal:
            self._write(health=str(finding))
            raise TrainerError(f"health: {finding}")
        if finding.rule not in self._flagged:
            self._flagged.add(finding.rule)
            self.warn(str(finding))

    def due(self, step: int) -> bool:
        """Return whether figures of this step, counted from 0, are to be recorded: at even intervals, and the last."""
        return step % self._every == 0 or step == self._max_steps - 1

    def step(self, step: int, loss: Tensor, gaussians: Mapping[str, Tensor], norms: Mapping[str, Tensor]) -> None:
        """Record the figures of a step after its backward pass, and judge the run so far; waits for the GPU.

        Args:
            step: the step, counted from 0.
            loss: loss of the step, [].
            gaussians: the trained parameters.
            norms: norm of each parameter's gradient, [], by name; empty: there are no gradients.

        Raises:
            TrainerError: a fatal finding of the health rules.
        """
        self._step = step + 1
        zero = torch.zeros((), device=loss.device)
        by_photo = torch.stack([zero, *(norm for name, norm in norms.items() if name not in REGULARISED)]).norm()
        every = torch.stack([zero, *norms.values()]).norm()
        read = torch.stack([loss.detach().float(), by_photo, every]).tolist()  # in one transfer
        figures = StepFigures(self._step, read[0], len(gaussians["means"]), read[1], read[2])
        self._history.append(figures)
        self._write(
            loss=_finite(read[0]),
            num_gaussians=figures.num_gaussians,
            grad_norm=_finite(read[2]),
            **self._memory(loss),
        )
        self._on_tensorboard(lambda board: board.histograms(self._step, gaussians))
        for finding in judge(self._history, self._expected) if self._expected else ():
            self.found(finding)

    def _memory(self, tensor: Tensor) -> dict[str, int]:
        """Return reserved memory and the peak of allocated memory in MiB; the peak outlasts resets by evaluations."""
        if not tensor.is_cuda:
            return {}
        self._highest_mib = max(self._highest_mib, torch.cuda.max_memory_allocated() // MIB)
        return {"peak_mib": self._highest_mib, "reserved_mib": torch.cuda.memory_reserved() // MIB}

    def _write(self, **figures: Any) -> None:
        told = {"max_steps": self._max_steps, "planned_steps": self._planned_steps, **figures}
        line = attempt.ProgressLine(round(time.time(), 2), self.seconds, self._phase, self._step, **told)
        with contextlib.suppress(OSError):  # a full disk must not end a good training
            append_line(self._path, line.to_record(), durable=False)
        self._on_tensorboard(lambda board: board.scalars(self._step, figures))

    def _on_tensorboard(self, show: Callable[[TensorBoard], None]) -> None:
        try:
            if self._tensorboard:
                show(self._tensorboard)
        except OSError as error:
            self._tensorboard = None
            self.warn(f"tensorboard: no further event files are written ({error.strerror}): check the disk")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class TensorBoard:
    """Writer of TensorBoard event files in a folder, which is made if missing; scalars are flushed after each record.

    Raises ImportError if the package tensorboard is not installed, OSError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))
        self._records = 0

    def scalars(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write those figures of a step, by name, that are numbers; others are left out.

        Raises:
            OSError: the event file cannot be written.
        """
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        if numbers:
            self._writer.flush()

    def histograms(self, step: int, gaussians: Mapping[str, Tensor]) -> None:
        """Write histograms of opacities (logits) and scales (logarithms) at every tenth call, the first included.

        At most 10,000 Gaussians are taken, evenly by index. Nothing is written without Gaussians.

        Raises:
            OSError: the event file cannot be written.
        """
        self._records += 1
        if self._records % RECORDS_PER_HISTOGRAM != 1 or not len(gaussians["means"]):
            return
        for name in ("opacities", "scales"):
            values = gaussians[name].detach()
            rows = torch.linspace(0, len(values) - 1, min(len(values), MOST_SAMPLES), device=values.device).long()
            self._writer.add_histogram(name, values[rows].float().cpu(), step)
