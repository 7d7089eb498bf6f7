"""The records that are about attempts and what came of them: of `compare`, `explain` and `report`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import TypedDict

from splatbatch.store.records.deadline.choice import Choice
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
    outcome: Literal["trained", "made", "failed", "stopped"] | None
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
    psnr: float | None
    ssim: float | None
    num_gaussians: int | None
    pace_s: float | None
    choice: str
    adopted: bool
    is_kept: bool
    has_splat: bool
    is_pictured: bool
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


@dataclass(frozen=True)
class Reported(PatchStatus):
    """A patch in a report: its status, and what only the report says of it."""

    outliers: tuple[str, ...] = ()
    gain_db: float | None = None
    attempts: tuple[Attempt, ...] = ()
    of_patch: str = ""
    variant: str = ""
    bytes: int | None = None
    resolution: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    quality: dict[str, Any] | None = None


@dataclass(frozen=True)
class Deadline(Choice):
    """What was chosen for a deadline, and what to say of it."""

    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class PastDeadline(Deadline):
    """A deadline, and when the last attempt at its patches ended, in seconds since 1970."""

    ended_at: float | None = None


class Todo(TypedDict):
    """Something to be done, or worth a look, and the command for it."""

    kind: Literal["do", "look"]
    patches: list[str]
    what: str
    command: str


class Followed(TypedDict):
    """What came of one thing that follows the training, or why it was left out, and what makes it good."""

    what: Literal["inspect", "merge", "evaluate", "publish"]
    state: Literal["done", "partly", "left out"]
    words: str
    command: str
    at: float | None


class Report(TypedDict):
    """`report --json`, and report.json in the output folder."""

    schema: int
    version: str
    python: str
    written_at: str
    output: str
    summary: str
    counts: dict[State, int]
    patches: list[Reported]
    sweep: dict[str, Any] | None
    runs: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    frame: dict[str, Any] | None
    colors: list[dict[str, Any]]
    scene: dict[str, Any] | None
    map: dict[str, Any] | None
    deadline: PastDeadline | None
    afterwards: list[Followed]
    audit: dict[str, Any] | None
    config: str
    config_file: str
    events: list[dict[str, Any]]
    todo: list[Todo]
