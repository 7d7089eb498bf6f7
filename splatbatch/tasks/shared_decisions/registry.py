"""All that is settled before a night, and what its files say of a batch by now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from splatbatch.config import Config
from splatbatch.hashing import Stamp, stamp_of
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.record import TypedRecord
from splatbatch.output.records.result import Result
from splatbatch.tasks.shared_decisions.colors import TONES
from splatbatch.tasks.shared_decisions.deadline import DEADLINE
from splatbatch.tasks.shared_decisions.decision import PendingTasks, SharedDecision, WholeBatch
from splatbatch.tasks.shared_decisions.frame import FRAME
from splatbatch.tasks.shared_decisions.holdout import HOLDOUT
from splatbatch.tasks.task import Task

SHARED_DECISIONS: tuple[SharedDecision[Any], ...] = (FRAME, HOLDOUT, TONES, DEADLINE)
"""In the order in which it is settled."""


AnyWhole = TypeVar("AnyWhole", bound=WholeBatch)
LOOK_S = 0.05
"""Between two looks at the files: of thousands of patches each asks for news."""


class KnownRecord(NamedTuple):
    """A record, and the state of its file that it is held against: another state may hold another record."""

    record: TypedRecord | None
    stamp: Stamp


NOT_SETTLED = KnownRecord(None, Stamp(-1))
Records = Mapping[str, KnownRecord]
"""By the names of what is settled."""


def known_records(config: Config, output: OutputFolder) -> Records:
    """Return what holds for a batch."""
    stamps = {thing.name: _stamp(thing, config, output) for thing in SHARED_DECISIONS}
    return {thing.name: KnownRecord(thing.known(config, output), stamps[thing.name]) for thing in SHARED_DECISIONS}


def under_records(tasks: Sequence[Task], records: Records) -> tuple[Task, ...]:
    """Return tasks as they are trained under some records."""
    for thing in SHARED_DECISIONS:
        tasks = thing.apply(tasks, records[thing.name].record)
    return tuple(tasks)


def known_now(
    thing: SharedDecision[Any], config: Config, output: OutputFolder, record: TypedRecord | None
) -> KnownRecord:
    """Return a record that holds until its file changes."""
    return KnownRecord(record, _stamp(thing, config, output))


def _stamp(thing: SharedDecision[Any], config: Config, output: OutputFolder) -> Stamp:
    return stamp_of(str(thing.watched(config, output)))


def settled_quickly(batch: AnyWhole, todo: PendingTasks) -> AnyWhole:
    """Return a batch as it would be settled, as far as that takes no time; nothing is written down."""
    for thing in SHARED_DECISIONS:
        if thing.is_quick and thing.is_asked_for(todo.tasks) and (record := thing.settle(batch, todo)) is not None:
            batch = batch.with_record(thing, record)
    return batch


def settled_in_words(batch: WholeBatch, todo: Sequence[str]) -> list[str]:
    """Return what to tell of what is settled for a batch, of whose tasks some are to be trained."""
    known = ((thing, batch.record(thing)) for thing in SHARED_DECISIONS)
    return [line for thing, record in known if record for line in thing.in_words(record, batch.tasks, todo)]


def words_of_report(output: OutputFolder, tasks: Sequence[Task]) -> list[str]:
    """Return what a report tells of what is settled, but for what it has sections of its own for."""
    recorded = ((thing, thing.recorded(output)) for thing in SHARED_DECISIONS if not thing.has_section)
    return [line for thing, record in recorded if record for line in thing.in_words(record, tasks, ())]


def differ(then: Fingerprint, now: Fingerprint) -> bool:
    """Return whether what two trainings depend on was settled otherwise."""
    return any(thing.differs(then, now) for thing in SHARED_DECISIONS)


class SharedRecordsWatcher:
    """The records of a batch while it is looked at: each may be settled, or corrected, by whoever trains it."""

    def __init__(self, config: Config, output: OutputFolder, records: Records) -> None:
        self._config, self._output = config, output
        self._records = {thing.name: records.get(thing.name, NOT_SETTLED) for thing in SHARED_DECISIONS}
        self._next_look = float("-inf")
        self._files = {thing.name: str(thing.watched(config, output)) for thing in SHARED_DECISIONS}

    def has_news(self) -> bool:
        """Read the records whose files have changed since they were looked at last; return whether any has."""
        if time.monotonic() < self._next_look:
            return False
        has_changed, self._next_look = False, time.monotonic() + LOOK_S
        for thing in SHARED_DECISIONS:
            if (stamp := stamp_of(self._files[thing.name])) != self._records[thing.name].stamp:
                self._records[thing.name] = KnownRecord(thing.stored(self._config, self._output), stamp)
                has_changed = True
        return has_changed

    def look_again(self) -> None:
        """Look at the files at the next question."""
        self._next_look = float("-inf")

    def forget(self) -> None:
        """Read all records anew."""
        self._records = dict(known_records(self._config, self._output))

    def applied(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return tasks under the records as they are by now."""
        return under_records(tasks, self._records)

    def why_stale(self, result: Result, task: Task) -> str:
        """Say why a result was trained under other records; empty if it was not."""
        said = (thing.why_stale(result, task, self._records[thing.name].record) for thing in SHARED_DECISIONS)
        return next(filter(None, said), "")

    def key(self, task: Task) -> str:
        """Return what tells whether the records that hold for a task are those of an earlier look."""
        known = [(thing, *self._records[thing.name]) for thing in SHARED_DECISIONS]
        return " ".join(f"{at.num_bytes} {at.mtime_ns} {thing.key(task, record)}" for thing, record, at in known)
