"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from splatbatch.attempt import (
    Attempt,
    Diagnosis,
    Exit,
    Failed,
    Outcome,
    Stopped,
    Trained,
)
from splatbatch.batch import attempts, results, retry
from splatbatch.batch.endings import Ending, outcome_to_record, settle
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import Ledger
from splatbatch.batch.room import RoomGate
from splatbatch.batch.slots import SlotGate
from splatbatch.batch.work import HEARTBEAT_SILENCE_S, Clock, Running, WallClock, Work, how_it_ended
from splatbatch.config import Config, Rung
from splatbatch.errors import SplatbatchError
from splatbatch.executors import Executor, Job, Key, Seen, Slot
from splatbatch.files import is_out_of_space
from splatbatch.trainers import open_trainer

POLL_S = 0.1


class Runner:
    """Trains patches until every one is trained, given up or stopped."""

    def __init__(self, config: Config, executor: Executor, ledger: Ledger, clock: Clock | None = None) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._clock = clock or WallClock()
        self._output = OutputFolder(config.output.folder)
        self._batch = results.batch_name(self._output)
        self._room = RoomGate(self._output.path, config.limits, ledger)
        self._gates = [SlotGate(slot, config.cooldown) for slot in executor.slots()]
        self._queue: list[Work] = []
        self._running: dict[Key, Running] = {}
        self._failures: dict[str, list[retry.Failure]] = {}
        self._random = random.Random(self._batch)  # noqa: S311 - jitter, the same in every run of this folder
        self.outcomes: dict[str, Outcome] = {}

    def run(self, works: Sequence[Work], *, stop: Callable[[], str], beat: Callable[[], None]) -> Mapping[str, Outcome]:
        """Train patches; return the last outcome of each.

        Args:
            works: what to train, in this order.
            stop: asked in every round; a reason ends what runs and starts nothing more.
            beat: called in every round.
        """
        self._queue = list(works)
        while self._queue or self._running:
            if reason := stop():
                self._stop_all(reason)
                break
            self._harvest()
            self._start_due()
            self._ledger.flush()
            beat()
            self._clock.sleep(POLL_S)
        return self.outcomes

    def _start_due(self) -> None:
        for gate in self._gates:
            work = self._next_due()
            if work is None or not self._has_room():
                return
            if gate.is_open(self._clock.now()):
                self._queue.remove(work)
                self._start(work, gate)
            elif gate.given_up(self._clock.now()):
                self._give_up_slot(gate)

    def _next_due(self) -> Work | None:
        now = self._clock.now()
        return next((work for work in self._queue if work.not_before <= now), None)

    def _has_room(self) -> bool:
        now = self._clock.now()
        if not (is_open := self._room.is_open(now)) and self._room.given_up(now):
            self._fail_waiting(self._room.diagnosis())
        return is_open

    def _start(self, work: Work, gate: SlotGate) -> None:
        try:
            attempt, key = self._prepare(work, gate.slot)
        except (SplatbatchError, OSError) as error:
            if is_out_of_space(error):
                self._queue.insert(0, work)
                self._room.shut(self._clock.now(), str(error))
            else:
                self._fail_at_the_door(work, error)
            return
        self._ledger.write(
            "attempt_started",
            patch=work.patch.name,
            attempt=attempt.folder.number,
            key=key,
            slot=gate.slot.name,
            changes=work.changes,
        )
        handle = self._executor.submit([Job(key, attempt.folder)])[key]
        gate.take()
        self._running[key] = Running(work, attempt, gate.slot, handle, beat_seen_at=self._clock.now())

    def _prepare(self, work: Work, slot: Slot) -> tuple[Attempt, Key]:
        """Make the folder of an attempt with all that its supervisor and its trainer read."""
        name = work.patch.name
        trainer = open_trainer(self._config.recipe(name, work.changes))
        prints = results.fingerprint(work.patch, self._config.recipe(name))
        with attempts.next_attempt(name, self._output.patch(name), work.changes, prints) as attempt:
            key = f"{self._batch}.{name}.a{attempt.folder.number}"
            argv = trainer.command(work.patch, attempt.folder)
            attempts.write_job(attempt, key, argv, slot, self._config.limits)
        return attempt, key

    def _fail_at_the_door(self, work: Work, error: Exception) -> None:
        """Record a patch that cannot even be handed to its trainer; the others go on."""
        advice = error.hint if isinstance(error, SplatbatchError) and error.hint else "Mend what the evidence names."
        self._fail(work, Diagnosis("not_started", "fail", advice, (str(error),), "start"))

    def _fail(self, work: Work, diagnosis: Diagnosis) -> None:
        """Record the failure of a patch that no attempt could be made at."""
        self.outcomes[work.patch.name] = Failed(diagnosis)
        number = max((folder.number for folder in self._output.patch(work.patch.name).attempts()), default=0)
        facts = outcome_to_record(Failed(diagnosis))
        self._ledger.write("attempt_ended", patch=work.patch.name, attempt=number, phase="start", **facts)

    def _harvest(self) -> None:
        if not self._running:
            return
        seen = self._executor.poll({key: running.handle for key, running in self._running.items()})
        for key, running in list(self._running.items()):
            seen_now, now = seen.get(key, Seen("unknown")), self._clock.now()
            end = how_it_ended(running, seen_now, now, survives_parent=self._executor.survives_parent)
            if end is not None and self._is_judged(running, end):
                del self._running[key]
                for gate in self._gates:
                    if gate.slot == running.slot:
                        gate.release(self._clock.now())

    def _is_judged(self, running: Running, end: Exit) -> bool:
        """Judge an attempt; False while a full disk does not take its result: it keeps its slot until there is room."""
        now = self._clock.now()
        if not self._room.takes_writes(now) and not self._room.given_up(now):
            return False
        try:
            self._judge(running, end)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self._room.shut(now, str(error))
            self.outcomes[running.work.patch.name] = Failed(self._room.diagnosis())
            return self._room.given_up(now)
        return True

    def _judge(self, running: Running, end: Exit) -> None:
        work, attempt = running.work, running.attempt
        trainer = open_trainer(self._config.recipe(work.patch.name, work.changes))
        outcome = attempts.judge(attempt.folder, trainer, end)
        settle(Ending(attempt, end, outcome), self._output.patch(work.patch.name), self._ledger)
        self.outcomes[work.patch.name] = outcome
        if isinstance(outcome, Trained):
            for waiting in self._queue:
                waiting.trained_since.append(work.patch.name)
        if isinstance(outcome, Failed):
            if outcome.diagnosis.cause == "disk_full":
                self._room.shut(self._clock.now(), f"disk full at {work.patch.name}")
            work.failures.append(retry.Failure(outcome.diagnosis, dict(work.rungs)))
            self._failures[work.patch.name] = work.failures
            self._try_again(work)

    def _try_again(self, work: Work) -> None:
        name, witnesses = work.patch.name, work.trained_since if len(work.failures) > 1 else []
        config = self._config.retry_of(name, work.changes)
        decision = retry.decide(work.failures, config, self._random.random())
        work.trained_since = []
        if reason := retry.why_stop_batch(self._failures):
            self._stop_hopeless(work, reason)
            return
        match decision:
            case retry.Again(wait_s=wait_s, ladder=ladder, rung=rung):
                changes = self._take_rung(work, ladder, rung)
                work.not_before = self._clock.now() + wait_s
                self._queue.append(work)
                facts = {"ladder": ladder, "changes": changes, "trained_in_between": witnesses}
                self._ledger.write("retry", patch=name, wait_s=round(wait_s, 1), **facts)
            case retry.GiveUp(reason=reason):
                self._ledger.write("gave_up", patch=name, reason=reason, trained_in_between=witnesses)

    def _take_rung(self, work: Work, ladder: str, rung: Rung) -> dict[str, Any]:
        """Change a patch's settings, or the number of slots, as a rung says; return what was changed."""
        if not ladder:
            return {}
        recipe = self._config.recipe(work.patch.name, work.changes)
        current = {**work.changes, **recipe.settings(), "slots": len(self._gates)}
        changes = retry.resolve(rung, current)
        work.rungs[ladder] = work.rungs.get(ladder, 0) + 1
        if "slots" in changes:
            self._gates = self._gates[: max(1, int(changes["slots"]))]
        work.changes |= {key: value for key, value in changes.items() if key != "slots"}
        return changes

    def _stop_hopeless(self, work: Work, reason: str) -> None:
        """Start nothing more: what failed twice lies in the machine."""
        for other in [work, *self._queue]:
            self._ledger.write("gave_up", patch=other.patch.name, reason=reason)
        self._queue.clear()

    def _give_up_slot(self, gate: SlotGate) -> None:
        """Take a GPU out of service that never became free; without any slot left, nothing can be trained."""
        self._gates = [other for other in self._gates if other is not gate]
        self._ledger.write("slot_given_up", slot=gate.slot.name, reason=gate.reason)
        if self._gates:
            return
        self._fail_waiting(gate.diagnosis())

    def _fail_waiting(self, diagnosis: Diagnosis) -> None:
        for work in self._queue:
            self._fail(work, diagnosis)
            self._ledger.write("gave_up", patch=work.patch.name, reason="; ".join(diagnosis.evidence))
        self._queue.clear()

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down."""
        self._queue.clear()
        for running in self._running.values():
            with contextlib.suppress(OSError):  # a full disk: the signal below says the same
                running.attempt.folder.cancel.touch()
        self._executor.cancel({key: running.handle for key, running in self._running.items()})
        end = self._clock.now() + self._config.limits.grace_s + 2 * HEARTBEAT_SILENCE_S
        while self._running and self._clock.now() < end:
            self._harvest()
            self._queue.clear()
            self._clock.sleep(POLL_S)
        for running in self._running.values():
            self.outcomes[running.work.patch.name] = Stopped(reason)
