"""The gate in front of each slot: the next attempt starts when the GPU is proved free and cool, not after a sleep."""

from __future__ import annotations

from splatbatch import gpu
from splatbatch.attempt import Diagnosis
from splatbatch.config import Cooldown
from splatbatch.executors import Slot


class SlotGate:
    """Opens when its slot is not taken, the floor has passed and NVML finds the GPU as it was before the batch."""

    def __init__(self, slot: Slot, cooldown: Cooldown) -> None:
        self.slot = slot
        self.reason = ""
        self._cooldown = cooldown
        self._before = gpu.sample(slot.gpu) if slot.gpu else gpu.Sample()
        self._taken = False
        self._released_at = float("-inf")
        self._waiting_since: float | None = None

    def take(self) -> None:
        """An attempt runs here now."""
        self._taken = True
        self._waiting_since = None

    def release(self, now: float) -> None:
        """The attempt has ended."""
        self._taken = False
        self._released_at = now

    def is_open(self, now: float) -> bool:
        """Return whether an attempt may start; else `reason` says why not."""
        if self._taken:
            return False
        if now - self._released_at < self._cooldown.floor_s:
            self.reason = "cooling down"
            return False
        now_sample = gpu.sample(self.slot.gpu) if self.slot.gpu else gpu.Sample()
        self.reason = gpu.why_not_ready(now_sample, self._before, self._cooldown)
        if self.reason and self._waiting_since is None:
            self._waiting_since = now
        return not self.reason

    def given_up(self, now: float) -> bool:
        """Return whether something has kept the GPU for longer than anyone wants to wait."""
        return self._waiting_since is not None and now - self._waiting_since > self._cooldown.longest_s

    def diagnosis(self) -> Diagnosis:
        """Return why nothing can be trained here."""
        advice = "No GPU became free: end what holds it (nvidia-smi shows it), or raise cooldown.longest_s."
        return Diagnosis("cuda_busy_or_unavailable", "retry", advice, (f"{self.slot.name}: {self.reason}",))
