"""Attempts at a patch beside each other, or the patches of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from splatbatch import config as configuration
from splatbatch.errors import ConfigError
from splatbatch.output.layout import OutputFolder
from splatbatch.tasks.attempt_table import AttemptRow, attempt_rows, ends_of
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.fingerprint import settings_of
from splatbatch.tasks.status import PatchStatus, read_status
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class AttemptComparison:
    """`compare PATCH --json`."""

    patch: str
    attempts: tuple[AttemptRow, ...]


@dataclass(frozen=True)
class PatchPair:
    """A patch in two runs; null where a run has no splat of it."""

    patch: str
    psnr_covered: tuple[float | None, float | None]
    """Null also where the covered pixels are others in the two."""
    psnr: tuple[float | None, float | None]
    num_gaussians: tuple[int | None, int | None]
    seconds: tuple[float | None, float | None]
    told: ClassVar = ("gain_db",)

    @property
    def gain_db(self) -> float | None:
        """PSNR of the second less that of the first: on covered pixels where both are of the same."""
        first, second = self.psnr if None in self.psnr_covered else self.psnr_covered
        return None if first is None or second is None else second - first


@dataclass(frozen=True)
class RunComparison:
    """`compare RUN RUN --json`."""

    runs: tuple[str, str]
    patches: tuple[PatchPair, ...]
    told: ClassVar = ("mean_gain_db",)

    @property
    def gains(self) -> tuple[float, ...]:
        """Return the gains of the patches that both have a splat of."""
        return tuple(pair.gain_db for pair in self.patches if pair.gain_db is not None)

    @property
    def mean_gain_db(self) -> float | None:
        """Over the patches that both have a splat of."""
        return fmean(self.gains) if self.gains else None


def attempts_at(batch: Batch, task: Task) -> AttemptComparison:
    """Return the attempts at a task of a batch; what is changed is held against the YAML of today."""
    ends = ends_of(batch.output, task.name)
    return AttemptComparison(task.name, attempt_rows(batch.output.patch(task.name), ends, settings_of(task.recipe)))


def compare_runs(one: str, other: str) -> RunComparison:
    """Return the patches of two runs side by side; each is named by its YAML or its output folder.

    Raises:
        ConfigError: one is neither.
    """
    first, second = ({each.patch: each for each in read_status(_run(name))} for name in (one, other))
    return RunComparison((one, other), tuple(_pair(name, first, second) for name in dict.fromkeys([*first, *second])))


def _run(name: str) -> OutputFolder:
    path = Path(name)
    if own := path if path.is_file() else configuration.config_in(path):
        return OutputFolder(configuration.load(own).output.folder)
    if (path / "patches").is_dir():
        return OutputFolder(path)
    raise ConfigError(
        f"compare {name}: neither an output folder nor a YAML", "Name one patch, or two folders or YAMLs."
    )


def _pair(name: str, first: Mapping[str, PatchStatus], second: Mapping[str, PatchStatus]) -> PatchPair:
    one, other = first.get(name, PatchStatus(name, "waiting")), second.get(name, PatchStatus(name, "waiting"))
    counts = (one.num_gaussians, other.num_gaussians)
    is_same_set = one.covered_set == other.covered_set
    covered = (one.psnr_covered, other.psnr_covered) if is_same_set else (None, None)
    return PatchPair(name, covered, (one.psnr, other.psnr), counts, (one.seconds, other.seconds))
