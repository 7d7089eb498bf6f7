"""A courier that makes each call in the process of the test, at once."""

from __future__ import annotations

from functools import partial
from typing import Any

from splatbatch.errors import CutOffError
from splatbatch.isolated import Answer, ExpectedError, InProcessCalls
from splatbatch.transfer import courier
from splatbatch.transfer.courier import Call, Courier, Order


def made(call: Call, url: str, arguments: tuple[Any, ...]) -> Any:
    return call(courier.store_at(url), *arguments)


class InProcessCourier(Courier):
    def look(self) -> list[tuple[Order, Answer]]:
        found: list[tuple[Order, Answer]] = []
        while self._left:
            call, arguments = order = self._left[0]
            [(_, answer)] = InProcessCalls(partial(made, call, self.url), [arguments]).look()
            if isinstance(answer, ExpectedError) and isinstance(answer.error, CutOffError):
                break  # it is made again at the next look
            self._left.popleft()
            found.append((order, answer))
        return found
