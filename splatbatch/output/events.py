"""The events of a ledger, one class for each kind; a field that is absent or cannot be read gets its default."""

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
"""Noun by which the tasks of a batch are counted: patches, or stages of a scene."""
KINDS: dict[str, type[Event]] = {}
"""Class of an event, by the name that the ledger gives the event."""


@dataclass(frozen=True)
class Event(TypedRecord):
    """One event of a ledger.

    The time, and a field without a default value, are always written, any other only if it differs from its default.
    """

    name: ClassVar[str] = ""
    t: float | None = field(default=None, kw_only=True)
    """Time of the event in seconds since 1970; the ledger sets it. None: not written yet, or unreadable."""
    generation: int | None = field(default=None, kw_only=True)
    """Number of the task's claim when the event was written; it orders the events of several workers. None: the task
    was never claimed, or the event is of no single task."""

    def __init_subclass__(cls, event: str = "") -> None:
        cls.name = event
        if event:
            KINDS[event] = cls

    def to_record(self) -> Record:
        """Return the event as the JSON object of its line in the ledger."""
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
    """Return the event of a ledger line; None if this version does not know its kind.

    Invalid fields get their defaults; nothing is raised.
    """
    kind = KINDS.get(text(record.get("event")))
    return kind.from_record(record) if kind else None


def _exit(value: object) -> Exit | None:
    return exit_from_record(mapping(value)) if mapping(value) else None


@dataclass(frozen=True)
class SlotNotReady(Event, event="gate"):
    """Event: an attempt waited for its slot (a GPU, a share of one, or the CPU); for how many seconds, and why."""

    patch: str
    attempt: int | None
    slot: str
    waited_s: float | None
    reason: str


@dataclass(frozen=True)
class AttemptStarted(Event, event="attempt_started"):
    """Event: an attempt begins on a slot (a GPU, a share of one, or the CPU).

    `key` is the unique name of the attempt; `changes` are the settings in which it differs from the YAML. Of an
    attempt that came home from a store `slot` is the name of the worker.
    """

    patch: str
    attempt: int | None
    key: str
    slot: str
    changes: dict[str, Any]


NOT_COLLECTED = frozenset({UNWRITABLE, INTERNAL_FAULT, HANGS})
"""Causes of failures while the files of an attempt were collected: the next run collects them once more."""


@dataclass(frozen=True)
class AttemptEnded(Event, AttemptFacts, event="attempt_ended"):
    """Event: an attempt has ended and was judged, or could not be started or collected."""

    patch: str
    attempt: int | None
    """Number of the attempt; if none was begun, that of the latest earlier attempt. 0: no earlier one, or the task
    could not be examined at all; None: unknown."""
    outcome: str
    """One of: trained, made (a product that is no splat), failed, stopped."""
    exit: Exit | None = field(default=None, metadata=reads(_exit))
    """How the process ended; None: no process was started, or the attempt could not be collected."""
    num_gaussians: int | None = None
    """Number of Gaussians of the splat; None: no splat was trained."""
    warnings: tuple[str, ...] | None = None
    """Warnings on the splat; None: no splat was trained."""
    diagnosis: Diagnosis | None = None
    """Why the attempt failed; None: it did not fail."""
    reason: str | None = None
    """Reason why the attempt was stopped; None: it was not stopped."""
    accepted: bool | None = None
    """Whether the new splat was accepted; None: no splat was trained."""
    choice: str = ""
    """Sentence on which of two splats was kept, and why; empty: no reason is needed, or the splat is out of date."""
    ended_early: str = ""
    """Sentence on an end by `evaluation.stop_after`: after how many steps, and how much time it saved; empty: no such
    end."""
    adopted: bool = False
    """Whether a later run judged the attempt, since the worker that started it had died, or it came home from a
    store."""
    traceback: str = ""
    """Traceback of an error within splatbatch; empty: there was none."""

    @property
    def is_well(self) -> bool:
        """Whether the attempt made its product."""
        return self.outcome in ("trained", "made")

    @property
    def is_judged(self) -> bool:
        """Whether no later run collects the attempt again; False if it has no number, or could not be collected."""
        return self.attempt is not None and self.cause not in NOT_COLLECTED and self.phase != COLLECT

    @classmethod
    def of(cls, patch: str, attempt: int, outcome: Outcome, **more: Any) -> AttemptEnded:
        """Return the event of an attempt that ended with this outcome.

        Args:
            patch: name of the task.
            attempt: number of the attempt; see the field.
            outcome: what the attempt achieved.
            more: further fields of the event.
        """
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
        """Cause of the failure, or the reason of the stop; "" for an attempt that ended well."""
        return (self.diagnosis.cause if self.diagnosis else "") or self.reason or ""

    def to_record(self) -> Record:
        """Return the event as the JSON object of its line in the ledger."""
        return super().to_record() | ({"exit": exit_to_record(self.exit)} if self.exit else {})

    def _says(self, name: str) -> bool:
        return super()._says(name) or (self.exit is not None and name in AttemptFacts.__dataclass_fields__)


