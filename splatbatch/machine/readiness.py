"""The gate in front of each slot: the next attempt starts when the GPU is proved free and cool, not after a sleep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from splatbatch.config import Cooldown
from splatbatch.machine import gpu
from splatbatch.machine.protocol import Key, Slot
from splatbatch.outcome import Diagnosis
from splatbatch.store.records.attempt import GpuSample

CONTEXT_MIB = 1024.0
"""What a process that has opened its CUDA context, and computed something small, holds of a GPU at most."""
MARGIN_MIB = 1024
"""What stays free on a GPU that two attempts share, for what nobody foresaw."""


@dataclass
class Tenant:
    """An attempt on a slot."""

    footprint_mib: float | None
    """Most memory it takes on the GPU; None: nobody knows."""
    alone: bool
    """Nobody else may start beside it."""
    training: bool = True
    """False once it only evaluates and exports: the next attempt may start beside it, if there is room."""


@dataclass(frozen=True)
class Wait:
    """A gate that is shut although its slot stands empty: since when, and the latest reason."""

    since: float
    reason: str


class Readiness:
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
        self._tenants: dict[Key, Tenant] = {}
        self._released_at = float("-inf")
        self._waiting_since: float | None = None
        self.shut: Wait | None = None
        """Since when, and for what, a patch that was due has waited here; None if it did not."""

    def take(self, key: Key, footprint_mib: float | None = None, *, alone: bool = False) -> None:
        """An attempt runs here now."""
        self._tenants[key] = Tenant(footprint_mib, alone)
        self._waiting_since = self.shut = None

    def finalizes(self, key: Key, footprint_mib: float | None) -> None:
        """An attempt has made its last step, and never took more memory than this; on the CPU it keeps its seat."""
        if self.slot.gpu and not self._cooldown.floor_s:
            self._tenants[key].training = False
            self._tenants[key].footprint_mib = footprint_mib

    def release(self, key: Key, now: float) -> None:
        """An attempt has ended."""
        del self._tenants[key]
        self._released_at = now

    def tenants(self) -> tuple[Key, ...]:
        """Return the attempts that are here."""
        return tuple(self._tenants)

    def has_seat(self, *, alone: bool = False) -> bool:
        """Return whether another attempt may start here as far as we ourselves decide it."""
        if any(tenant.alone for tenant in self._tenants.values()) or (alone and self._tenants):
            return False
        return sum(tenant.training for tenant in self._tenants.values()) < self.seats

    def is_open(self, now: float, footprint_mib: float | None = None) -> bool:
        """Return whether an attempt of this footprint may start on a free seat; else `reason` says why not."""
        if now - self._released_at < self._cooldown.floor_s:
            self.reason = "cooling down"
        else:
            self.reason = self._why_not(self._sample(), footprint_mib)
            if not self.reason:
                self._waiting_since = None  # what was due may have failed at the door: the next wait is another one
            elif self._waiting_since is None and not self._tenants:
                self._waiting_since = now
        if self.reason and not self._tenants:
            self.shut = Wait(self.shut.since if self.shut else now, self.reason)
        return not self.reason

    def _sample(self) -> GpuSample:
        return gpu.sample(self.slot.gpu) if self.slot.gpu else GpuSample()

    def _why_not(self, sample: GpuSample, footprint_mib: float | None) -> str:
        if not self._tenants:
            return gpu.why_not_ready(sample, self._before, self._cooldown, ours_mib=self._ours_mib())
        footprints = [footprint_mib, *(tenant.footprint_mib for tenant in self._tenants.values())]
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
        known = [one.footprint_mib for one in self._tenants.values() if one.footprint_mib is not None and not one.alone]
        if len(known) != 1 or len(self._tenants) != 1 or not self._leaves_room((self._before.used_mib or 0) + known[0]):
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
        sample = self._sample() if len(self._tenants) > 1 else GpuSample()
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
