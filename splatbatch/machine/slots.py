"""The slots of this machine: the scheduler asks for one, and gets it or a reason to wait.

Behind each is a gate: it opens when the GPU is proved free and cool, not after a sleep.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from splatbatch.config import Cooldown
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.files import MIB
from splatbatch.machine import gpu
from splatbatch.machine.protocol import Key, Slot
from splatbatch.outcome import Diagnosis
from splatbatch.output.records.attempt import GpuSample
from splatbatch.processes import kernel_file
from splatbatch.scene.memory_estimate import MemoryEstimate

CORES = "cpu"
"""Name of the slot of what takes no GPU, beside those of GPUs."""
CONTEXT_MIB = 1024.0
"""What a process that has opened its CUDA context, and computed something small, holds of a GPU at most."""
MARGIN_MIB = 1024
"""What stays free on a GPU that two attempts share, for what no footprint foresees."""
UNKNOWN_HOST_MIB = 4000
"""Host memory to be free for an attempt whose needs are unknown."""
HOST_RESERVE_MIB = 2000
"""Host memory that a standby leaves to all other programs."""
_GROUPS = (  # limit and use: cgroup v2, then v1
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
BROKEN = (
    "`splatbatch doctor` says more. Mend the driver, or start the container with its GPUs; or write"
    " training.device: cpu to train on the CPU all the same."
)


@dataclass
class Occupant:
    """An attempt on a slot."""

    footprint_mib: float | None
    """Most memory it takes on the GPU; None: unknown."""
    alone: bool
    """No other attempt may start beside it."""
    training: bool = True
    """False once it only evaluates and exports: the next attempt may start beside it, if there is room."""


@dataclass(frozen=True)
class ClosedGate:
    """A gate that is shut although its slot stands empty: since when, and the latest reason."""

    since: float
    reason: str


class SlotGate:
    """Opens when a seat of its slot is free, the floor has passed and NVML finds the GPU as it should be.

    That is as before the batch, but for what our own attempts there may hold; beside one of them another starts only
    if the footprints of both are known and fit.
    """

    def __init__(self, slot: Slot, cooldown: Cooldown, shared_mib: float = 0.0) -> None:
        """Look at the slot before the batch touches it; `shared_mib` is what serves all attempts there together."""
        self.slot = slot
        self._shared_mib = shared_mib
        self.reason = ""
        self.seats = 1
        """Attempts that may train here at once."""
        self.contexts = 0
        """Processes that stand by and hold a CUDA context here."""
        self._cooldown = cooldown
        self._before = self._sample()
        self.tenants: dict[Key, Occupant] = {}
        """The attempts that are here."""
        self._released_at = float("-inf")
        self._waiting_since: float | None = None
        self.shut: ClosedGate | None = None
        """Since when, and for what, a patch that was due has waited here; None if it did not."""

    @property
    def free_mib(self) -> float:
        """Return what was free of the GPU before the batch; 0 where that is not known."""
        return (self._before.total_mib or 0.0) - (self._before.used_mib or 0.0)

    def take(self, key: Key, footprint_mib: float | None = None, *, alone: bool = False) -> ClosedGate | None:
        """An attempt runs here now; return since when, and for what, it has waited here, if it has."""
        self.tenants[key] = Occupant(footprint_mib, alone)
        waited, self.shut, self._waiting_since = self.shut, None, None
        return waited

    def finalizes(self, key: Key, footprint_mib: float | None) -> None:
        """An attempt has made its last step, and never took more memory than this: another may start beside it.

        On the CPU it keeps its seat.
        """
        if self.slot.gpu and not self._cooldown.floor_s:
            self.tenants[key].training = False
            self.tenants[key].footprint_mib = footprint_mib

    def release(self, key: Key, now: float) -> None:
        """An attempt has ended."""
        del self.tenants[key]
        self._released_at = now

    def num_tenants(self) -> int:
        """Return how many attempts are here."""
        return len(self.tenants)

    def has_seat(self, *, alone: bool = False) -> bool:
        """Return whether another attempt may start here as far as we ourselves decide it."""
        if any(tenant.alone for tenant in self.tenants.values()) or (alone and self.tenants):
            return False
        return sum(tenant.training for tenant in self.tenants.values()) < self.seats

    def is_open(self, now: float, footprint_mib: float | None = None) -> bool:
        """Return whether an attempt of this footprint may start on a free seat; else `reason` says why not."""
        self.reason = self.why_shut(now, footprint_mib)
        if not self.reason:
            self._waiting_since = None  # what was due may have failed at the door: the next wait is another one
        elif self._waiting_since is None and not self.tenants and not self._cools_down(now):
            self._waiting_since = now
        if self.reason and not self.tenants:
            self.shut = ClosedGate(self.shut.since if self.shut else now, self.reason)
        return not self.reason

    def why_shut(self, now: float, footprint_mib: float | None = None) -> str:
        """Return why no attempt of this footprint may start on a free seat; empty if one may."""
        return "cooling down" if self._cools_down(now) else self._why_not(self._sample(), footprint_mib)

    def _cools_down(self, now: float) -> bool:
        return now - self._released_at < self._cooldown.floor_s

    def _sample(self) -> GpuSample:
        return gpu.sample(self.slot.gpu) if self.slot.gpu else GpuSample()

    def _why_not(self, sample: GpuSample, footprint_mib: float | None) -> str:
        if not self.tenants:
            return gpu.why_not_ready(sample, self._before, self._cooldown, ours_mib=self._ours_mib())
        footprints = [footprint_mib, *(tenant.footprint_mib for tenant in self.tenants.values())]
        known = [one for one in footprints if one is not None]
        if len(known) < len(footprints) or sample.used_mib is None or sample.total_mib is None:
            return "how much memory attempts take here is not known yet"
        ours = self._ours_mib() + sum(known[1:])
        if reason := gpu.why_not_ready(sample, self._before, self._cooldown, ours_mib=ours):
            return reason
        taken = max(sample.used_mib, (self._before.used_mib or 0) + ours)
        lack = taken + known[0] + MARGIN_MIB - sample.total_mib
        return f"{lack:.0f} MiB too little for another attempt beside those that run" if lack > 0 else ""

    def _ours_mib(self) -> float:
        return self._shared_mib + self.contexts * CONTEXT_MIB

    def has_room_for_context(self) -> bool:
        """Return whether the next attempt may open its CUDA context beside the one that trains here.

        Not where a floor is there to let the GPU rest, where it serves one process only, or where several share it
        anyway; and only if all that the other may ever take leaves enough.
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
        """Return whether several attempts leave less of the GPU free than they should."""
        sample = self._sample() if len(self.tenants) > 1 else GpuSample()
        if sample.used_mib is None or sample.total_mib is None:
            return False
        return sample.total_mib - sample.used_mib < MARGIN_MIB / 2

    def given_up(self, now: float) -> bool:
        """Return whether something has kept the GPU for longer than anyone wants to wait."""
        return self._waiting_since is not None and now - self._waiting_since > self._cooldown.longest_s

    def diagnosis(self) -> Diagnosis:
        """Return why nothing can be trained here."""
        advice = "No GPU became free: end what holds it (nvidia-smi shows it), or raise cooldown.longest_s."
        return Diagnosis("cuda_busy_or_unavailable", "retry", advice, (f"{self.slot.name}: {self.reason}",))