@dataclass(frozen=True)
class RetryScheduled(Event, event="retry"):
    """Event: a failed patch will be tried again, after `wait_s` seconds and perhaps with changed settings.

    `ladder` names the list of changed settings that is followed; "": the settings stay.
    """

    patch: str
    wait_s: float | None
    ladder: str
    changes: dict[str, Any]
    trained_in_between: tuple[str, ...]
    """Patches trained between two failures of this one, which show that the GPU is not the cause; empty: none, or no
    earlier failure counts."""
    how: str | None = None
    """How the next attempt differs but for its settings, as "with the GPU to itself"; None: in nothing."""


UNTIL = "given up until its settings, inputs, program or machine change"


@dataclass(frozen=True)
class GaveUp(Event, event="gave_up"):
    """Event: a patch was given up, so that it is not tried again in this run."""

    patch: str
    reason: str
    trained_in_between: tuple[str, ...] | None = None
    """Patches trained between two failures of this one, see `RetryScheduled`; None: not recorded."""
    key: dict[str, Any] | None = None
    """Settings, inputs, program and machine of which one must change before the patch is tried again.

    None: the next run tries the patch again.
    """
    cause: str = ""
    """Cause of the last failure, where `key` is given; else empty."""

    def in_words(self) -> str:
        """Return a sentence: for how long the patch is given up, and why."""
        return f"{UNTIL if self.key else 'given up in this run, the next `train` tries it again'}: {self.reason}"


@dataclass(frozen=True)
class Accepted(Event, event="accepted"):
    """Event: a user chose the splat of an attempt with `accept`."""

    patch: str
    attempt: int | None
    """Number of the attempt; 0, only in ledgers of earlier versions: the latest at that time; None: unknown."""


@dataclass(frozen=True)
class Restored(Event, event="restored"):
    """Event: a missing or damaged splat was restored from its attempt, or replaced by another attempt's splat."""

    patch: str
    attempt: str
    instead_of: str = ""
    """Attempt whose splat is damaged and was replaced; empty: the same splat was restored."""

    def in_words(self) -> str:
        """Return a sentence on what was restored, and from which attempt."""
        if not self.instead_of:
            return f"splat.ply restored from {self.attempt}"
        return f"the splat of {self.instead_of} is damaged: {self.attempt}, the best of the others, takes its place"


@dataclass(frozen=True)
class BatchStarted(Event, event="batch_started"):
    """Event: a run begins to train these patches on these slots (GPUs, shares of GPUs, or the CPU)."""

    patches: tuple[str, ...]
    slots: tuple[str, ...]
    changes: dict[str, Any]
    """Settings changed by the option --set; empty if there are none."""
    noun: TaskUnit = "patch"
    """Noun by which the tasks of the run are counted."""


@dataclass(frozen=True)
class BatchEnded(Event, event="batch_ended"):
    """Event: a run has ended.

    Of the `of` tasks of the run `trained` are trained or, if they train no splat, made. `stopped` is why the run ended
    early, "" if it did not.
    """

    trained: int
    of: int
    stopped: str


@dataclass(frozen=True)
class OrphansStopped(Event, event="twins_stopped"):
    """Event: attempts of an earlier run were still running, and were stopped.

    `keys` are the unique names of these attempts.
    """

    keys: tuple[str, ...]


