"""From a task to an attempt that runs: its folder made, its orders written, its supervisor started."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

from splatbatch.config import Config
from splatbatch.machine.protocol import Executor, Slot
from splatbatch.scheduler import judge
from splatbatch.scheduler.judge import Order
from splatbatch.scheduler.pace.pacer import NoDeadline, Pacer
from splatbatch.scheduler.running import Running
from splatbatch.store import results
from splatbatch.store.attempt_folder import Attempt
from splatbatch.store.events import AttemptStarted, Gate
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.obstacles import see_place
from splatbatch.store.records.attempt import Claimed
from splatbatch.tasks.fingerprints.fingerprint import fingerprint, recipe_hash
from splatbatch.tasks.task import Task


class Launcher:
    """Starts attempts, at once or ahead of their turn."""

    def __init__(self, config: Config, executor: Executor, ledger: Ledger, *, is_retry: bool) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._output = OutputFolder(config.output.folder)
        self._batch = results.batch_name(self._output)
        self._is_retry = is_retry
        self._discarded: Counter[str] = Counter()
        self.pacer: Pacer = NoDeadline()
        """Says how many steps what begins now is given."""

    def start(self, task: Task, slot: Slot) -> Running:
        """Start an attempt.

        Raises:
            SplatbatchError, OSError: its folder or its orders cannot be made.
        """
        running = self._made(task, slot, standby=False)
        self._tell(running)
        running.handle = self._executor.submit(running.key, running.attempt.folder)
        return running

    def stand_by(self, task: Task, slot: Slot) -> Running:
        """Start the process of an attempt that prepares and then waits for `go`.

        Raises:
            SplatbatchError, OSError: its folder or its orders cannot be made.
        """
        running = self._made(task, replace(slot, environment=()), standby=True)  # which slot it will be, go.json says
        running.handle = self._executor.submit(running.key, running.attempt.folder)
        return running

    def go(self, running: Running, slot: Slot) -> None:
        """Let an attempt that stands by begin, on a slot that is free now."""
        judge.write_go(running.attempt.folder, slot)
        running.slot = slot
        self._tell(running)

    def discard(self, running: Running) -> None:
        """Remove what is left of a standby that has ended: it never was an attempt."""
        self._discarded[running.task.name] += 1
        shutil.rmtree(running.attempt.folder.path, ignore_errors=True)

    def _made(self, task: Task, slot: Slot, *, standby: bool) -> Running:
        """Make the folder of an attempt with all that its supervisor and its trainer read."""
        task = self.pacer.paced(task)
        home, setup = self._output.patch(task.name), task.setup
        see_place(home)
        with judge.next_attempt(home) as folder:
            # the settings of the YAML, those really in force, and the inputs
            depends_on = replace(fingerprint(task.patch, task.recipe), effective=recipe_hash(setup.recipe))
            claim = task.claim or Claimed(follows=home.newest_accepted())
            attempt = Attempt(task.name, folder, dict(setup.told), depends_on, self._is_retry, claim)
            order = Order(self._key(attempt), setup.trainer.command(task.patch, folder), slot, standby)
            judge.write_job(attempt, order, self._config.limits)
        return Running(task, attempt, order.key, handle="", slot=slot)

    def _key(self, attempt: Attempt) -> str:
        # the number of a discarded standby is used again, its key never
        discarded = self._discarded[attempt.patch]
        return f"{self._batch}.{attempt.patch}.a{attempt.folder.number}" + (f"s{discarded}" if discarded else "")

    def tell_wait(self, running: Running, waited_s: float, reason: str) -> None:
        """Write down for how long, and for what, the gate of its slot kept an attempt waiting."""
        name, number = running.task.name, running.attempt.folder.number
        self._ledger.write(Gate(name, number, running.slot.name, round(waited_s, 2), reason))

    def _tell(self, running: Running) -> None:
        task, number = running.task, running.attempt.folder.number
        self._ledger.write(AttemptStarted(task.name, number, running.key, running.slot.name, dict(task.setup.told)))
