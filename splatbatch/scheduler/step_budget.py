"""Adjusts the step budget of a batch with a deadline, at each begin of an attempt, by measured speeds.

The first budget follows from a forecast, which may be wrong by a factor, as on another GPU or a busy machine. New
attempts get fewer steps, or smaller photographs, if the deadline would be missed. They get more steps if much time
would be left, and enough patches to share it: then never more than the YAML's, nor 1.5 times the fewest. Running
attempts keep their budget.

A slot is a GPU or a share of the CPU; a standby is an attempt that is prepared while all slots are busy.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from splatbatch.files import write_json
from splatbatch.output.events import Notice
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.deadline import Adjustment, DeadlineDecision, StepBudget
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline import RemainingWork, correction_in_words, speeds_of
from splatbatch.tasks.task import Task
from splatbatch.text import clock

NEWEST = 50
"""Number of attempts, those made last, by which the speed is measured."""
ENOUGH = 0.5
"""Share of an attempt's steps after which its speed counts; first steps have few Gaussians and small photographs."""
SPARE = 0.05
"""Share of the time until the deadline that may be left over without an adjustment."""
FEW = 0.3
"""Attempts get more steps only if more than this share of the patches has not begun, lest the patches be uneven."""
MOST_MORE = 1.5
"""Largest ratio of the steps of a patch to the fewest of any that time to spare may bring about."""
AIM = 0.01
"""Share of the time until the deadline that an adjustment keeps as a reserve."""


class DeadlineBudget:
    """Adjusts the step budget of a batch during its run, so that the batch ends before its deadline."""

    def __init__(self, batch: Batch, choice: DeadlineDecision, ledger: Ledger, end: float) -> None:
        """Start from the budget that was chosen before the first patch.

        Args:
            batch: the batch.
            choice: decision on the deadline, with its first budget.
            ledger: ledger for notices about adjustments.
            end: deadline by the clock of the loop, in seconds.

        Raises:
            ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
            LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
        """
        self.choice = choice
        self.newest: deque[RunningAttempt] = deque(maxlen=NEWEST)
        self._batch, self._ledger, self._end = batch, ledger, end
        self._speeds, _ = speeds_of(batch)

    def choose_again(
        self, now: float, waiting: Sequence[Task], running: Iterable[RunningAttempt], num_slots: int
    ) -> bool:
        """Choose another budget for attempts not begun, if the measured speed requires it; return whether it changed.

        The new budget is written to deadline.json and the ledger. Standbys were prepared under the earlier budget, so
        the caller must end them. Without a measured speed nothing changes.

        Args:
            now: time by the clock of the loop, in seconds.
            waiting: tasks not begun.
            running: attempts that have a slot.
            num_slots: number of attempts that may run at once.

        Raises:
            OSError: deadline.json cannot be written.
            OutputError: the ledger cannot be written.
        """
        if not self._speeds.learn(self._measured()):
            return False
        steps = ((one.task, one.attempt.folder.last_progress().step or 0) for one in running)
        busy = [self._speeds.seconds(task, task.yaml_settings.budgets[0], step) for task, step in steps]
        work, left_s = RemainingWork(waiting, self._speeds, num_slots, busy), self._end - now
        chosen = self._better(work, left_s)
        if chosen == self.choice.budgets[0]:
            return False
        why = f"the measured speed of training is not the expected one: {clock(max(0.0, left_s))} left"
        if work.ends_at(chosen) > left_s:
            why += ", too little even for the fewest steps that make sense"
        correction = Adjustment(round(time.time(), 3), chosen, why)
        self.choice = replace(self.choice, corrections=(*self.choice.corrections, correction))
        write_json(self._batch.output.deadline, self.choice.to_record())
        self._ledger.write(Notice("deadline", correction_in_words(self._batch.tasks, correction)))
        return True

    def _better(self, work: RemainingWork, left_s: float) -> StepBudget:
        """Return the present budget if the batch ends in time and leaves little time over, else a better one."""
        choice, total_s = self.choice, (self.choice.ends_at or 0.0) - (self.choice.chosen_at or 0.0)
        now, expected_s = choice.budgets[0], work.ends_at(choice.budgets[0])
        most = min(1.0, MOST_MORE * min(budget.steps for budget in choice.budgets))
        is_idle = expected_s < left_s - SPARE * total_s and len(work.tasks) > FEW * len(choice.patches)
        if expected_s <= left_s and not (is_idle and now.steps < most):
            return now
        best = work.choose(left_s - AIM * total_s)
        if expected_s > left_s:
            return best
        return replace(now, steps=max(now.steps, min(best.steps, most))) if best.divisor == now.divisor else now

    def _measured(self) -> Iterator[tuple[Task, StepBudget, float, float]]:
        for one in self.newest:
            last = one.attempt.folder.last_progress()
            if last.seconds and last.step and last.max_steps and last.step >= ENOUGH * last.max_steps:
                yield one.task, one.task.yaml_settings.budgets[0], last.seconds, last.step
