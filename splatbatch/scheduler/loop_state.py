"""What the loop of a batch holds: the tasks that wait, the attempts that it looks after, the slots that they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from splatbatch.config import Config, TaskId
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import Key
from splatbatch.machine.slots import Slots
from splatbatch.output import results
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import Clock, Execution, RunningAttempt, Standby
from splatbatch.tasks.task import Task


@dataclass
class LoopState:
    """A batch while it is trained by this process; what starts, stands by, ends and is cancelled is written into it."""

    config: Config
    executor: LocalExecutor
    ledger: Ledger
    tasks: Sequence[Task]
    hooks: RunHooks
    clock: Clock = field(default_factory=Clock)
    is_retry: bool = False
    attempts: dict[Key, RunningAttempt] = field(default_factory=dict)
    """Those that have begun, or stand by, and whose outcome is not recorded."""
    in_their_turn: set[TaskId] = field(default_factory=set)
    """Tasks a standby of which has died: the next attempt starts in its turn, and tells why."""
    discarded: Counter[str] = field(default_factory=Counter)
    """How often an attempt at a task was removed before it was one: its number is used again, its key never."""

    def __post_init__(self) -> None:
        self.output = OutputFolder(self.config.output.folder)
        self.batch_name = results.batch_name(self.output)
        self.slots = Slots(self.executor.slots, self.config.cooldown, self.executor.shared_mib)
        self.queue = Queue(self.tasks, self.attempts, self.hooks, self.slots)

    def add(self, one: RunningAttempt) -> None:
        """Look after an attempt from now on."""
        self.attempts[one.key] = one

    def running(self) -> list[RunningAttempt]:
        """Return the attempts that have a slot, and are prepared or run."""
        return [one for one in self.attempts.values() if isinstance(one.stage, Execution)]

    def ready(self) -> list[RunningAttempt]:
        """Return the attempts that stand by, in turn."""
        return [one for one in self.attempts.values() if isinstance(one.stage, Standby)]
