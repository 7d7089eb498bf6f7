"""Hooks that the loop calls: whether to stop, which tasks to claim, what other workers have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.isolated import WaitHooks
from splatbatch.scheduler.step_budget import DeadlineBudget
from splatbatch.scheduler.work.other_workers_history import OtherWorkersHistory
from splatbatch.tasks.task import Task


@dataclass
class RunHooks(WaitHooks):
    """Functions that the loop calls in every round. This class is for a run without other workers, and makes no claims.

    `TaskClaimer` replaces its methods for runs that share the batch with other workers.
    """

    refused: Callable[[], Mapping[str, str]] = dict
    """Returns the tasks that the audit rejected since the last call, by name, with the reasons."""
    requests: Callable[[], list[Path]] | None = None
    """Returns the files with requests to cancel; None: requests to `train` are read."""
    is_alone: bool = True
    """Whether no other run trains into the folder: processes found at the start are then of an earlier run."""
    deadline: DeadlineBudget | None = None
    """Adjusts the step budget to the deadline of the batch; None: no deadline ahead, or several workers."""
    audited: Mapping[str, str] = field(default_factory=dict)
    """Hash of the state of each task's files when they were audited, by name of the task.

    Tasks not audited are missing.
    """
    past: OtherWorkersHistory | None = None
    """Failures and retries of tasks on other workers; None: there are no other workers."""

    def claim(self, task: Task) -> Task | float | None:
        """Claim a task whose turn it is; here each task is granted as it is.

        Returns:
            The task, with its claim and the setting changes of earlier retries. A number: another worker has the task;
            ask again after so many seconds. None: another worker has finished the task, or the remaining time of this
            worker is too short.
        """
        return task

    def is_elsewhere(self, name: str) -> bool:
        """Return whether another worker has claimed a task now; also asked of tasks that are not selected.

        Here never.
        """
        return False

    def close(self, name: str) -> None:
        """Close the claim of this worker on a finished task; nothing happens if this worker has no claim on it."""

    def lost(self) -> Mapping[str, str]:
        """Return the tasks that other workers took over since the last call, by name, each with that worker in words.

        Here always empty.
        """
        return {}
