"""The records that are about attempts and what came of them: of `compare` and `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from splatbatch.report.facts import Attempt
from splatbatch.store.records.deadline.choice import Choice
from splatbatch.tasks.attempt_table import AttemptRow
from splatbatch.tasks.status import PatchStatus


class Attempts(TypedDict):
    """`compare PATCH --json`."""

    patch: str
    attempts: list[AttemptRow]


class Pair(TypedDict):
    """A patch in two runs; null where a run has no splat of it."""

    patch: str
    psnr_covered: tuple[float | None, float | None]
    psnr: tuple[float | None, float | None]
    num_gaussians: tuple[int | None, int | None]
    seconds: tuple[float | None, float | None]
    gain_db: float | None


class Runs(TypedDict):
    """`compare RUN RUN --json`."""

    runs: tuple[str, str]
    patches: list[Pair]
    mean_gain_db: float | None


class Difference(TypedDict):
    """A setting of a patch that the rest of the batch has otherwise."""

    key: str
    value: Any
    usual: Any


class Explained(TypedDict):
    """`explain PATCH --json`."""

    patch: str
    status: PatchStatus
    cause_in_words: str
    set_otherwise: list[Difference]
    attempts: list[Attempt]


@dataclass(frozen=True)
class Deadline(Choice):
    """What was chosen for a deadline, and what to say of it."""

    words: tuple[str, ...] = ()
