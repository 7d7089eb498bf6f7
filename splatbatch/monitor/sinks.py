"""Where else a batch is told of while it runs, through one protocol: Prometheus, MLflow, people.

TensorBoard's event files are written by the training itself, which has the figures of every step in hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from splatbatch.output.events import Event
from splatbatch.output.records.run import FollowUpResult

BUDGET_S = 30.0
"""So long all sinks together may keep a batch that has ended."""
LOOK_S = 0.05


@dataclass(frozen=True)
class BatchOutcome:
    """How a batch has ended."""

    summary: str
    """In one line."""
    stopped: str = ""
    """Why it was stopped, as "SIGTERM"."""
    afterwards: tuple[FollowUpResult, ...] = ()
    """How publishing went, and all else that follows the training."""


class Sink:
    """Hears of a batch and tells it elsewhere. Must never wait: the loop that trains calls all of it."""

    name = ""

    def tell(self, event: Event) -> None:
        """Hear an event of the ledger."""

    def tick(self) -> Iterable[str] | None:
        """Write what is due; return why something could not be written. Called many times a second."""

    def close(self, end: BatchOutcome) -> None:
        """Hear that the batch has ended: ticks follow until all is written, or its time is up."""

    def is_done(self) -> bool:
        """Return whether nothing is left to be written; asked once it is closed."""
        return True

    def give_up(self) -> Iterable[str] | None:
        """End what still writes; return what was not written."""


class Sinks:
    """Several sinks, each fenced off: an exception of one ends that one alone."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._unsaid: list[str] = []

    def tell(self, event: Event) -> None:
        """Tell all of them."""
        self._unsaid += self._each(lambda sink: sink.tell(event))

    def tick(self) -> Iterator[str]:
        """Let all of them write what is due; yield why something could not be written."""
        said, self._unsaid = [*self._unsaid, *self._each(lambda sink: sink.tick())], []
        yield from said

    def finish(self, end: BatchOutcome, left_s: Callable[[], float]) -> Iterator[str]:
        """Let all of them write what is left, side by side and in one budget; yield what was not written.

        Args:
            end: how the batch has ended.
            left_s: returns the seconds that are left of the budget; it may shrink meanwhile.
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
        """Call each sink; return what they say, and which is given up for what it raised."""
        said = list[str]()
        for sink in list(self._sinks):
            try:
                said += call(sink) or ()
            except Exception as error:  # noqa: BLE001 - it is the sink's, and no batch ends for it
                self._sinks.remove(sink)
                said.append(f"{sink.name}: {type(error).__name__}: {error}; nothing more is written there")
        return said
