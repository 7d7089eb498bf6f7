"""The events of a ledger: plain values, read without trust, one class for each kind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal

from splatbatch.fields import mapping, text
from splatbatch.files import Record
from splatbatch.outcome import (
    COLLECT,
    HANGS,
    INTERNAL_FAULT,
    UNWRITABLE,
    Diagnosis,
    Exit,
    Failed,
    Made,
    Outcome,
    Stopped,
    Trained,
    exit_from_record,
    exit_to_record,
)
from splatbatch.output.records.attempt import AttemptFacts
from splatbatch.output.records.record import TypedRecord, in_json, reads

TaskUnit = Literal["patch", "stage"]
"""What the tasks of a batch are counted in; their kind says it."""
KINDS: dict[str, type[Event]] = {}
"""By the name in the ledger."""


@dataclass(frozen=True)
class Event(TypedRecord):
    """What has happened.

    A field without a default always stands in the ledger, another if there is something to say.
    """

    name: ClassVar[str] = ""
    t: float | None = field(default=None, kw_only=True)
    """Seconds since 1970; the ledger sets it."""
    generation: int | None = field(default=None, kw_only=True)
    """Generation of the claim under which it was written: orders events of several workers. None: no claim."""

    def __init_subclass__(cls, event: str = "") -> None:
        cls.name = event
        if event:
            KINDS[event] = cls

    def to_record(self) -> Record:
        """Return it as a line of the ledger."""
        said = {one.name: getattr(self, one.name) for one in fields(self) if self._says(one.name)}
        return {
            "t": self.t,
            "event": self.name,
            **{name: in_json(value) for name, value in said.items() if name != "t"},
        }

    def _says(self, name: str) -> bool:
        default = type(self).__dataclass_fields__[name].default
        return default is MISSING or getattr(self, name) != default


def event_of(record: Record) -> Event | None:
    """Return the event of a line; None if its type is unknown here."""
    kind = KINDS.get(text(record.get("event")))
    return kind.from_record(record) if kind else None


def _exit(value: object) -> Exit | None:
    return exit_from_record(mapping(value)) if mapping(value) else None


@dataclass(frozen=True)
class SlotNotReady(Event, event="gate"):
    """A slot was not ready for an attempt for a while."""

    patch: str
    attempt: int | None
    slot: str
    waited_s: float | None
    reason: str


@dataclass(frozen=True)
class AttemptStarted(Event, event="attempt_started"):
    """An attempt begins."""

    patch: str
    attempt: int | None
    key: str
    slot: str
    changes: dict[str, Any]


NOT_COLLECTED = frozenset({UNWRITABLE, INTERNAL_FAULT, HANGS})
"""Causes that leave an attempt as it is: the next run collects it once more."""


@dataclass(frozen=True)
class AttemptEnded(Event, AttemptFacts, event="attempt_ended"):
    """An attempt has ended and was judged, or none could be made."""

    patch: str
    attempt: int | None
    outcome: str
    """trained, made (no splat), failed, stopped."""
    exit: Exit | None = field(default=None, metadata=reads(_exit))
    """None: no process was started."""
    num_gaussians: int | None = None
    warnings: tuple[str, ...] | None = None
    diagnosis: Diagnosis | None = None
    reason: str | None = None
    """Why it was stopped."""
    accepted: bool | None = None
    choice: str = ""
    """Which of two splats was kept, and why."""
    ended_early: str = ""
    """After how many of its steps, and what that has saved."""
    adopted: bool = False
    """By a later run."""
    traceback: str = ""
    """Of a fault of ours."""

    @property
    def is_well(self) -> bool:
        """Return whether it left a product that counts."""
        return self.outcome in ("trained", "made")

    @property
    def is_judged(self) -> bool:
        """Return whether its attempt needs no further look: what was left could be collected, and kept."""
        return self.attempt is not None and self.cause not in NOT_COLLECTED and self.phase != COLLECT

    @classmethod
    def of(cls, patch: str, attempt: int, outcome: Outcome, **more: Any) -> AttemptEnded:
        """Return the end of an attempt with this outcome."""
        match outcome:
            case Trained(splat=splat, warnings=warnings):
                return cls(patch, attempt, "trained", num_gaussians=splat.num_gaussians, warnings=warnings, **more)
            case Made():
                return cls(patch, attempt, "made", **more)
            case Failed(diagnosis=diagnosis):
                return cls(patch, attempt, "failed", diagnosis=diagnosis, **more)
            case Stopped(reason=reason):
                return cls(patch, attempt, "stopped", reason=reason, **more)

    @property
    def cause(self) -> str:
        """Why it was not trained: the cause of a failure, or why it was stopped."""
        return (self.diagnosis.cause if self.diagnosis else "") or self.reason or ""

    def to_record(self) -> Record:
        """Return it as a line of the ledger."""
        return super().to_record() | ({"exit": exit_to_record(self.exit)} if self.exit else {})

    def _says(self, name: str) -> bool:
        return super()._says(name) or (self.exit is not None and name in AttemptFacts.__dataclass_fields__)


@dataclass(frozen=True)
class RetryScheduled(Event, event="retry"):
    """A patch is to be tried again."""

    patch: str
    wait_s: float | None
    ladder: str
    changes: dict[str, Any]
    trained_in_between: tuple[str, ...]
    """Patches that show that the GPU is not to blame."""


UNTIL = "given up until its settings, inputs, program or machine change"


@dataclass(frozen=True)
class GaveUp(Event, event="gave_up"):
    """A patch is not tried again."""

    patch: str
    reason: str
    trained_in_between: tuple[str, ...] | None = None
    key: dict[str, Any] | None = None
    """What must change before it is worth another try; None: another night may do."""
    cause: str = ""

    def in_words(self) -> str:
        """Return for how long it is given up, and why."""
        return f"{UNTIL if self.key else 'given up in this run, the next `train` tries it again'}: {self.reason}"


@dataclass(frozen=True)
class Accepted(Event, event="accepted"):
    """The splat of an attempt was chosen with `accept`."""

    patch: str
    attempt: int | None


@dataclass(frozen=True)
class Restored(Event, event="restored"):
    """A product that was gone came back from an attempt, or another splat took its place."""

    patch: str
    attempt: str
    instead_of: str = ""
    """The attempt whose splat is damaged; empty: it is that of the same one."""

    def in_words(self) -> str:
        """Return what was done."""
        if not self.instead_of:
            return f"splat.ply restored from {self.attempt}"
        return f"the splat of {self.instead_of} is damaged: {self.attempt}, the best of the others, takes its place"


@dataclass(frozen=True)
class BatchStarted(Event, event="batch_started"):
    """A run begins to train."""

    patches: tuple[str, ...]
    slots: tuple[str, ...]
    changes: dict[str, Any]
    """Settings changed by --set."""
    noun: TaskUnit = "patch"
    """What its tasks are."""


@dataclass(frozen=True)
class BatchEnded(Event, event="batch_ended"):
    """A run is over."""

    trained: int
    of: int
    stopped: str


@dataclass(frozen=True)
class OrphansStopped(Event, event="twins_stopped"):
    """Attempts of an earlier run still ran."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class PatchesAudited(Event, event="audit"):
    """The patches to train were audited, or the audit was switched off."""

    verified: bool
    refused: dict[str, Any]
    """Patch, and why."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PatchRejected(Event, event="refused"):
    """The audit found errors in a patch."""

    patch: str
    reason: str
    inputs: str | None = None
    """State of its files then; None: an earlier version wrote it."""


@dataclass(frozen=True)
class Packing(Event, event="packing"):
    """So many patches share a GPU from now on."""

    patches_per_gpu: int
    paces: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Resumed(Event, event="resumed"):
    """There is room again."""

    waited_s: float | None


@dataclass(frozen=True)
class FileNotAnswering(Event, event="waits"):
    """Something done for a patch waits for a file that does not answer."""

    patch: str
    path: str
    seconds: float | None


@dataclass(frozen=True)
class CancelRequested(Event, event="cancel_requested"):
    """The end of the batch, or of some patches, was requested."""

    by: str
    patches: tuple[str, ...]


NoticeKind = Literal[
    "awaited", "deadline", "expected", "forecast", "mps_off", "notify_failed", "paused", "slot_given_up",
    "still_given_up", "tight", "unwell", "workers_seen",
]  # fmt: skip
NOTICES: dict[NoticeKind, tuple[str, str]] = {
    "awaited": ("words", "{words}"),
    "deadline": ("text", "{words}"),
    "expected": ("words", ""),
    "forecast": ("text", "{words}"),
    "mps_off": ("reason", "going on without CUDA MPS: {words}"),
    "notify_failed": ("reason", "notification failed: {words}"),
    "paused": ("reason", "paused, nothing new is started: {words}"),
    "slot_given_up": ("reason", "{slot}: taken out of service: {words}"),
    "still_given_up": ("reason", f"{{patch}}: {UNTIL}: {{words}}"),
    "tight": ("reason", "{patch}: {words}"),
    "unwell": ("message", "{check}: {words}"),
    "workers_seen": ("words", "{words}"),
}
"""By the name in the ledger: the key that words have there, and the sentence that is shown; empty: none is."""


@dataclass(frozen=True)
class Notice(Event):
    """A message that is shown and kept; nothing is decided by it.

    That a task waits for a silent worker or a claim that cannot be read; what is given up for a deadline; what a patch
    is expected to need, and the run to take; that CUDA MPS accepts no client; that a message could not be sent; that
    nothing new is started; that a slot is taken out of service; that a patch is left alone, as nothing has changed;
    that a patch may not fit; what the preflight found odd; that the workers of an engine are otherwise than before.
    """

    kind: NoticeKind
    words: str = ""
    patch: str = ""
    slot: str = ""
    facts: Record = field(default_factory=dict)
    """What else stands in the ledger, by its keys there."""

    @classmethod
    def from_record(cls, record: object) -> Notice:
        """Return what a line of the ledger says; it is of one of these kinds."""
        found = mapping(record)
        kind = found["event"]
        known = {"t", "event", "generation", "patch", "slot", NOTICES[kind][0]}
        facts = {key: value for key, value in found.items() if key not in known}
        return super().from_record({**found, "kind": kind, "words": found.get(NOTICES[kind][0]), "facts": facts})

    def to_record(self) -> Record:
        """Return it as a line of the ledger."""
        told = {"generation": self.generation, "patch": self.patch, "slot": self.slot}
        said = {key: value for key, value in told.items() if value not in (None, "")} | self.facts
        return {"t": self.t, "event": self.kind} | said | ({NOTICES[self.kind][0]: self.words} if self.words else {})

    def in_words(self) -> str:
        """Return it as a sentence; empty if it is only kept."""
        return NOTICES[self.kind][1].format_map(defaultdict(str, vars(self) | self.facts))


KINDS.update(dict.fromkeys(NOTICES, Notice))