@dataclass(frozen=True)
class PatchesAudited(Event, event="audit"):
    """Event: the patches to train were audited or, if `verified` is False, the audit was switched off.

    `warnings` are the audit's, each once.
    """

    verified: bool
    refused: dict[str, Any]
    """Reason why each rejected patch is not trained, by patch."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PatchRejected(Event, event="refused"):
    """Event: the audit found errors in a patch, so that the patch is not trained until its files change."""

    patch: str
    reason: str
    inputs: str | None = None
    """Hash of the state of the patch's files at that time; None: an earlier version wrote the event."""


@dataclass(frozen=True)
class Packing(Event, event="packing"):
    """Event: the number of patches that share a GPU has changed, with the measured speeds behind it."""

    patches_per_gpu: int
    paces: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Resumed(Event, event="resumed"):
    """Event: a batch that was paused for lack of disk space goes on, after `waited_s` seconds."""

    waited_s: float | None


@dataclass(frozen=True)
class FileNotAnswering(Event, event="waits"):
    """Event: preparing or collecting an attempt has waited for this many seconds for a file that does not answer."""

    patch: str
    path: str
    seconds: float | None


@dataclass(frozen=True)
class CancelRequested(Event, event="cancel_requested"):
    """Event: a user requested the end of some patches or, if `patches` is empty, of the whole batch."""

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
    "mps_off": ("reason", "going on without CUDA MPS, NVIDIA's way to share a GPU: {words}"),
    "notify_failed": ("reason", "notification failed: {words}"),
    "paused": ("reason", "paused, nothing new is started: {words}"),
    "slot_given_up": ("reason", "{slot}: taken out of service: {words}"),
    "still_given_up": ("reason", f"{{patch}}: {UNTIL}: {{words}}"),
    "tight": ("reason", "{patch}: {words}"),
    "unwell": ("message", "{check}: {words}"),
    "workers_seen": ("words", "{words}"),
}
"""For each kind of notice: the key of its text in the ledger, and the sentence shown to the user; "": nothing is
shown."""


@dataclass(frozen=True)
class Notice(Event):
    """Event: a message that is shown and kept, and on which no decision is based. Its kinds, by name:

    awaited: a task waits for a silent worker or an unreadable claim. deadline: the step budget chosen for a
    deadline. expected: the memory a patch is expected to need. forecast: the expected duration of the run. mps_off:
    CUDA MPS accepts no client. notify_failed: a notification could not be sent. paused: space is short, nothing new
    starts. slot_given_up: a GPU, or a share of one, is out of service. still_given_up: a patch given up before is
    unchanged. tight: a patch may not fit into memory. unwell: a finding of the checks before the run. workers_seen: the
    state of an engine's workers, or of the tasks in a store, has changed.
    """

    kind: NoticeKind
    words: str = ""
    patch: str = ""
    slot: str = ""
    facts: Record = field(default_factory=dict)
    """Further fields of the ledger line, by key; empty if there are none."""

    @classmethod
    def from_record(cls, record: object) -> Notice:
        """Return the notice of a ledger line.

        Raises:
            KeyError: its "event" is none of `NOTICES`.
        """
        found = mapping(record)
        kind = found["event"]
        known = {"t", "event", "generation", "patch", "slot", NOTICES[kind][0]}
        facts = {key: value for key, value in found.items() if key not in known}
        return super().from_record({**found, "kind": kind, "words": found.get(NOTICES[kind][0]), "facts": facts})

    def to_record(self) -> Record:
        """Return the notice as the JSON object of its line in the ledger."""
        told = {"generation": self.generation, "patch": self.patch, "slot": self.slot}
        said = {key: value for key, value in told.items() if value not in (None, "")} | self.facts
        return {"t": self.t, "event": self.kind} | said | ({NOTICES[self.kind][0]: self.words} if self.words else {})

    def in_words(self) -> str:
        """Return the notice as a sentence for the user; "" if it is kept in the ledger only."""
        return NOTICES[self.kind][1].format_map(defaultdict(str, vars(self) | self.facts))


KINDS.update(dict.fromkeys(NOTICES, Notice))
