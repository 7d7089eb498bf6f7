"""Makes the shared decisions of a batch, before training, in this order: offset, hold-out, colours, step budget."""

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
"""Function that returns the decisions of a batch with one more decision made."""


def decide_frame(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Return the decisions with the offset that is subtracted from the coordinates of all models; see `choose_frame`.

    Raises:
        SceneError: patches are too far apart to share an offset.
    """
    return replace(batch.shared, frame=choose_frame(batch, todo))


def decide_holdout(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Decide whether whole frames or single photographs are held out, and report how many photographs that is.

    Frames are held out, unless the first splat of the batch was trained otherwise. The photographs themselves are
    chosen for each patch by `scene.holdout.choose_holdout`.
    """
    for line in frames_in_words(todo.tasks):
        todo.say(line)
    return batch.shared if batch.shared.by_frames is not None else replace(batch.shared, by_frames=True)


def decide_deadline(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Return the decisions with the step budget for the deadline in the YAML.

    They are unchanged without a deadline, if the earlier choice still holds, or if no patch is due.

    Raises:
        ConfigError: the deadline is past.
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    choice = choice_for(batch, todo, time.time())
    return replace(batch.shared, deadline=choice) if choice else batch.shared


STEPS: Mapping[str, Step] = {
    "the offset of the coordinates": decide_frame,
    "the number of held-out photographs": decide_holdout,
    "the colours of the photographs": decide_colors,
    "the number of steps for the deadline": decide_deadline,
}
"""Functions that make the decisions, in their order, by the name of their decision in messages."""


def preview_decisions(batch: Batch, todo: PendingTasks) -> Batch:
    """Return a batch under the decisions that `train` would make, for `plan`; nothing is written.

    The colours are left out, since solving them takes long.

    Raises:
        SceneError: patches are too far apart to share an offset.
        ConfigError: the deadline is past.
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    for step in (decide_frame, decide_holdout, decide_deadline):
        batch = batch.with_shared(step(batch, todo))
    return batch


def decisions_in_words(batch: Batch, todo: Sequence[str]) -> list[str]:
    """Return lines about the shared decisions of a batch, for the user; empty if there is nothing to report.

    Args:
        batch: the batch.
        todo: names of the tasks to train; empty: the deadline is left out.
    """
    told = note(batch.shared.frame, (task.patch.name for task in batch.tasks))
    lines = [told] if told else []
    lines += frames_in_words(batch.tasks) if batch.shared.by_frames is not None else ()
    return lines + list(decision_in_words(batch.shared.deadline, batch.tasks) if batch.shared.deadline and todo else ())
