"""A courier that makes each call in the process of the test, at once."""

from __future__ import annotations

from functools import partial

from splatbatch.errors import CutOffError
from splatbatch.isolated import Answer, ExpectedError, InProcessCalls
from splatbatch.transfer import courier
from splatbatch.transfer.courier import Courier, Order


class InProcessCourier(Courier):
    def look(self) -> list[tuple[Order, Answer]]:
        found: list[tuple[Order, Answer]] = []
        while self._left:
            call, item = order = self._left[0]
            [(_, answer)] = InProcessCalls(partial(call, courier.store_at(self.url)), [item]).look()
            if isinstance(answer, ExpectedError) and isinstance(answer.error, CutOffError):
                break  # it is made again at the next look
            self._left.popleft()
            found.append((order, answer))
        return found
