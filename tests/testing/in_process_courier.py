"""A courier that makes each call in the process of the test, at once."""

from __future__ import annotations

from typing import Any

from splatbatch.isolated import Answer, InProcessCalls
from splatbatch.transfer.courier import Courier


class InProcessCourier(Courier):
    descriptor = None

    def __init__(self) -> None:
        self._answer: Answer | None = None

    def begin(self, call: Any, item: Any) -> None:
        [(_, self._answer)] = InProcessCalls(call, [item]).look()

    def look(self) -> Answer | None:
        found, self._answer = self._answer, None
        return found

    def end(self) -> None:
        """Make no further calls."""
