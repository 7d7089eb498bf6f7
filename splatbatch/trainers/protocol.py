"""The seam to a program that trains: the command that does it, and what it left behind."""

from __future__ import annotations

from typing import Protocol

from splatbatch.outcome import Rejected, Splat
from splatbatch.scene.patches import Patch
from splatbatch.store.attempt_folder import AttemptFolder


class Trainer(Protocol):
    """A program that trains one patch in one folder. Made for one recipe."""

    stands_by: bool
    """Whether its process may be started ahead of its turn: it then prepares without touching the GPU until `go`."""

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare `folder` and return the argv that trains `patch` into it."""
        ...

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat that a finished process left in `folder`, or why there is none that counts."""
        ...
