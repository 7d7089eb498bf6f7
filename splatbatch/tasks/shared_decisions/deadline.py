"""What is given up for a deadline, as its file says: the same for every patch of a batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from splatbatch.config import Config
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.deadline.choice import DeadlineDecision
from splatbatch.tasks.shared_decisions.decision import PendingTasks, SharedDecision, WholeBatch
from splatbatch.tasks.task import Task, with_step_budget


class SharedDeadline(SharedDecision[DeadlineDecision]):
    """With how many steps, on how large photographs, a batch is trained so that it ends in time.

    It makes nothing stale by itself: splats of every pace that it names count.
    """

    kind = DeadlineDecision
    name = "deadline"
    what = "what the deadline leaves time for"
    has_section = True

    def file(self, output: OutputFolder) -> Path:
        """Return the file that records it."""
        return output.deadline

    def is_asked_for(self, tasks: Sequence[Task]) -> bool:
        """Return whether the YAML has a deadline."""
        return any(task.requested_settings.config.deadline for task in tasks)

    def stored(self, config: Config, output: OutputFolder) -> DeadlineDecision | None:
        """Return what was chosen for the deadline of the YAML."""
        choice = self.recorded(output) if config.deadline else None
        return choice if choice and choice.asked == config.deadline else None

    def settle(self, batch: WholeBatch, todo: PendingTasks) -> DeadlineDecision | None:
        """Return what the deadline leaves time for; None where what was chosen before holds.

        Raises:
            ConfigError: the deadline is past.
        """
        from splatbatch.tasks.deadline.settle import choice_for  # which loads numpy: `status` does without

        return choice_for(self, batch, todo, time.time())

    def apply(self, tasks: Sequence[Task], record: DeadlineDecision | None) -> tuple[Task, ...]:
        """Return tasks as they are trained in time."""
        own = record.paces if record else ()
        return tuple(tasks) if all(one.yaml_settings.paces == own for one in tasks) else with_step_budget(tasks, own)

    def in_words(self, record: DeadlineDecision, tasks: Sequence[Task], todo: Sequence[str]) -> tuple[str, ...]:
        """Return what was chosen, a line for each thing there is to say; that it cannot be met comes first."""
        from splatbatch.tasks.deadline.words import in_words

        return in_words(record, tasks) if todo else ()


DEADLINE = SharedDeadline()
