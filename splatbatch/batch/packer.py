"""Measures how fast all patches on a GPU train together, and sets the number of seats by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from splatbatch.batch import attempts
from splatbatch.batch.gate import SlotGate
from splatbatch.batch.ledger import Ledger
from splatbatch.batch.packing import Look, how_many
from splatbatch.batch.slots import Slots
from splatbatch.batch.work import Running
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.executors import Key
from splatbatch.files import Record

LOOK_S = 2.0
MOST_AT_ONCE = 8
Mark = tuple[float, float]
"""When, and which step then."""


@dataclass
class Packer:
    """Sets the seats of all slots alike: the GPUs of a batch train patches of one kind."""

    slots: Slots
    config: ExecutorConfig
    ledger: Ledger
    _looks: list[Look] = field(default_factory=list)
    _marks: dict[Key, Mark] = field(default_factory=dict)
    _look_at: float = float("-inf")
    _most: int = MOST_AT_ONCE

    def __post_init__(self) -> None:
        wanted = self.config.patches_per_gpu
        if wanted != "auto":
            self._most = wanted
            self._set(wanted)

    def look(self, now: float, running: Iterable[Running]) -> None:
        """Measure, now and then, and set the seats by what was measured."""
        on_gpus = any(gate.slot.gpu for gate in self.slots)
        if self.config.patches_per_gpu != "auto" or not on_gpus or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        marks = {one.key: mark for one in running if (mark := _mark(attempts.progress(one.attempt.folder)))}
        for gate in self.slots:
            if look := _look(gate, self._marks, marks):
                self._looks.append(look)
        self._marks = marks
        is_tight = any(gate.is_tight() for gate in self.slots)
        self._set(how_many(self._seats(), self._looks, self._most, is_tight=is_tight))

    def ran_out_of_memory(self, at_once: int) -> None:
        """Never have so many at once again: together they did not fit."""
        self._most = max(1, min(self._most, at_once - 1))
        self._set(min(self._seats(), self._most))

    def _seats(self) -> int:
        return next((gate.seats for gate in self.slots), 1)

    def _set(self, seats: int) -> None:
        if seats != self._seats():
            self.ledger.write("packing", patches_per_gpu=seats, paces=[vars(look) for look in self._looks[-4:]])
        for gate in self.slots:
            gate.seats = seats if gate.slot.gpu else 1


def _mark(record: Record) -> Mark | None:
    at, step = record.get("t"), record.get("step")
    if record.get("phase") != "train" or not isinstance(at, int | float) or not isinstance(step, int | float):
        return None
    return float(at), float(step)


def _look(gate: SlotGate, before: Mapping[Key, Mark], now: Mapping[Key, Mark]) -> Look | None:
    """Return the pace of all that train on a slot; None unless all of them did so since the last look, full seats."""
    keys = gate.tenants()
    if len(keys) != gate.seats or not all(key in before and key in now for key in keys):
        return None
    spans = [(now[key][0] - before[key][0], now[key][1] - before[key][1]) for key in keys]
    if not all(seconds > 0 for seconds, _ in spans):
        return None
    return Look(len(keys), sum(steps / seconds for seconds, steps in spans))
