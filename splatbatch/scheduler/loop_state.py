"""State of the loop of a batch: waiting tasks, attempts whose outcome is not recorded yet, and slots.

A slot is a GPU or a share of the CPU; a standby is an attempt that is prepared while all slots are busy.
"""

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
from splatbatch.scheduler.running_attempt import Clock, RunningAttempt
from splatbatch.tasks.task import Task


@dataclass
class LoopState:
    """State of a batch while this process trains it; `launch`, `standby`, `cancel` and `retry_handling` change it.

    `slots` and `queue` are made from the config, the executor and `tasks`, which are to be trained.
    """

    config: Config
    executor: LocalExecutor
    ledger: Ledger
    tasks: Sequence[Task]
    hooks: RunHooks
    clock: Clock = field(default_factory=Clock)
    is_retry: bool = False
    """Whether the user asked by `retry`, so that a new splat may replace an up-to-date one."""
    attempts: dict[Key, RunningAttempt] = field(default_factory=dict)
    """Open attempts by key: they have begun or stand by, and their outcome is not recorded yet."""
    in_their_turn: set[TaskId] = field(default_factory=set)
    """Tasks whose standby could not be started, or has ended too early: they get no other standby.

    They start when their turn comes.
    """
    discarded: Counter[str] = field(default_factory=Counter)
    """Number of discarded attempts by task: their attempt number is used again, so a suffix keeps keys unique."""

    def __post_init__(self) -> None:
        self.output = OutputFolder(self.config.output.folder)
        self.batch_name = results.batch_name(self.output)
        self.slots = Slots(self.executor.slots, self.config.cooldown, self.executor.shared_mib)
        self.queue = Queue(self.tasks, self.attempts, self.hooks, self.slots)

    def add(self, one: RunningAttempt) -> None:
        """Add an attempt to the open attempts."""
        self.attempts[one.key] = one

    def running(self) -> list[RunningAttempt]:
        """Return the attempts that have a slot and have not ended: they are being prepared, or run."""
        return [one for one in self.attempts.values() if one.stage == "running"]

    def ready(self) -> list[RunningAttempt]:
        """Return the attempts that stand by, in the order of their turns; some may still be being prepared."""
        return [one for one in self.attempts.values() if one.stage == "standby"]
