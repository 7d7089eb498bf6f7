"""The slots of this machine, GPUs or shares of the CPU: the scheduler asks for a slot, and gets it or a reason to wait.

Each slot has a gate and seats. The gate opens once NVML shows that the GPU is free and cool, not after a fixed sleep. A
seat is room for one attempt that trains. A standby is an attempt that is prepared while all slots are busy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from splatbatch.config import Cooldown
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.machine import gpu
from splatbatch.machine.protocol import Key, Slot
from splatbatch.outcome import Diagnosis
from splatbatch.output.records.attempt import GpuSample
from splatbatch.processes import available_mib
from splatbatch.scene.memory_estimate import MemoryEstimate

CORES = "cpu"
"""Name of the slot for tasks that take no GPU, on a machine whose other slots are GPUs."""
CONTEXT_MIB = 1024.0
"""Most GPU memory, in MiB, of a process that has opened its CUDA context and computed something small."""
MARGIN_MIB = 1024
"""GPU memory in MiB that must stay free where attempts, or others, share a GPU, beyond the sum of their footprints."""
CROWDED_SHARE = 0.25
"""Share of a GPU's memory: where other programs hold more, they are why attempts run out of memory."""
UNKNOWN_HOST_MIB = 4000
"""Host memory in MiB that must be free to prepare the next attempt ahead (a standby), if its needs are unknown.

`HOST_RESERVE_MIB` comes on top.
"""
HOST_RESERVE_MIB = 2000
"""Host memory in MiB that must stay free for all other programs, beside an attempt prepared ahead (a standby)."""
BROKEN = (
    "`splatbatch doctor` says more. Fix the driver, or start the container with its GPUs; or write"
    " training.device: cpu to train on the CPU all the same."
)
"""Hint for GPUs that cannot be used."""


@dataclass
class Occupant:
    """An attempt that runs on a slot, as the slot's gate counts attempts."""

    footprint_mib: float | None
    """Most GPU memory that the attempt takes, in MiB; None: unknown."""
    alone: bool
    """Whether no other attempt may run beside it."""
    training: bool = True
    """Whether the attempt holds a seat; False once it only evaluates and exports, see `SlotGate.finalizes`."""


@dataclass(frozen=True)
class ClosedGate:
    """A gate that has stayed shut although its slot is empty and an attempt is due.

    `since` is the begin by the clock of the loop, in seconds; `reason` is the last reason.
    """

    since: float
    reason: str


