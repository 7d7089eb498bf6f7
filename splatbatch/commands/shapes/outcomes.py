"""The records that are about attempts and what came of them: of `compare`, `explain` and `report`."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from splatbatch.tasks.attempt_table import AttemptRow
from splatbatch.tasks.status import PatchStatus, State


class Attempts(TypedDict):
    """`compare PATCH --json`."""

    patch: str
    attempts: list[AttemptRow]


class Pair(TypedDict):
    """A patch in two runs; null where a run has no splat of it."""

    patch: str
    psnr: tuple[float | None, float | None]
    num_gaussians: tuple[int | None, int | None]
    seconds: tuple[float | None, float | None]
    gain_db: float | None


class Runs(TypedDict):
    """`compare RUN RUN --json`."""

    runs: tuple[str, str]
    patches: list[Pair]
    mean_gain_db: float | None


class Attempt(TypedDict):
    """An attempt at a patch; times in seconds since 1970, null where nobody knows."""

    number: int
    outcome: Literal["trained", "failed", "stopped"] | None
    slot: str
    node: str
    worker: str
    started_at: float | None
    ended_at: float | None
    setup_s: float | None
    seconds: float | None
    step: int | None
    phase: str
    gate_s: float | None
    gate: str
    cause: str
    advice: str
    evidence: list[str]
    warnings: list[str]
    changes: dict[str, Any]
    gpu_peak_mib: int | None
    own_gpu_peak_mib: int | None
    torch_peak_mib: int | None
    adopted: bool
    next: dict[str, Any] | None


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


class Reported(TypedDict):
    """A patch in a report: its status, and what only the report says of it."""

    patch: str
    state: State
    psnr: float | None
    num_gaussians: int | None
    seconds: float | None
    cause: str
    advice: str
    outliers: list[str]
    attempts: list[Attempt]
    of_patch: str
    variant: str
    bytes: int | None
    versions: dict[str, str]


class Report(TypedDict):
    """`report --json`, and report.json in the output folder."""

    schema: int
    version: str
    written_at: str
    output: str
    summary: str
    counts: dict[State, int]
    patches: list[Reported]
    sweep: dict[str, Any] | None
    runs: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    frame: dict[str, Any] | None
    scene: dict[str, Any] | None
    audit: dict[str, Any] | None
    config: str
    events: list[dict[str, Any]]