class Slots:
    """Those in service; attempts on one that was given up run on, and nothing is started there any more."""

    def __init__(self, slots: Sequence[Slot], cooldown: Cooldown, shared_mib: float = 0.0) -> None:
        self._gates = {slot.name: SlotGate(slot, cooldown, shared_mib) for slot in slots}
        self._given_up: list[SlotGate] = []
        self.has_cores = all(slot.gpu for slot in slots)
        """Whether what takes no GPU has a slot of its own, one at a time; elsewhere it takes a slot as any other."""
        self._beside = {CORES: SlotGate(Slot(CORES), cooldown)} if self.has_cores else {}

    @property
    def names(self) -> frozenset[str]:
        """Return the names of those in service."""
        return frozenset(self._gates)

    def with_seat(self, *, alone: bool = False) -> frozenset[str]:
        """Return the names of those on which another attempt may start, as far as we ourselves decide it."""
        return frozenset(name for name, gate in self._gates.items() if gate.has_seat(alone=alone))

    def has_room_for_context(self, slot: Slot) -> bool:
        """Return whether another process may open a CUDA context beside the one attempt that trains on a slot."""
        return slot.name in self._gates and self._gates[slot.name].has_room_for_context()

    def note_contexts(self, contexts: Mapping[str, int]) -> None:
        """Take it into account how many processes that stand by hold a context, by slot."""
        for name, gate in self._gates.items():
            gate.contexts = contexts.get(name, 0)

    def offer(
        self, footprint: MemoryEstimate | None, now: float, *, alone: bool = False, on: Slot | None = None
    ) -> Slot | None:
        """Return a slot on which an attempt may start now; None: there is none.

        Args:
            footprint: what it takes at most; None: unknown.
            now: by the clock of the loop, s.
            alone: it must have its GPU to itself.
            on: the only slot that will do; None: any.
        """
        for gate in sorted(self._gates.values(), key=SlotGate.num_tenants):  # the emptiest GPU first
            has_seat = gate.has_seat(alone=alone) and (on is None or on.name == gate.slot.name)
            if has_seat and gate.is_open(now, footprint.gpu_mib if footprint else None):
                return gate.slot
        return None

    def offer_cores(self, now: float, *, or_gpu: bool) -> Slot | None:
        """Return the slot of what takes no GPU, or a GPU that is ready if that may be; None: all are taken."""
        if or_gpu:
            for gate in self._gates.values():
                if not gate.tenants and not gate.why_shut(now):
                    return gate.slot
        return next((gate.slot for gate in self._beside.values() if gate.has_seat()), None)

    def take(self, key: Key, slot: Slot, footprint: MemoryEstimate | None, *, alone: bool = False) -> ClosedGate | None:
        """An attempt runs on a slot that was offered; return since when, and for what, that was due and stood empty."""
        gates = self._gates | self._beside
        return gates[slot.name].take(key, footprint.gpu_mib if footprint else None, alone=alone)

    def release(self, key: Key, now: float) -> None:
        """An attempt has ended."""
        self.gate_of(key).release(key, now)

    def taken(self) -> list[Slot]:
        """Return the slots on which something runs."""
        return [gate.slot for gate in self._gates.values() if gate.tenants]

    def give_up_overdue(self, now: float) -> Mapping[str, str]:
        """Take those out of service that something has kept for too long; return why, by name."""
        overdue = {name: gate.reason for name, gate in self._gates.items() if gate.given_up(now)}
        self.give_up(overdue)
        return overdue

    def give_up(self, names: Iterable[str]) -> None:
        """Take slots out of service."""
        self._given_up += [self._gates.pop(name) for name in names if name in self._gates]

    def keep(self, most: int) -> None:
        """Take all but the first so many out of service."""
        self.give_up([*self._gates][most:])

    def diagnosis(self) -> Diagnosis:
        """Return why nothing can be trained once no slot is left."""
        return self._given_up[-1].diagnosis()

    def share_nothing(self) -> None:
        """Start attempts without what serves all of them together: it does not work here."""
        for gate in self._gates.values():
            gate.slot = replace(gate.slot, environment=())

    @property
    def seats(self) -> int:
        """Attempts that may train on a GPU at once."""
        return next((gate.seats for gate in self._gates.values()), 1)

    def set_seats(self, seats: int) -> None:
        """Let so many train on each GPU at once; on the CPU one."""
        for gate in self._gates.values():
            gate.seats = seats if gate.slot.gpu else 1

    def free_mib(self) -> float:
        """Return what was free before the batch on the GPU that had the least; 0 where that is not known."""
        return min((gate.free_mib for gate in self._gates.values()), default=0.0)

    def full_gpus(self) -> list[tuple[Key, ...]]:
        """Return the attempts on each GPU that trains as many as it may."""
        gates = [gate for gate in self._gates.values() if gate.slot.gpu and len(gate.tenants) == self.seats]
        return [tuple(gate.tenants) for gate in gates]

    def is_tight(self) -> bool:
        """Return whether several attempts leave less of some GPU free than they should."""
        return any(gate.is_tight() for gate in self._gates.values())

    def gate_of(self, key: Key) -> SlotGate:
        """Return the gate of the slot on which an attempt runs."""
        gates = (*self._gates.values(), *self._beside.values(), *self._given_up)
        return next(gate for gate in gates if key in gate.tenants)


