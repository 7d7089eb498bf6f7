"""Workers that an engine starts for a batch: asked for once, followed, asked for again where they end too early.

Whoever follows may die at any moment, and come again: nothing is known to it alone.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from splatbatch.cluster.engine import TERMS, Ended, Running, WorkerRequest
from splatbatch.cluster.slurm import NEVER_BEGAN
from splatbatch.cluster.workers import EngineWorkers
from splatbatch.errors import ConfigError, ExecutorError, Interrupted, OutputError, SceneError, TrainerError
from splatbatch.files import read_tail
from splatbatch.machine import background_command
from splatbatch.monitor.messages import print_err
from splatbatch.output.events import AttemptEnded, WorkerStates
from splatbatch.output.exclusive import hold
from splatbatch.output.ledger import Tail
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.submissions import new_submission
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.run import context as nights
from splatbatch.run.context import RunContext, RunResult, metrics, people
from splatbatch.run.follow_ups import After, Show
from splatbatch.run.inspection import not_inspected
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler.work.exclusive_output import lock_output_alone
from splatbatch.scheduler.work.remaining_tasks import RemainingTasks
from splatbatch.tasks.batch import Batch
from splatbatch.text import one_line, plural

AGAIN = 75
"""Exit code of a worker that was told to stop, or whose time is up, and that may be started again."""
REFUSING = {error.exit_code for error in (ConfigError, SceneError, TrainerError, ExecutorError, OutputError)}
"""Exit codes of a worker that cannot work where it is, by what it was given."""
LOG_BYTES = 2000
LOOK_S = 8.0
"""Between two questions to an engine."""
BEAT_S = 1.0
MOST_IDLE = 2
"""So often in a row workers may end without having ended an attempt; then it makes no sense to ask for more."""
UNKNOWN_S = 3600.0
"""So long a task is taken to last where nobody can tell: too many turns cost nothing, the last ones are taken back."""
MARGIN = 1.5


def start_elsewhere(batch: Batch, *, verify: bool) -> str:
    """Have workers train what is not trained, and leave; return what was done, in words; empty: nothing is left.

    Raises:
        ExecutorError: the engine refuses the workers, or they cannot train where it starts them.
    """
    batch.output.create()
    return WorkerSubmitter.of(batch, verify=verify).call()


def train_elsewhere(batch: Batch, show: Show, after: After, *, verify: bool) -> nights.RunSummary:
    """Have workers train what is not trained, follow them, and do what follows.

    Args:
        batch: what is to be trained.
        show: hears of what was made.
        after: does what follows the training.
        verify: the photographs are checked first.

    Raises:
        ExecutorError: the engine refuses the workers, or they cannot train where it starts them.
        Interrupted: somebody has stopped following them; they go on.
    """
    batch.output.create()
    staffing = WorkerSubmitter.of(batch, verify=verify)
    if said := staffing.call():
        print_err(said)
    with Interruption() as interruption:
        with RunContext.open(batch, interruption, show, (metrics, people)) as night:
            if said:
                WorkerFollower(staffing, night).follow()
            night.shown.forget()
            ended = None
            if not interruption.signal:
                inspected = not_inspected(batch.whole(), "workers do not inspect")
                alone = partial(lock_output_alone, batch.output, batch.plan_hash, print_err)
                ended = night.follow(RunResult(tuple(batch.names)), inspected, after, alone)
        if ended is None:
            print_err(
                "the workers keep running: follow them with `splatbatch status --watch`, end with `splatbatch cancel`"
            )
            raise Interrupted(interruption.exit_code)
        return night.end(ended)


@dataclass
class WorkerSubmitter:
    """Sees to it that workers are at work on a batch."""

    batch: Batch
    verify: bool
    crew: EngineWorkers
    watcher: Watcher
    left: RemainingTasks

    @classmethod
    def of(cls, batch: Batch, *, verify: bool) -> WorkerSubmitter:
        """Begin."""
        return cls(
            batch,
            verify,
            EngineWorkers(batch.config.executor, batch.output),
            Watcher(batch.output),
            RemainingTasks.of(batch),
        )

    def call(self) -> str:
        """Ask for workers unless some are at work or wait; return what was done, in words; empty: nothing is left.

        Raises:
            ExecutorError: the engine would refuse them, or workers are at work by another YAML.
            OutputError: a `train` of this kind is just asking, or one trains by itself.
        """
        with hold(self.batch.output, self.batch.plan_hash, print_err):
            self.crew.settle()
            self.crew.look()
            self.crew.close()
            terms = self.batch.plan_hash
            self._see_same_terms(terms)
            if self.crew.lives() or self.living():
                return f"workers are already running or queued; nothing was started. {'; '.join(self.crew.in_words())}"
            standing = self.batch.standing("content")
            left = self.left.names(standing)
            return self._start(terms, len(left)) if left else ""

    def living(self) -> list[WorkerRecord]:
        """Return the workers that are not known to be gone, also by what their engine says."""
        return [one for one in self.watcher.living(but=LOCAL) if not self.crew.is_dead(one.job)]

    def _start(self, terms: str, num_tasks: int) -> str:
        wanted = self._wanted(terms, num_tasks)
        engine = self.crew.engine()
        engine.check(wanted)
        name = self.batch.config.executor.engine
        try:
            submission = new_submission(self.batch.output, name, wanted.num_workers, terms)
        except OSError as error:
            raise OutputError(f"{self.batch.output.jobs}: cannot be written ({error.strerror})") from error
        try:
            handles = engine.start(wanted, submission)
        except ExecutorError:
            if engine.find(submission) == ():  # else it may have taken them all the same
                submission.close()
            raise
        self.crew.add(submission.taken(handles))
        jobs = handles[0] if len(handles) == 1 else f"{handles[0]} to {handles[-1]}"
        return f"{name}: requested {plural(wanted.num_workers, 'worker')}: {jobs}; logs: {submission.path}"

    def _wanted(self, terms: str, num_tasks: int) -> WorkerRequest:
        settings = self.batch.config.executor
        path = self.batch.file
        no_verify = () if self.verify else ("--no-verify",)
        names = () if self.batch.tasks == self.batch.every else self.batch.names
        num_workers = min(settings.workers, num_tasks)
        wanted = WorkerRequest(
            num_workers=num_workers,
            gpus=settings.gpus_of_each(self.batch.config.training.device),
            command=background_command.command_of(("work", "--config", str(path), *no_verify, *names)),
            environment={TERMS: terms},
            folder=path.parent,
            grace_s=self.batch.config.limits.grace_s,
            setup=settings.setup,
        )
        seconds = MARGIN * UNKNOWN_S * math.ceil(num_tasks / num_workers)
        return wanted.with_turns(self.crew.engine().num_turns(wanted, seconds))

    def _see_same_terms(self, terms: str) -> None:
        """See that nobody is at work, or waits to be, by another YAML or with another version.

        Raises:
            ExecutorError: somebody is.
        """
        others = [one for one in self.living() if one.terms != terms and self._works(one)]
        asked = [one for one in self.crew.submissions if one.record.terms not in ("", terms)]
        if others or asked:
            who = (
                f"worker {others[0].worker} on {others[0].host}"
                if others
                else f"submission {asked[0].name} to {asked[0].record.engine}"
            )
            raise ExecutorError(
                f"{self.batch.output.path}: {who} uses another YAML or version of splatbatch",
                "End it with `splatbatch cancel`, or restore the YAML: all workers of a batch must use the same one.",
            )

    def _works(self, worker: WorkerRecord) -> bool:
        return self.watcher.lives(worker) or isinstance(self.crew.seen.get(worker.job), Running)


@dataclass
class WorkerFollower:
    """Follows workers until nothing is left for them, or nobody is left to do it."""

    staffing: WorkerSubmitter
    night: RunContext
    _tail: Tail = field(init=False)
    _ends: Counter[str] = field(default_factory=Counter)
    """Outcomes of the attempts that have ended since workers were asked for last."""
    _num_idle: int = 0
    _next_look: float = 0.0
    _shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tail = Tail(self.staffing.batch.output)
        self._tail.skip()

    def follow(self) -> None:
        """Return when it is over, or somebody has interrupted us.

        Raises:
            ExecutorError: workers have ended again and again without doing anything.
        """
        while not self.night.interruption.reason():
            self._hear()
            if self._is_over():
                self._hear()
                if not self._goes_on():
                    return
            time.sleep(BEAT_S)

    def _hear(self) -> None:
        for _, event in self._tail.read():
            self.night.hear(event)
            if isinstance(event, AttemptEnded):
                self._ends[event.outcome] += 1
        self.night.tick()

    def _is_over(self) -> bool:
        """Return whether nobody works any more, and nobody will; engines are asked now and then."""
        crew, may_ask = self.staffing.crew, time.monotonic() >= self._next_look
        if may_ask:
            crew.look()
            self._next_look = time.monotonic() + LOOK_S
            if (words := crew.in_words()) != self._shown:
                self._shown = words
                self.night.hear(WorkerStates("; ".join(words)))
        if self.staffing.living():
            return False
        return not crew.lives() or (may_ask and not self._left())

    def _left(self) -> list[str]:
        return self.staffing.left.names(self.staffing.batch.standing())

    def _goes_on(self) -> bool:
        """Ask for more workers if those that have ended have left something that more can do; return whether it did.

        Raises:
            ExecutorError: they have come to nothing, and so would others.
        """
        crew = self.staffing.crew
        if self._is_unwanted() or not self._left():
            crew.drop()
            crew.look()
            crew.close()
            return False
        ended, how = self._ends, why_ended(crew)
        crew.close()
        self._ends = Counter()
        self._num_idle = 0 if ended["trained"] or ended["stopped"] else self._num_idle + 1
        if ended["failed"] and self._num_idle:
            return False  # as where `train` trains by itself: what fails on machine after machine is told, not repeated
        if self._num_idle >= MOST_IDLE or (self._num_idle and how.is_for_good):
            raise ExecutorError(f"all workers ended without training a patch: {how.words}", how.hint)
        self.night.hear(WorkerStates(f"all workers ended before the batch was done; starting new ones: {how.words}"))
        self._next_look = time.monotonic() + LOOK_S
        return bool(self.staffing.call())

    def _is_unwanted(self) -> bool:
        """Return whether somebody has cancelled them, by us or by their engine."""
        crew = self.staffing.crew
        by_engine = any(seen.how.startswith("CANCELLED") for *_, seen in crew.ended())
        return by_engine or any(one.cancelled.exists() for one in crew.submissions)


@dataclass(frozen=True)
class WorkerFailure:
    """Why workers have ended."""

    words: str
    hint: str = ""
    is_for_good: bool = False
    """Others would end so, too."""


def why_ended(crew: EngineWorkers) -> WorkerFailure:
    """Return why the workers of a crew have ended: of one that tells most."""
    ends = sorted(crew.ended(), key=lambda one: _weight(one[2]), reverse=True)
    if not ends:
        return WorkerFailure("the engine gives no reason")
    submission, handle, seen = ends[0]
    said = one_line(read_tail(submission.log_of(handle), LOG_BYTES).strip())
    where = f" on {seen.where}" if seen.where else ""
    code = f" with exit code {seen.code}" if seen.code is not None else ""
    words = f"worker {handle}{where}: {seen.how}{code}; its log {f'ends with: {said}' if said else 'is empty'}"
    if seen.code == AGAIN:
        return WorkerFailure(words, "If a task needs more time than a worker has, increase `executor.worker_time`.")
    if NEVER_BEGAN in seen.how:
        return WorkerFailure(
            words, f"Check that {submission.path} is visible and writable on that node.", is_for_good=True
        )
    return WorkerFailure(words, f"See {submission.path}.", seen.code in REFUSING)


def _weight(seen: Ended) -> tuple[int, bool]:
    """Return how much an end tells: a refusal most, a clean end least; of two alike that of which the node is known."""
    if seen.code in REFUSING or NEVER_BEGAN in seen.how:
        return 3, bool(seen.where)
    return {0: 0, AGAIN: 1}.get(seen.code if seen.code is not None else -1, 2), bool(seen.where)
