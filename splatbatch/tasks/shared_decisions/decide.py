"""Deciding what a batch shares, in this order: its frame, its hold-out, its colours, its step budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.deadline import choice_for, decision_in_words
from splatbatch.tasks.shared_decisions.colors import decide_colors
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions
from splatbatch.tasks.shared_decisions.frame import choose_frame, note
from splatbatch.tasks.shared_decisions.holdout import frames_in_words

Step = Callable[[Batch, PendingTasks], SharedDecisions]
"""Returns the decisions of a batch, one more of them made."""


def decide_frame(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Choose the offset of the batch."""
    return replace(batch.shared, frame=choose_frame(batch, todo))


def decide_holdout(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Hold out frames unless the first splat says otherwise, and say how many photographs that holds out."""
    for line in frames_in_words(todo.tasks):
        todo.say(line)
    return batch.shared if batch.shared.by_frames is not None else replace(batch.shared, by_frames=True)


def decide_deadline(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Choose what the deadline of the YAML leaves time for.

    Raises:
        ConfigError: the deadline is past.
    """
    choice = choice_for(batch, todo, time.time())
    return replace(batch.shared, deadline=choice) if choice else batch.shared


STEPS: Mapping[str, Step] = {
    "the frame of the batch": decide_frame,
    "the hold-out of the batch": decide_holdout,
    "the colours of the photographs": decide_colors,
    "what the deadline leaves time for": decide_deadline,
}
"""By what each decides, in messages."""


def preview_decisions(batch: Batch, todo: PendingTasks) -> Batch:
    """Return a batch under what would be decided, but for the colours, which take long; nothing is written down."""
    for step in (decide_frame, decide_holdout, decide_deadline):
        batch = batch.with_shared(step(batch, todo))
    return batch


def decisions_in_words(batch: Batch, todo: Sequence[str]) -> list[str]:
    """Return what to tell of what a batch shares, of whose tasks some are to be trained."""
    told = note(batch.shared.frame, (task.patch.name for task in batch.tasks))
    lines = [told] if told else []
    lines += frames_in_words(batch.tasks) if batch.shared.by_frames is not None else ()
    return lines + list(decision_in_words(batch.shared.deadline, batch.tasks) if batch.shared.deadline and todo else ())