class SlotGate:
    """Decides whether another attempt may start on a slot: a seat must be free and the GPU ready.

    Ready means that `cooldown.floor_s` has passed and the GPU is cool enough. NVML must show no more memory in use than
    before the batch, or enough that is free for the attempt. A figure that NVML does not give keeps no empty slot shut.
    Beside running attempts, another starts only if all footprints (most GPU memory, in MiB) are known and fit. Times
    are seconds by the clock of the loop.
    """

    def __init__(self, slot: Slot, cooldown: Cooldown, shared_mib: float = 0.0) -> None:
        """Sample the GPU before the batch uses it.

        Args:
            slot: the slot behind the gate.
            cooldown: when a GPU counts as ready, and the longest wait for it.
            shared_mib: GPU memory in MiB that CUDA MPS takes for all attempts together; 0 without MPS.
        """
        self.slot = slot
        self._shared_mib = shared_mib
        self.reason = ""
        self.seats = 1
        """Number of attempts that may train here at once."""
        self.contexts = 0
        """Number of attempts prepared ahead (standbys) that hold a CUDA context here."""
        self._cooldown = cooldown
        self._before = self._sample()
        self.tenants: dict[Key, Occupant] = {}
        """Attempts that run on the slot, by key."""
        self._released_at = float("-inf")
        self._waiting_since: float | None = None
        self.shut: ClosedGate | None = None
        """Wait at the shut gate of the empty slot, until an attempt starts here; None: no attempt has waited."""

    @property
    def free_mib(self) -> float:
        """GPU memory that was free before the batch, in MiB; 0 if unknown."""
        return (self._before.total_mib or 0.0) - (self._before.used_mib or 0.0)

    def take(self, key: Key, footprint_mib: float | None = None, *, alone: bool = False) -> ClosedGate | None:
        """Note that an attempt runs here; return the wait at the shut gate that ends with it, None without a wait.

        Args:
            key: key of the attempt.
            footprint_mib: most GPU memory of the attempt, in MiB; None: unknown.
            alone: whether no other attempt may run beside it.
        """
        self.tenants[key] = Occupant(footprint_mib, alone)
        waited, self.shut, self._waiting_since = self.shut, None, None
        return waited

    def finalizes(self, key: Key, footprint_mib: float | None) -> None:
        """Note that an attempt has made its last step and gives up its seat.

        On the CPU, and with a `cooldown.floor_s`, the attempt keeps its seat until its end.

        Args:
            key: key of the attempt.
            footprint_mib: most GPU memory that the attempt has taken, in MiB; None: unknown.

        Raises:
            KeyError: no such attempt runs here.
        """
        if self.slot.gpu and not self._cooldown.floor_s:
            self.tenants[key].training = False
            self.tenants[key].footprint_mib = footprint_mib

    def release(self, key: Key, now: float) -> None:
        """Note that an attempt has ended; `cooldown.floor_s` counts from `now`.

        Raises:
            KeyError: no such attempt runs here.
        """
        del self.tenants[key]
        self._released_at = now

    def num_tenants(self) -> int:
        """Return the number of attempts that run here."""
        return len(self.tenants)

    def has_seat(self, *, alone: bool = False) -> bool:
        """Return whether a seat is free for another attempt; the GPU itself is not looked at.

        Args:
            alone: whether that attempt must have the slot to itself.
        """
        if any(tenant.alone for tenant in self.tenants.values()) or (alone and self.tenants):
            return False
        return sum(tenant.training for tenant in self.tenants.values()) < self.seats

    def is_open(self, now: float, footprint_mib: float | None = None) -> bool:
        """Return whether the GPU is ready for an attempt of this footprint; if not, set `reason`.

        While no attempt runs here, the wait is counted.

        Args:
            now: time by the clock of the loop, in seconds.
            footprint_mib: most GPU memory of the attempt, in MiB; None: unknown.
        """
        self.reason = self.why_shut(now, footprint_mib)
        if not self.reason:
            self._waiting_since = None  # what was due may have failed at the door: the next wait is another one
        elif self._waiting_since is None and not self.tenants and not self._cools_down(now):
            self._waiting_since = now
        if self.reason and not self.tenants:
            self.shut = ClosedGate(self.shut.since if self.shut else now, self.reason)
        return not self.reason

    def why_shut(self, now: float, footprint_mib: float | None = None) -> str:
        """Return why the GPU is not ready for an attempt of this footprint; empty if it is. No wait is counted.

        Args:
            now: time by the clock of the loop, in seconds.
            footprint_mib: most GPU memory of the attempt, in MiB; None: unknown.
        """
        return "cooling down" if self._cools_down(now) else self._why_not(self._sample(), footprint_mib)

    def _cools_down(self, now: float) -> bool:
        return now - self._released_at < self._cooldown.floor_s

    def _sample(self) -> GpuSample:
        return gpu.sample(self.slot.gpu) if self.slot.gpu else GpuSample()

    def _why_not(self, sample: GpuSample, footprint_mib: float | None) -> str:
        if not self.tenants:
            wanted = math.inf if footprint_mib is None else footprint_mib + MARGIN_MIB
            return gpu.why_not_ready(sample, self._before, self._cooldown, ours_mib=self._ours_mib(), wanted_mib=wanted)
        footprints = [footprint_mib, *(tenant.footprint_mib for tenant in self.tenants.values())]
        known = [one for one in footprints if one is not None]
        if len(known) < len(footprints) or sample.used_mib is None or sample.total_mib is None:
            return "how much memory attempts take here is not known yet"
        ours, wanted = self._ours_mib() + sum(known[1:]), sum(known) + MARGIN_MIB
        if reason := gpu.why_not_ready(sample, self._before, self._cooldown, ours_mib=ours, wanted_mib=wanted):
            return reason
        taken = max(sample.used_mib, (self._before.used_mib or 0) + ours)
        lack = taken + known[0] + MARGIN_MIB - sample.total_mib
        return f"{lack:.0f} MiB of GPU memory too little for another attempt beside those here" if lack > 0 else ""

    def _ours_mib(self) -> float:
        return self._shared_mib + self.contexts * CONTEXT_MIB

    def has_room_for_context(self) -> bool:
        """Return whether the next attempt may open its CUDA context beside the attempt that trains here.

        False with a `cooldown.floor_s`, on the CPU, on a GPU in exclusive mode, or where several attempts may share it.
        The running attempt's footprint must be known and, as NVML shows, leave enough memory. It must allow company.
        """
        if self._cooldown.floor_s or self.seats != 1 or self._shared_mib or not self._serves_many:
            return False
        known = [one.footprint_mib for one in self.tenants.values() if one.footprint_mib is not None and not one.alone]
        if len(known) != 1 or len(self.tenants) != 1 or not self._leaves_room((self._before.used_mib or 0) + known[0]):
            return False
        used_mib = self._sample().used_mib  # asked last: where there is never room, it would be asked in every round
        return used_mib is not None and self._leaves_room(used_mib)

    def _leaves_room(self, taken_mib: float) -> bool:
        total_mib = self._before.total_mib
        return total_mib is not None and total_mib - taken_mib >= CONTEXT_MIB + MARGIN_MIB

    @cached_property
    def _serves_many(self) -> bool:
        return self.slot.gpu is not None and gpu.serves_many(self.slot.gpu)

    def is_tight(self) -> bool:
        """Return whether several attempts leave less than half of `MARGIN_MIB` of the GPU free.

        False if NVML does not say, and while the GPU is crowded.
        """
        sample = self._sample() if len(self.tenants) > 1 else GpuSample()
        used_mib, total_mib = sample.used_mib, sample.total_mib
        is_short = used_mib is not None and total_mib is not None and total_mib - used_mib < MARGIN_MIB / 2
        return is_short and not self.is_crowded()

    def is_crowded(self, ended: Key = "") -> bool:
        """Return whether programs that came after the batch began hold more than `CROWDED_SHARE` of the GPU.

        False if that is unknown, as without NVML.

        Args:
            ended: key of an attempt that has ended, but still has its slot; empty: there is none.
        """
        taken = [one.footprint_mib or math.inf for key, one in self.tenants.items() if key != ended]
        sample, ours_mib = self._sample(), self._ours_mib() + sum(taken)
        more_mib = (sample.used_mib or 0) - (self._before.used_mib or 0) - ours_mib
        return more_mib > CROWDED_SHARE * (sample.total_mib or 0)

    def given_up(self, now: float) -> bool:
        """Return whether the gate of the empty slot has stayed shut for longer than `cooldown.longest_s`.

        A wait during `cooldown.floor_s` does not count.
        """
        return self._waiting_since is not None and now - self._waiting_since > self._cooldown.longest_s

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis for tasks that waited for this slot, with the last reason of its gate."""
        advice = "No GPU became free: end the program that holds it (see nvidia-smi), or raise cooldown.longest_s."
        return Diagnosis("cuda_busy_or_unavailable", "retry", advice, (f"{self.slot.name}: {self.reason}",))


class Slots:
    """The slots of this machine that are in service, each with its gate; see `SlotGate`.

    A slot is given up if its GPU is broken or does not become free in time, or if fewer slots are wanted. Attempts on
    such a slot run on, but none is started there again.
    """

    def __init__(self, slots: Sequence[Slot], cooldown: Cooldown, shared_mib: float = 0.0) -> None:
        """Make a gate for each slot; `cooldown` and `shared_mib` are explained at `SlotGate`."""
        self._gates = {slot.name: SlotGate(slot, cooldown, shared_mib) for slot in slots}
        self._given_up: list[SlotGate] = []
        self.has_cores = all(slot.gpu for slot in slots)
        """Whether tasks without GPU have a slot of their own, one task at a time; if not, these tasks take any slot."""
        self._beside = {CORES: SlotGate(Slot(CORES), cooldown)} if self.has_cores else {}

    @property
    def names(self) -> frozenset[str]:
        """Names of the slots in service."""
        return frozenset(self._gates)

    def with_seat(self) -> set[str]:
        """Return the names of the slots with room for another attempt that trains (a seat); GPUs are not looked at."""
        return {name for name, gate in self._gates.items() if gate.has_seat()}

    def has_room_for_context(self, slot: Slot) -> bool:
        """Return whether a standby may open a CUDA context beside the attempt that trains on a slot.

        False for unknown slots.
        """
        return slot.name in self._gates and self._gates[slot.name].has_room_for_context()

    def is_crowded(self, slot: Slot, ended: Key) -> bool:
        """Return whether others hold much of a slot's GPU, see `SlotGate.is_crowded`; False for unknown slots."""
        return slot.name in self._gates and self._gates[slot.name].is_crowded(ended)

    def note_contexts(self, contexts: Mapping[str, int]) -> None:
        """Set the number of standby processes that hold a CUDA context, by name of slot.

        0 for slots without a number.
        """
        for name, gate in self._gates.items():
            gate.contexts = contexts.get(name, 0)

    def offer(
        self, footprint: MemoryEstimate | None, now: float, *, alone: bool = False, among: Collection[str]
    ) -> Slot | None:
        """Return a slot on which an attempt may start now, the emptiest first; None: there is none.

        Args:
            footprint: memory estimate of the attempt; None: unknown.
            now: time by the clock of the loop, in seconds.
            alone: whether the attempt must have its GPU to itself.
            among: names of the slots that may be offered.
        """
        mib = footprint.gpu_mib if footprint else None
        for gate in sorted(self._gates.values(), key=SlotGate.num_tenants):  # the emptiest GPU first
            if gate.slot.name in among and gate.has_seat(alone=alone) and gate.is_open(now, mib):
                return gate.slot
        return None

    def emptiest(self) -> str:
        """Return the name of the slot in service with the fewest attempts; empty without slots."""
        return next((gate.slot.name for gate in sorted(self._gates.values(), key=SlotGate.num_tenants)), "")

    def offer_cores(self, now: float, *, or_gpu: bool) -> Slot | None:
        """Return a slot for a task without GPU: with `or_gpu` an empty ready GPU first, else the slot of CPU cores.

        None: none of these is free, or this machine has none.
        """
        if or_gpu:
            for gate in self._gates.values():
                if not gate.tenants and not gate.why_shut(now):
                    return gate.slot
        return next((gate.slot for gate in self._beside.values() if gate.has_seat()), None)

    def take(self, key: Key, slot: Slot, footprint: MemoryEstimate | None, *, alone: bool = False) -> ClosedGate | None:
        """Note that an attempt runs on a slot; return the wait at its shut gate that ends with it, None without a wait.

        Args:
            key: key of the attempt.
            slot: slot that was offered.
            footprint: memory estimate of the attempt; None: unknown.
            alone: whether no other attempt may run beside it.

        Raises:
            KeyError: the slot is not in service.
        """
        gates = self._gates | self._beside
        return gates[slot.name].take(key, footprint.gpu_mib if footprint else None, alone=alone)

    def release(self, key: Key, now: float) -> None:
        """Note that an attempt has ended, on whichever slot it ran; `cooldown.floor_s` counts from `now`.

        Raises:
            StopIteration: no such attempt runs.
        """
        self.gate_of(key).release(key, now)

    def taken(self) -> list[Slot]:
        """Return the slots in service on which an attempt runs; the slot of CPU cores beside GPUs is left out."""
        return [gate.slot for gate in self._gates.values() if gate.tenants]

    def give_up_overdue(self, now: float) -> Mapping[str, str]:
        """Take slots out of service whose gate stayed shut too long (see `SlotGate.given_up`).

        Return by name why each was taken out; empty: none was.
        """
        overdue = {name: gate.reason for name, gate in self._gates.items() if gate.given_up(now)}
        self.give_up(overdue)
        return overdue

    def give_up(self, names: Iterable[str]) -> None:
        """Take slots out of service; unknown names are ignored."""
        self._given_up += [self._gates.pop(name) for name in names if name in self._gates]

    def keep(self, most: int) -> None:
        """Take all slots except the first `most` out of service."""
        self.give_up([*self._gates][most:])

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis for the tasks that remain when no slot is left: that of the slot given up last.

        Raises:
            IndexError: no slot was given up.
        """
        return self._given_up[-1].diagnosis()

    def share_nothing(self) -> None:
        """Start further attempts without CUDA MPS, since it does not work on this machine."""
        for gate in self._gates.values():
            gate.slot = replace(gate.slot, environment=())

    @property
    def seats(self) -> int:
        """Number of attempts that may train on a GPU at once; 1 without slots."""
        return next((gate.seats for gate in self._gates.values()), 1)

    def set_seats(self, seats: int) -> None:
        """Let `seats` attempts train on each GPU at once; a slot of the CPU keeps one attempt at a time."""
        for gate in self._gates.values():
            gate.seats = seats if gate.slot.gpu else 1

    def free_mib(self) -> float:
        """Return the memory that was free before the batch on the GPU that had the least, in MiB; 0 if unknown."""
        return min((gate.free_mib for gate in self._gates.values()), default=0.0)

    def full_gpus(self) -> list[tuple[Key, ...]]:
        """Return, for each GPU with as many attempts as seats, the keys of its attempts; empty: no GPU is full."""
        gates = [gate for gate in self._gates.values() if gate.slot.gpu and len(gate.tenants) == self.seats]
        return [tuple(gate.tenants) for gate in gates]

    def is_tight(self) -> bool:
        """Return whether on some GPU several attempts leave too little memory free; see `SlotGate.is_tight`."""
        return any(gate.is_tight() for gate in self._gates.values())

    def gate_of(self, key: Key) -> SlotGate:
        """Return the gate of the slot on which an attempt runs, in service or not.

        Raises:
            StopIteration: no such attempt runs.
        """
        gates = (*self._gates.values(), *self._beside.values(), *self._given_up)
        return next(gate for gate in gates if key in gate.tenants)


def has_memory_for_standby(footprint: MemoryEstimate | None) -> bool:
    """Return whether the host has enough free memory for a standby, and `HOST_RESERVE_MIB` besides.

    Args:
        footprint: memory estimate of its task; None: unknown, and `UNKNOWN_HOST_MIB` is assumed.
    """
    return available_mib() >= (footprint.host_mib if footprint else UNKNOWN_HOST_MIB) + HOST_RESERVE_MIB


def is_on_cpu(config: ExecutorConfig, device: str) -> bool:
    """Return whether a batch trains on the CPU: the config says so, or leaves it open and no GPU is here and visible.

    A GPU that cannot be used counts as present, so that a broken driver is an error, not a slow run on the CPU.

    Args:
        config: section `executor` of the YAML.
        device: `training.device`: "auto", "cuda" or "cpu".

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    if device == "cpu" or config.gpus == ():
        return True
    if device != "auto" or config.gpus != "auto":
        return False
    return not visible_cards() if gpu.gpus() else not gpu.presence().is_here()