def has_memory_for_standby(footprint: MemoryEstimate | None) -> bool:
    """Return whether the host has memory for a process that only prepares; None: its needs are unknown."""
    return available_mib() >= (footprint.host_mib if footprint else UNKNOWN_HOST_MIB) + HOST_RESERVE_MIB


def available_mib() -> int:
    """Return the host memory, in MiB, that this machine or our control group can still give; endless if unknown."""
    fields = dict(line.split(":") for line in kernel_file("/proc/meminfo").splitlines())
    free_mib = int(fields["MemAvailable"].split()[0]) // 1024 if "MemAvailable" in fields else sys.maxsize
    return min(free_mib, *(_of_group(limit, used) for limit, used in _GROUPS))


def _of_group(limit: Path, used: Path) -> int:
    try:
        return (int(limit.read_text()) - int(used.read_text())) // MIB
    except (OSError, ValueError):  # no such group, or "max"
        return sys.maxsize


def is_on_cpu(config: ExecutorConfig, device: str) -> bool:
    """Return whether a batch trains on the CPU: it was told to, or may and no NVIDIA GPU is here, usable or not."""
    if device == "cpu" or config.gpus == ():
        return True
    return device == "auto" and config.gpus == "auto" and not gpu.presence().is_here()


def chosen_cards(config: ExecutorConfig, device: str) -> tuple[gpu.Gpu, ...]:
    """Return the GPUs that a batch trains on; none: it trains on the CPU.

    Raises:
        ExecutorError: a GPU is wanted that is not here, or one is here that cannot be used.
    """
    if is_on_cpu(config, device):
        return ()
    here = gpu.presence()
    if why := here.why_unusable():
        raise ExecutorError(why, BROKEN)
    if config.gpus != "auto":
        return tuple(_card(index, here.cards) for index in config.gpus)
    if not here.cards:
        raise ExecutorError(
            "training.device: cuda: NVML sees no GPU here",
            "Check nvidia-smi and the driver, or set training.device to auto or cpu.",
        )
    return here.cards


