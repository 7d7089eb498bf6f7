"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from splatbatch.attempt import (
    Attempt,
    Cancelled,
    Diagnosis,
    Exit,
    Failed,
    Lost,
    Outcome,
    Stopped,
    Trained,
    exit_to_record,
)
from splatbatch.batch import attempts, results, retry
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import Ledger
from splatbatch.batch.slots import SlotGate
from splatbatch.batch.work import Clock, Running, WallClock, Work, outcome_to_record
from splatbatch.config import Config, Rung
from splatbatch.errors import SplatbatchError
from splatbatch.executors import Executor, Job, Key, Seen, verdict
from splatbatch.files import read_json
from splatbatch.trainers import open_trainer

POLL_S = 0.1
HEARTBEAT_SILENCE_S = 10.0


class Runner:
    """Trains patches until every one is trained, given up or stopped."""

    def __init__(self, config: Config, executor: Executor, ledger: Ledger, clock: Clock | None = None) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._clock = clock or WallClock()
        self._output = OutputFolder(config.output.folder)
        self._batch = batch_name(self._output)
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
        self._let_go_of_twins()
        while self._queue or self._running:
            if reason := stop():
                self._stop_all(reason)
                break
            self._harvest()
            self._start_due()
            beat()
            self._clock.sleep(POLL_S)
        return self.outcomes

    def _start_due(self) -> None:
        for gate in self._gates:
            work = self._next_due()
            if work is None:
                return
            if gate.is_open(self._clock.now()):
                self._queue.remove(work)
                self._start(work, gate)
            elif gate.given_up(self._clock.now()):
                self._give_up_slot(gate)

    def _next_due(self) -> Work | None:
        now = self._clock.now()
        return next((work for work in self._queue if work.not_before <= now), None)

    def _start(self, work: Work, gate: SlotGate) -> None:
        folder = self._output.patch(work.patch.name)
        trainer = open_trainer(self._config.recipe(work.patch.name, work.changes))
        try:
            attempt, argv = attempts.prepare(work.patch, folder, trainer, work.changes)
        except (SplatbatchError, OSError) as error:
            self._fail_at_the_door(work, error)
            return
        key = f"{self._batch}.{work.patch.name}.a{attempt.folder.number}"
        attempts.write_job(attempt, key, argv, gate.slot, self._config.limits)
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

    def _fail_at_the_door(self, work: Work, error: Exception) -> None:
        """Record a patch that cannot even be handed to its trainer; the others go on."""
        hint = error.hint if isinstance(error, SplatbatchError) else ""
        diagnosis = Diagnosis("not_started", "fail", hint or "Mend what the evidence names.", (str(error),), "start")
        self.outcomes[work.patch.name] = Failed(diagnosis)
        number = max((folder.number for folder in self._output.patch(work.patch.name).attempts()), default=0)
        facts = outcome_to_record(Failed(diagnosis))
        self._ledger.write("attempt_ended", patch=work.patch.name, attempt=number, phase="start", **facts)

    def _harvest(self) -> None:
        if not self._running:
            return
        seen = self._executor.poll({key: running.handle for key, running in self._running.items()})
        for key, running in list(self._running.items()):
            end = self._ended(running, seen.get(key, Seen("unknown")))
            if end is not None:
                del self._running[key]
                next(gate for gate in self._gates if gate.slot == running.slot).release(self._clock.now())
                self._judge(running, end)

    def _ended(self, running: Running, seen: Seen) -> Exit | None:
        """Return how an attempt ended, or None while it may still run; stale means no new beat by our own clock."""
        record = read_json(running.attempt.folder.exit)
        if record is None and seen.phase in ("ended", "gone"):
            beat = int((read_json(running.attempt.folder.heartbeat) or {}).get("sequence", 0))
            if beat != running.beat:
                running.beat, running.beat_seen_at = beat, self._clock.now()
        silent_for_s = self._clock.now() - running.beat_seen_at
        moves = silent_for_s < HEARTBEAT_SILENCE_S and self._executor.survives_parent
        end = verdict(record, heartbeat_moves=moves, seen=seen)
        # a supervisor that is asked to stop in its first moments dies before it can write its record
        asked = running.attempt.folder.cancel.exists()
        return Cancelled("stopped at its start") if asked and isinstance(end, Lost) else end

    def _judge(self, running: Running, end: Exit) -> None:
        work, attempt = running.work, running.attempt
        trainer = open_trainer(self._config.recipe(work.patch.name, work.changes))
        outcome = attempts.judge(attempt.folder, trainer, end)
        self.outcomes[work.patch.name] = outcome
        if isinstance(outcome, Trained):
            self._accept(work, attempt, outcome)
            for waiting in self._queue:
                waiting.trained_since.append(work.patch.name)
        self._ledger.write(
            "attempt_ended",
            patch=work.patch.name,
            attempt=attempt.folder.number,
            exit=exit_to_record(end),
            **attempts.facts(attempt.folder),
            **outcome_to_record(outcome),
        )
        if isinstance(outcome, Failed):
            work.failures.append(retry.Failure(outcome.diagnosis, dict(work.rungs)))
            self._failures[work.patch.name] = work.failures
            self._try_again(work)

    def _accept(self, work: Work, attempt: Attempt, trained: Trained) -> None:
        prints = results.fingerprint(work.patch, self._config.recipe(work.patch.name))
        facts = {**vars(prints), **attempts.facts(attempt.folder), "attempts": attempt.folder.number}
        results.accept(self._output.patch(work.patch.name), attempt, trained, facts)

    def _try_again(self, work: Work) -> None:
        name, witnesses = work.patch.name, work.trained_since if len(work.failures) > 1 else []
        decision = retry.decide(work.failures, self._config.retry, self._random.random())
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
        current = {**recipe.settings(), "slots": len(self._gates)}
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
        diagnosis = Diagnosis(
            "cuda_busy_or_unavailable",
            "retry",
            "No GPU became free: end what holds it (nvidia-smi shows it), or raise cooldown.longest_s.",
            (f"{gate.slot.name}: {gate.reason}",),
        )
        for work in self._queue:
            self.outcomes[work.patch.name] = Failed(diagnosis)
            self._ledger.write("gave_up", patch=work.patch.name, reason=f"{gate.slot.name}: {gate.reason}")
        self._queue.clear()

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down."""
        self._queue.clear()
        for running in self._running.values():
            running.attempt.folder.cancel.touch()
        self._executor.cancel({key: running.handle for key, running in self._running.items()})
        end = self._clock.now() + self._config.limits.grace_s + 2 * HEARTBEAT_SILENCE_S
        while self._running and self._clock.now() < end:
            self._harvest()
            self._queue.clear()
            self._clock.sleep(POLL_S)
        for running in self._running.values():
            self.outcomes[running.work.patch.name] = Stopped(reason)

    def _let_go_of_twins(self) -> None:
        """Stop attempts of an earlier parent that still run: their settings may no longer be ours."""
        twins = self._executor.find(self._batch)
        if not twins:
            return
        self._ledger.write("twins_stopped", keys=sorted(twins))
        self._executor.cancel(twins)
        end = self._clock.now() + self._config.limits.grace_s + HEARTBEAT_SILENCE_S
        while self._executor.find(self._batch) and self._clock.now() < end:
            self._clock.sleep(POLL_S)
        if self._executor.find(self._batch):
            raise SplatbatchError(
                f"attempts of an earlier run do not stop: {', '.join(sorted(twins))}",
                "End their processes by hand, then start again.",
            )


def batch_name(output: OutputFolder) -> str:
    """Return a name for everything this output folder starts: stable, and unlike that of any other folder."""
    return results.short_hash(str(output.path.resolve()))