def chosen_cards(config: ExecutorConfig, device: str) -> tuple[gpu.Gpu, ...]:
    """Return the GPUs that a batch trains on; empty: it trains on the CPU.

    Args:
        config: section `executor` of the YAML.
        device: `training.device`: "auto", "cuda" or "cpu".

    Raises:
        ExecutorError: the config, or CUDA_VISIBLE_DEVICES as its first, names a missing GPU; or GPUs cannot be used.
            Also with device "cuda" if no GPU is here and visible.
    """
    if is_on_cpu(config, device):
        return ()
    here = gpu.presence()
    if why := here.why_unusable():
        raise ExecutorError(why, BROKEN)
    if config.gpus != "auto":
        by_index = {card.index: card for card in here.cards}
        if missing := [index for index in config.gpus if index not in by_index]:
            have = ", ".join(f"{card.index} ({card.name})" for card in here.cards) or "none"
            raise ExecutorError(
                f"executor.gpus: {missing}: no such GPU; NVML sees {have}",
                "Check nvidia-smi and the driver, or set executor.gpus to auto, or to [] to train on the CPU.",
            )
        return tuple(by_index[index] for index in config.gpus)
    if not (cards := visible_cards()):
        hidden = "CUDA_VISIBLE_DEVICES hides every GPU" if here.cards else "NVML sees no GPU here"
        raise ExecutorError(
            f"training.device: cuda: {hidden}",
            "Check CUDA_VISIBLE_DEVICES, nvidia-smi and the driver, or set training.device to auto or cpu.",
        )
    return cards


def visible_cards() -> tuple[gpu.Gpu, ...]:
    """Return the GPUs of this machine that CUDA_VISIBLE_DEVICES leaves, in its order; all if the variable is not set.

    The variable holds indices or UUIDs. As in CUDA, -1 or an empty value hides every GPU, and names after a missing GPU
    do not count.

    Raises:
        ExecutorError: the first named GPU does not exist on this machine.
    """
    cards, told = gpu.gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None or not cards:
        return cards
    by_name = {name: card for card in cards for name in (str(card.index), card.uuid)}
    names = [one.strip() for one in told.split(",") if one.strip()]
    known = [by_name[name] for name in takewhile(by_name.__contains__, names)]
    if names and names[0] != "-1" and not known:
        have = ", ".join(f"{card.index} ({card.uuid})" for card in cards)
        raise ExecutorError(
            f"CUDA_VISIBLE_DEVICES: {told}: names no GPU that is here; NVML sees {have}",
            "Unset the variable, name one of these GPUs, or set executor.gpus; parts of a GPU (MIG) are not used.",
        )
    return tuple(dict.fromkeys(known))
