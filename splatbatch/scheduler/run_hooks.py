"""What the loop asks and calls in every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.isolated import WaitHooks
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler.queue import Claimer
from splatbatch.scheduler.step_budget import DeadlineBudget


@dataclass(frozen=True)
class RunHooks:
    """What is asked and called in every round of a batch."""

    stop: Callable[[], str]
    """Its reason ends what runs and starts nothing more."""
    tick: Callable[[], None]
    refused: Callable[[], Mapping[str, str]] = dict
    """Tasks that were found unfit since it was asked last, by name with the reasons."""
    claimer: Claimer = field(default_factory=Claimer)
    """Says which tasks are ours."""
    requests: Callable[[], list[Path]] | None = None
    """Where requests to end are looked for; None: where those to `train` lie."""
    is_alone: bool = True
    """Nobody else trains into the folder: what still runs of the batch when it begins is left of an earlier run."""
    pacer: DeadlineBudget | None = None
    """Keeps the batch to its deadline; None: it has none."""
    audited: Mapping[str, str] = field(default_factory=dict)
    """State of the files of each task when they were audited."""

    def patience(self, ledger: Ledger) -> WaitHooks:
        """Return what room is awaited with; the ledger hears of it."""
        return WaitHooks(self.tick, self.stop, ledger.tell_wait)
