"""From a work to an attempt that runs: its folder made, its orders written, its supervisor started."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

from splatbatch.config import Config
from splatbatch.files import Record
from splatbatch.machine.protocol import Executor, Job, Slot
from splatbatch.scheduler import judge
from splatbatch.scheduler.judge import Order
from splatbatch.scheduler.running import Running, Work
from splatbatch.store import results
from splatbatch.store.attempt_folder import Attempt
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.obstacles import see_place
from splatbatch.tasks.fingerprints.fingerprint import fingerprint, recipe_hash
from splatbatch.trainers import open_trainer


class Launcher:
    """Starts attempts, at once or ahead of their turn."""

    def __init__(self, config: Config, executor: Executor, ledger: Ledger) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._output = OutputFolder(config.output.folder)
        self._batch = results.batch_name(self._output)
        self._discarded: Counter[str] = Counter()

    def start(self, work: Work, slot: Slot) -> Running:
        """Start an attempt.

        Raises:
            SplatbatchError, OSError: its folder or its orders cannot be made.
        """
        running = self._made(work, slot, standby=False)
        self._tell(running)
        self._submit(running)
        return running

    def stand_by(self, work: Work, slot: Slot) -> Running:
        """Start the process of an attempt that prepares and then waits for `go`.

        Raises:
            SplatbatchError, OSError: its folder or its orders cannot be made.
        """
        running = self._made(work, replace(slot, environment=()), standby=True)  # which slot it will be, go.json says
        self._submit(running)
        return running

    def go(self, running: Running, slot: Slot) -> None:
        """Let an attempt that stands by begin, on a slot that is free now."""
        judge.write_go(running.attempt.folder, slot)
        running.slot = slot
        self._tell(running)

    def discard(self, running: Running) -> None:
        """Remove what is left of a standby that has ended: it never was an attempt."""
        self._discarded[running.work.patch.name] += 1
        shutil.rmtree(running.attempt.folder.path, ignore_errors=True)

    def _made(self, work: Work, slot: Slot, *, standby: bool) -> Running:
        """Make the folder of an attempt with all that its supervisor and its trainer read."""
        name = work.patch.name
        trainer = open_trainer(self._config.recipe(name, work.changes))
        see_place(self._output.patch(name))
        with judge.next_attempt(self._output.patch(name)) as folder:
            attempt = Attempt(name, folder, dict(work.changes), self._depends_on(work), work.is_retry)
            order = Order(self._key(attempt), trainer.command(work.patch, attempt.folder), slot, standby)
            judge.write_job(attempt, order, self._config.limits)
        return Running(work, attempt, order.key, handle="", slot=slot)

    def _depends_on(self, work: Work) -> Record:
        """Return what a result would depend on: the settings of the YAML, those really in force, and the inputs."""
        name = work.patch.name
        now = fingerprint(work.patch, self._config.recipe(name)).to_record()
        return {**now, "effective": recipe_hash(self._config.recipe(name, work.changes))}

    def _key(self, attempt: Attempt) -> str:
        # the number of a discarded standby is used again, its key never
        discarded = self._discarded[attempt.patch]
        return f"{self._batch}.{attempt.patch}.a{attempt.folder.number}" + (f"s{discarded}" if discarded else "")

    def _submit(self, running: Running) -> None:
        job = Job(running.key, running.attempt.folder)
        running.handle = self._executor.submit([job])[running.key]

    def tell_wait(self, running: Running, waited_s: float, reason: str) -> None:
        """Write down for how long, and for what, the gate of its slot kept an attempt waiting."""
        facts = {"patch": running.work.patch.name, "attempt": running.attempt.folder.number, "slot": running.slot.name}
        self._ledger.write("gate", **facts, waited_s=round(waited_s, 2), reason=reason)

    def _tell(self, running: Running) -> None:
        self._ledger.write(
            "attempt_started",
            patch=running.work.patch.name,
            attempt=running.attempt.folder.number,
            key=running.key,
            slot=running.slot.name,
            changes=running.work.changes,
        )
