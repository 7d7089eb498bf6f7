"""What report.json says of a deadline: what was given up for it, what was corrected, and when the last patch ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from splatbatch.plain_text import clock, moment
from splatbatch.report.facts import ReportedDeadline
from splatbatch.store.events import AttemptEnded, Event
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.deadline.words import in_words
from splatbatch.tasks.settled.deadline import DEADLINE
from splatbatch.tasks.standing import Standing


def deadline_of(output: OutputFolder, history: Iterable[Event], standing: Standing | None) -> ReportedDeadline | None:
    """Return what is told of the deadline; None where none was chosen for."""
    choice = DEADLINE.recorded(output)
    if choice is None:
        return None
    tasks = [standing.current(name) for name in choice.patches if standing and standing.knows(name)]
    ends = [event.t for event in history if _counts(event, choice.patches, choice.chosen_at or 0.0)]
    ended_at = max((at for at in ends if at is not None), default=None)
    words = list(in_words(choice, tasks))
    if ended_at is not None and choice.ends_at is not None:
        late_s = ended_at - choice.ends_at
        how = f"{clock(abs(late_s))} {'after it' if late_s > 0 else 'before it'}"
        words.append(f"the last attempt ended at {moment(ended_at)}, {how}")
    told = {one.name: getattr(choice, one.name) for one in fields(choice)}
    return ReportedDeadline(**told, words=tuple(words), ended_at=ended_at)


def _counts(event: Event, patches: Sequence[str], since: float) -> bool:
    return isinstance(event, AttemptEnded) and event.patch in patches and (event.t or 0.0) >= since
