"""The slots of a batch, each behind its gate, as long as they are in service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from splatbatch.config import Cooldown
from splatbatch.machine.protocol import Key, Slot
from splatbatch.machine.readiness import SlotGate
from splatbatch.outcome import Diagnosis


class Slots:
    """Those in service; attempts on one that was given up run on, and nothing is started there any more."""

    def __init__(self, slots: Sequence[Slot], cooldown: Cooldown, shared_mib: float = 0.0) -> None:
        self._gates = [SlotGate(slot, cooldown, shared_mib) for slot in slots]
        self._given_up: list[SlotGate] = []

    def __iter__(self) -> Iterator[SlotGate]:
        return iter(tuple(self._gates))

    def __len__(self) -> int:
        return len(self._gates)

    def gate_of(self, key: Key) -> SlotGate:
        """Return where an attempt runs."""
        return next(gate for gate in (*self._gates, *self._given_up) if gate.holds(key))

    def others(self, slot: Slot) -> list[SlotGate]:
        """Return all in service but this one."""
        return [gate for gate in self._gates if gate.slot.name != slot.name]

    def give_up(self, slot: Slot) -> None:
        """Take a slot out of service."""
        self._given_up += [gate for gate in self._gates if gate.slot.name == slot.name]
        self._gates = self.others(slot)

    def diagnosis(self) -> Diagnosis:
        """Return why nothing can be trained once no slot is left."""
        return self._given_up[-1].diagnosis()

    def share_nothing(self) -> None:
        """Start attempts without what the engine serves to all of them together: it does not work here."""
        for gate in self._gates:
            gate.slot = replace(gate.slot, environment=())

    def keep(self, most: int) -> None:
        """Take all but the first so many out of service."""
        self._given_up += self._gates[most:]
        self._gates = self._gates[:most]
