"""TensorBoard: the figures of progress.jsonl as event files, and small histograms; never what a training ends of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MOST_SAMPLES = 10_000
RECORDS_PER_HISTOGRAM = 10
MISSING = "tensorboard: the package is not installed, no event files are written: pip install splatbatch[tensorboard]"


class TensorBoard:
    """Event files in a folder; every figure is on disk before the next one comes."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))
        self._records = 0

    def scalars(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write down the numbers among the figures of a step."""
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        if numbers:
            self._writer.flush()

    def histograms(self, step: int, gaussians: Mapping[str, Tensor]) -> None:
        """Write down, with every tenth record, how opacities and scales are spread, by at most 10,000 Gaussians."""
        self._records += 1
        if self._records % RECORDS_PER_HISTOGRAM != 1 or not len(gaussians["means"]):
            return
        for name in ("opacities", "scales"):
            values = gaussians[name].detach()
            rows = torch.linspace(0, len(values) - 1, min(len(values), MOST_SAMPLES), device=values.device).long()
            self._writer.add_histogram(name, values[rows].float().cpu(), step)


def open_tensorboard(folder: Path, *, wanted: bool) -> TensorBoard | str | None:
    """Return TensorBoard, None if none is wanted, or why there is none."""
    if not wanted:
        return None
    try:
        return TensorBoard(folder)
    except ImportError:
        return MISSING
    except OSError as error:
        return f"tensorboard: {folder} cannot be written ({error.strerror}), no event files are written"
