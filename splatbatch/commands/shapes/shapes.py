"""The records that commands print with --json, field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from splatbatch.commands.shapes.outcomes import Attempts, Deadline, Explained, Runs
from splatbatch.commands.shapes.scenes import Audited, Capture, Import, Merged, Published, Split
from splatbatch.config.schedule import Schedule
from splatbatch.doctor.checks import Finding as Remark
from splatbatch.outcome import Diagnosis
from splatbatch.report.facts import Report
from splatbatch.scene.footprint import Footprint
from splatbatch.store.records.evaluation import SceneEvaluation
from splatbatch.store.records.quality import Inspection
from splatbatch.store.records.run import Holder, WorkerRecord
from splatbatch.tasks.forecast import Forecast
from splatbatch.tasks.status import PatchStatus

Offset = tuple[float, float, float]


class Frame(TypedDict):
    """What was taken off all coordinates, in units of the model; `scenes`: of scenes that stand by themselves."""

    offset: Offset
    scenes: dict[str, Offset]


class Planned(TypedDict):
    """What would be done with a patch, why, and what it is expected to take."""

    patch: str
    decision: Literal["train", "skip", "refuse", "given_up"]
    reason: str
    schedule: Schedule | None
    need: Footprint | None


class Plan(TypedDict):
    """`plan --json`; `deadline` where the YAML sets one."""

    patches: list[Planned]
    forecast_s: float | None
    forecast: Forecast
    frame: Frame | None
    deadline: NotRequired[Deadline]


@dataclass(frozen=True)
class AtWork(WorkerRecord):
    """A worker, and the tasks that it trains."""

    tasks: tuple[str, ...] = ()
    silent_s: float = 0.0
    """For how long it is known not to have moved."""


class Job(TypedDict):
    """What an engine says of a worker that it was asked for."""

    job: str
    state: Literal["pending", "running", "ended", "unknown"]


class Status(TypedDict):
    """`status --json`."""

    summary: str
    run: Holder | None
    eta_s: float | None
    workers: list[AtWork]
    jobs: list[Job]
    patches: list[PatchStatus]


class Verified(Audited):
    """`verify-dims --json`; `colors` with --colors only."""

    frame: Frame | None
    colors: NotRequired[dict[str, dict[str, Any]]]


class Examined(TypedDict):
    """`doctor --json`."""

    findings: list[Remark]
    exit_code: Literal[0, 4, 5]


class Trainer(TypedDict):
    """A program that can train, or what it lacks here."""

    name: str
    origin: Literal["ours", "configured", "preset"]
    file: str
    missing: list[str]
    found: bool


class Trainers(TypedDict):
    """`doctor --trainers --json`."""

    trainers: list[Trainer]


class Removed(TypedDict):
    """A file that `clean` removes, or would."""

    path: str
    what: str
    bytes: int


class Cleaned(TypedDict):
    """`clean --json`."""

    removed: bool
    bytes: int
    files: list[Removed]


class Checked(TypedDict):
    """Whether a certificate holds, and if not, why."""

    holds: bool
    problems: list[str]


SHAPES: dict[str, Any] = {
    "plan": Plan,
    "status": Status,
    "verify-dims": Verified,
    "compare": Attempts | Runs,
    "explain": Explained | Diagnosis,
    "doctor": Examined | Trainers,
    "report": Report,
    "clean": Cleaned,
    "import": Import,
    "split": Split,
    "merge": Merged,
    "evaluate": SceneEvaluation,
    "inspect": dict[str, Inspection] | dict[str, Checked],
    "plan-capture": Capture,
    "publish": Published,
}
"""By command; `config show --json` is by `schema`."""
