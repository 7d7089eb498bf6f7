"""The interface for reporting a running batch elsewhere: Prometheus, MLflow, notifications.

A sink is a receiver of events that passes them on. TensorBoard's event files are written by the training process
itself, which has the figures of every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from splatbatch.output.events import Event
from splatbatch.output.records.run import FollowUpResult

BUDGET_S = 30.0
"""Longest time in seconds that all sinks together may delay the end of a batch."""
LOOK_S = 0.05
"""Seconds between two ticks while sinks finish."""


@dataclass(frozen=True)
class BatchOutcome:
    """How a batch ended, as sinks report it."""

    summary: str
    """The outcome in one line."""
    stopped: str = ""
    """Reason why the batch was stopped, such as "SIGTERM"; empty: it was not."""
    afterwards: tuple[FollowUpResult, ...] = ()
    """Results of the follow-ups, such as publishing; empty: there were none."""


class Sink:
    """Interface of a receiver that reports a batch elsewhere, and a base that does nothing.

    Its methods must not block: the training loop calls them. An exception removes the sink from the batch.
    """

    name = ""

    def tell(self, event: Event) -> None:
        """Take an event of the ledger; here nothing is done."""

    def tick(self) -> Iterable[str] | None:
        """Write what is due, and return error messages for the user; None: there are none.

        Called many times a second.
        """

    def close(self, end: BatchOutcome) -> None:
        """Take the end of the batch; ticks follow until `is_done`, or until the time for it is up."""

    def is_done(self) -> bool:
        """Return whether nothing is left to write; called after `close`."""
        return True

    def give_up(self) -> Iterable[str] | None:
        """End unfinished writing, and return messages about what was not written; None: there are none."""


class Sinks:
    """All sinks of a batch; an exception in one removes that sink, with a message, and affects no other."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._unsaid: list[str] = []

    def tell(self, event: Event) -> None:
        """Pass an event to all sinks; error messages are kept for the next `tick`."""
        self._unsaid += self._each(lambda sink: sink.tell(event))

    def tick(self) -> Iterator[str]:
        """Let all sinks write what is due; yield their error messages."""
        said, self._unsaid = [*self._unsaid, *self._each(lambda sink: sink.tick())], []
        yield from said

    def finish(self, end: BatchOutcome, left_s: Callable[[], float]) -> Iterator[str]:
        """Let all sinks finish within one time budget; yield messages about what was not written.

        Args:
            end: how the batch ended.
            left_s: returns the seconds left of the budget, which may shrink meanwhile.
        """
        yield from self._each(lambda sink: sink.close(end))
        yield from self.tick()
        while (busy := self._busy()) and left_s() > 0:
            time.sleep(LOOK_S)
            yield from self.tick()
        yield from self._each(lambda sink: sink.give_up() if sink in busy else ())
        yield from self.tick()

    def _busy(self) -> list[Sink]:
        busy = list[Sink]()
        self._unsaid += self._each(lambda sink: None if sink.is_done() else busy.append(sink))
        return busy

    def _each(self, call: Callable[[Sink], Iterable[str] | None]) -> list[str]:
        """Call each sink; return their messages. A sink that raises is removed, with a message."""
        said = list[str]()
        for sink in list(self._sinks):
            try:
                said += call(sink) or ()
            except Exception as error:  # noqa: BLE001 - an error of a sink must not end the batch
                self._sinks.remove(sink)
                said.append(f"{sink.name}: {type(error).__name__}: {error}; nothing more is written there")
        return said
