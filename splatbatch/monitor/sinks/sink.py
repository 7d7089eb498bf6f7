"""A sink: hears what happens to a batch, and writes it down elsewhere. One that fails harms nothing.

TensorBoard's event files are written by the training itself, which has the figures of every step in hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from splatbatch.store.events import Event


class Sink(Protocol):
    """Must never wait: `tell` and `beat` are called by the loop that trains, `beat` many times a second."""

    name: str

    def tell(self, event: Event) -> None:
        """Hear an event of the ledger."""

    def beat(self) -> Iterable[str] | None:
        """Write what is due; return why something could not be written."""

    def finish(self) -> Iterable[str] | None:
        """Write what is left, in bounded time."""


class Sinks:
    """Several sinks, each fenced off: whatever one raises ends that one alone."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._unsaid: list[str] = []

    def tell(self, event: Event) -> None:
        """Tell all of them."""
        for sink in list(self._sinks):
            self._guarded(sink, lambda sink=sink: sink.tell(event))  # type: ignore[misc]

    def beat(self) -> Iterator[str]:
        """Let all of them write what is due; yield why something could not be written."""
        yield from self._each(lambda sink: sink.beat())

    def finish(self) -> Iterator[str]:
        """Let all of them write what is left."""
        yield from self._each(lambda sink: sink.finish())

    def _each(self, call: Callable[[Sink], Iterable[str] | None]) -> Iterator[str]:
        for sink in list(self._sinks):
            self._guarded(sink, lambda sink=sink: self._unsaid.extend(call(sink) or ()))  # type: ignore[misc]
        said, self._unsaid = self._unsaid, []
        yield from said

    def _guarded(self, sink: Sink, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the sink's, and no batch ends for it
            self._sinks.remove(sink)
            self._unsaid.append(f"{sink.name}: {type(error).__name__}: {error}; nothing more is written there")