def given_cards(told: str | None) -> tuple[int, ...] | None:
    """Return the GPUs that an engine has given us, by their numbers; None: it says nothing, so all are.

    Args:
        told: CUDA_VISIBLE_DEVICES, numbers or UUIDs; as for CUDA, what follows one that is not here does not count.

    Raises:
        ExecutorError: none of those that it names is here.
    """
    cards = gpu.gpus()
    if told is None or not cards:
        return None
    numbers = {name: card.index for card in cards for name in (str(card.index), card.uuid)}
    names = [one.strip() for one in told.split(",") if one.strip()]
    known = [numbers[name] for name in takewhile(lambda name: name in numbers, names)]
    if names and not known:
        have = ", ".join(f"{card.index} ({card.uuid})" for card in cards)
        raise ExecutorError(
            f"CUDA_VISIBLE_DEVICES: {told}: names no GPU that is here; NVML sees {have}",
            "Unset it, name one of these, or set executor.gpus; parts of a GPU (MIG) are not used.",
        )
    return tuple(dict.fromkeys(known))


def _card(index: int, present: tuple[gpu.Gpu, ...]) -> gpu.Gpu:
    if found := next((card for card in present if card.index == index), None):
        return found
    have = ", ".join(f"{card.index} ({card.name})" for card in present) or "none"
    raise ExecutorError(
        f"executor.gpus: [{index}]: no such GPU; NVML sees {have}",
        "Check nvidia-smi and the driver, or set executor.gpus to auto, or to [] to train on the CPU.",
    )
