"""What follows from the end of an attempt: again and with which change, given up, or nothing more started at all."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from splatbatch.config import Config, Rung
from splatbatch.errors import ConfigError
from splatbatch.failures import retry
from splatbatch.machine.protocol import Slot
from splatbatch.machine.slots import Slots
from splatbatch.outcome import Diagnosis, Failed, Outcome
from splatbatch.scheduler.finalize import outcome_to_record
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running import Clock, Running, Work
from splatbatch.store.attempt_folder import Attempt
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.tasks import given_up
from splatbatch.tasks.fingerprints.inputs import files_from_record

GPU_FAULT = "gpu_hardware_fault"
OF_COMPANY = frozenset(
    {
        "cuda_oom",
        "cublas_cudnn_error",
        "cuda_busy_or_unavailable",
        "cuda_init_unknown",
        "cuda_launch_failure",
        "cuda_illegal_access",
    }
)
"""Causes that another attempt on the same GPU may have brought about; under MPS a fault of one ends them all."""
OF_ENGINE = frozenset({"cuda_busy_or_unavailable", "cuda_init_unknown", "cuda_invalid_device"})
"""Causes that an MPS daemon may have which runs, but serves nobody: in some containers it does."""


class RetryHandling:
    """Keeps the outcomes of a batch, and decides after each what is next."""

    def __init__(self, config: Config, ledger: Ledger, clock: Clock, slots: Slots) -> None:
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._slots = slots
        self._output = OutputFolder(config.output.folder)
        self._failures: dict[str, list[retry.Failure]] = {}
        self._trained: list[str] = []
        self._random = random.Random(str(config.output.folder))  # noqa: S311 - jitter, the same in every run
        self.outcomes: dict[str, Outcome] = {}
        self.hopeless = ""
        """Why nothing more is to be started; empty as long as it is."""

    def trained(self, work: Work) -> None:
        """Note who was trained: a witness for the GPU to those that failed before."""
        self._trained.append(work.patch.name)

    def failed(self, running: Running, diagnosis: Diagnosis, queue: Queue) -> None:
        """Decide on a patch whose attempt has failed."""
        work = running.work
        if diagnosis.cause == GPU_FAULT and self._moves(work, diagnosis, running.slot, queue):
            return
        if diagnosis.cause in OF_ENGINE and running.slot.environment:
            self._slots.share_nothing()
            self._ledger.write("mps_off", reason="; ".join(diagnosis.evidence))
            self._again_uncounted(work, queue)
            return
        if diagnosis.cause in OF_COMPANY and running.num_company and not work.alone:
            work.alone = True
            self._again_uncounted(work, queue)
            return
        self._count(work, diagnosis, queue, running.attempt)

    def could_not(self, work: Work, diagnosis: Diagnosis, queue: Queue) -> None:
        """Decide on a patch that could not be started, or whose result could not be kept; the others go on."""
        if diagnosis.action == "retry":
            self.not_started_yet(work, diagnosis, queue)
        else:
            self.not_started(work, diagnosis)

    def none_started(self, works: Iterable[Work], diagnosis: Diagnosis) -> None:
        """Give up patches that waited for what is not to be had."""
        for work in works:
            self.not_started(work, diagnosis, "; ".join(diagnosis.evidence))

    def not_started_yet(self, work: Work, diagnosis: Diagnosis, queue: Queue) -> None:
        """Decide on a patch that no process could be started for."""
        self.not_started(work, diagnosis)
        self._count(work, diagnosis, queue)

    def not_started(self, work: Work, diagnosis: Diagnosis, reason: str = "") -> None:
        """Record the failure of a patch that no attempt could be made at; with a reason, that it is given up."""
        name = work.patch.name
        self.outcomes[name] = Failed(diagnosis)
        number = max((folder.number for folder in self._output.patch(name).attempts()), default=0)
        facts = outcome_to_record(Failed(diagnosis))
        self._ledger.write("attempt_ended", patch=name, attempt=number, phase="start", **facts)
        if reason:
            self._ledger.write("gave_up", patch=name, reason=reason)

    def _moves(self, work: Work, diagnosis: Diagnosis, slot: Slot, queue: Queue) -> bool:
        """Take a GPU that faulted out of service; its patch goes elsewhere, once, and it is not held against it."""
        if not slot.gpu or not self._slots.others(slot):
            return False
        self._slots.give_up(slot)
        self._ledger.write("slot_given_up", slot=slot.name, reason=f"{GPU_FAULT}: {'; '.join(diagnosis.evidence)}")
        if work.moved:
            return False
        work.moved = True
        self._again_uncounted(work, queue)
        return True

    def _again_uncounted(self, work: Work, queue: Queue) -> None:
        """Try again what the patch itself is not to blame for."""
        queue.put_back(work)
        self._ledger.write("retry", patch=work.patch.name, wait_s=0.0, ladder="", changes={}, trained_in_between=[])

    def _count(self, work: Work, diagnosis: Diagnosis, queue: Queue, attempt: Attempt | None = None) -> None:
        """Hold a failure against its patch."""
        work.failures.append(retry.Failure(diagnosis, dict(work.rungs)))
        self._failures[work.patch.name] = work.failures
        self._try_again(work, queue, attempt)

    def _try_again(self, work: Work, queue: Queue, attempt: Attempt | None) -> None:
        name, witnesses = work.patch.name, self._trained[work.num_trained_before :] if len(work.failures) > 1 else []
        config = self._config.retry_of(name, work.changes)
        decision = retry.decide(work.failures, config, self._random.random())
        work.num_trained_before = len(self._trained)
        if reason := retry.why_stop_batch(self._failures):
            self._ledger.write("gave_up", patch=name, reason=reason)
            self.hopeless = reason
            return
        match decision:
            case retry.Again(wait_s=wait_s, ladder=ladder, rung=rung):
                try:
                    changes = self._take_rung(work, ladder, rung)
                except ConfigError as error:  # of a patch with settings of its own: those of the YAML were checked
                    self._ledger.write("gave_up", patch=name, reason=error.message, trained_in_between=witnesses)
                    return
                work.not_before = self._clock.now() + wait_s
                queue.put_last(work)
                facts = {"ladder": ladder, "changes": changes, "trained_in_between": witnesses}
                self._ledger.write("retry", patch=name, wait_s=round(wait_s, 1), **facts)
            case retry.GiveUp(reason=reason):
                key = self._key(work, attempt, reason)
                self._ledger.write("gave_up", patch=name, reason=reason, trained_in_between=witnesses, **key)

    def _key(self, work: Work, attempt: Attempt | None, reason: str) -> dict[str, Any]:
        """Return what must change before a patch is tried again; nothing if another night may do."""
        if attempt is None or not given_up.is_for_good(work.failures[-1].diagnosis, reason):
            return {}
        recipe = self._config.recipe(work.patch.name, work.asked)
        files = files_from_record(attempt.depends_on.get("files"))
        return {"key": given_up.key_of(recipe, files), "cause": work.failures[-1].diagnosis.cause}

    def _take_rung(self, work: Work, ladder: str, rung: Rung) -> dict[str, Any]:
        """Change a patch's settings, or the number of slots, as a rung says; return what was changed.

        Raises:
            ConfigError: the patch's settings cannot be changed so.
        """
        if not ladder:
            return {}
        recipe = self._config.recipe(work.patch.name, work.changes)
        changes = retry.resolve(rung, {**work.changes, **recipe.settings(), "slots": len(self._slots)})
        of_patch = {key: value for key, value in changes.items() if key != "slots"}
        self._config.recipe(work.patch.name, {**work.changes, **of_patch})
        work.rungs[ladder] = work.rungs.get(ladder, 0) + 1
        if "slots" in changes:
            self._slots.keep(max(1, int(changes["slots"])))
        work.changes |= of_patch
        return changes
