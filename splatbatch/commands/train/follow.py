"""`train` where workers do the work: it asks for them, shows what they do, asks again where they end too early.

It may die at any moment, and come again: nothing is known to it alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from splatbatch import terminal
from splatbatch.commands.output import print_warnings, tell
from splatbatch.commands.train.afterwards import After, Night, follow, inspection_left_out
from splatbatch.commands.train.summary import Run, Stand, conclude, tell_the_end
from splatbatch.engines.crew import Crew
from splatbatch.errors import ConfigError, ExecutorError
from splatbatch.monitor.console import open_listener
from splatbatch.monitor.notify import Notifier
from splatbatch.monitor.prometheus import MetricsFile
from splatbatch.monitor.sinks import End, Sinks
from splatbatch.night.ends import why_ended
from splatbatch.night.interruption import Interruption
from splatbatch.night.muster import Muster
from splatbatch.scheduler.work.left import Left
from splatbatch.store.claims.workers import Watcher
from splatbatch.store.events import AttemptEnded, Event, NotifyFailed, WorkersSeen
from splatbatch.store.ledger import Tail
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.status import summary

LOOK_S = 8.0
"""Between two questions to an engine."""
BEAT_S = 1.0
MOST_IDLE = 2
"""So often in a row workers may end without having ended an attempt; then it makes no sense to ask for more."""


def train(batch: Batch, names: Sequence[str], only: Sequence[str], *, verify: bool, after: After | None) -> None:
    """Have workers train what is not trained; exit with 0 if every patch is, with 1 if not.

    Args:
        batch: what is to be trained.
        names: of the patches that were named; none for all.
        only: conditions, which workers cannot take.
        verify: the photographs are checked first.
        after: does what follows the training; None: leave as soon as workers are asked for.

    Raises:
        ConfigError: it is to train under conditions only.
        ExecutorError: the engine refuses the workers, or they cannot train where it starts them.
    """
    if only:
        raise ConfigError(f"train --only {only[0]}: workers take patches by name", "Name them: p0@base …")
    terminal.never_block()
    print_warnings(batch.config.warnings)
    batch.output.create()
    crew, watcher = Crew(batch.config.executor, batch.output), Watcher(batch.output)
    muster = Muster(batch, names, verify, crew, watcher, Left.of(batch))
    if said := muster.call():
        tell(said)
    if after is None and not said:
        tell("nothing is left to be trained")
    elif after is None:
        tell("`splatbatch attach` shows it, `splatbatch status` says how far it is, `splatbatch cancel` ends it")
    if after is None:
        return
    interruption, standing, run = Interruption(), batch.whole().standing(), Run(tuple(batch.names))
    names_of_all = batch.whole().names
    notifier = Notifier(batch.config.notify, batch.output, names_of_all, standing)
    sinks = Sinks([MetricsFile(batch.output, names_of_all, standing), notifier])
    with _listening(batch, sinks, standing) as listeners:
        if said:
            Follower(muster, listeners, interruption).follow()
    standing.forget()
    if interruption.signal:  # the batch goes on
        tell("they go on; `splatbatch train` or `attach` shows them again, `splatbatch cancel` ends them")
        raise typer.Exit(interruption.exit_code)
    stand = Stand.of(batch, run, standing)
    afterwards = follow(Night(batch, stand.code, interruption), inspection_left_out(batch), after)
    code = conclude(batch, run, stand, standing, afterwards)
    tell_the_end(sinks, End(summary(stand.statuses), "", afterwards), interruption, batch.config)
    raise typer.Exit(interruption.exit_code if interruption.signal else code)


@dataclass(frozen=True)
class Listeners:
    """Who hears what workers write down, and is asked to move on."""

    tell: Callable[[Event], None]
    beat: Callable[[], None]


@contextmanager
def _listening(batch: Batch, sinks: Sinks, standing: Standing) -> Iterator[Listeners]:
    """Show the batch, and tell whoever wants to be told."""
    with open_listener(batch.output, batch.whole().names, standing) as console:

        def hear(event: Event) -> None:
            console.tell(event)
            sinks.tell(event)

        def beat() -> None:
            console.beat()
            for reason in sinks.beat():
                console.tell(NotifyFailed(reason))

        yield Listeners(hear, beat)


@dataclass
class Follower:
    """Follows workers until nothing is left for them, or nobody is left to do it."""

    muster: Muster
    listeners: Listeners
    interruption: Interruption
    _tail: Tail = field(init=False)
    _ends: Counter[str] = field(default_factory=Counter)
    """Outcomes of the attempts that have ended since workers were asked for last."""
    _num_idle: int = 0
    _next_look: float = 0.0
    _shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tail = Tail(self.muster.batch.output)
        self._tail.skip()

    def follow(self) -> None:
        """Return when it is over, or somebody has interrupted us.

        Raises:
            ExecutorError: workers have ended again and again without doing anything.
        """
        while not self.interruption.reason():
            self._hear()
            if self._is_over():
                self._hear()
                if not self._goes_on():
                    return
            time.sleep(BEAT_S)

    def _hear(self) -> None:
        for _, event in self._tail.read():
            self.listeners.tell(event)
            if isinstance(event, AttemptEnded):
                self._ends[event.outcome] += 1
        self.listeners.beat()

    def _is_over(self) -> bool:
        """Return whether nobody works any more, and nobody will; engines are asked now and then."""
        crew, may_ask = self.muster.crew, time.monotonic() >= self._next_look
        if may_ask:
            crew.look()
            self._next_look = time.monotonic() + LOOK_S
            if (words := crew.in_words()) != self._shown:
                self._shown = words
                self.listeners.tell(WorkersSeen("; ".join(words)))
        if self.muster.living():
            return False
        return not crew.lives() or (may_ask and not self._left())

    def _left(self) -> list[str]:
        return self.muster.left.names(self.muster.batch.standing())

    def _goes_on(self) -> bool:
        """Ask for more workers if those that have ended have left something that more can do; return whether it did.

        Raises:
            ExecutorError: they have come to nothing, and so would others.
        """
        crew = self.muster.crew
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
            raise ExecutorError(f"the workers have ended without training anything: {how.words}", how.hint)
        self.listeners.tell(WorkersSeen(f"the workers have ended and have left work, others follow: {how.words}"))
        self._next_look = time.monotonic() + LOOK_S
        return bool(self.muster.call())

    def _is_unwanted(self) -> bool:
        """Return whether somebody has cancelled them, by us or by their engine."""
        crew = self.muster.crew
        by_engine = any(seen.how.startswith("CANCELLED") for *_, seen in crew.ended())
        return by_engine or any(one.cancelled.exists() for one in crew.submissions)
