"""What a batch looks like now: one look serves all who ask, and the page is made anew when something has changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from splatbatch.monitor.table import batch_eta_s, batch_line, num_left, num_shown
from splatbatch.report import live_page
from splatbatch.store.claims import AtWork, at_work, in_short
from splatbatch.store.lock import holder
from splatbatch.store.records.run import Holder
from splatbatch.store.workers import LOCAL, Watcher
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.status import PatchStatus, read_status

LOOK_S = 2.0
"""As long a look serves everybody."""
REST = 20.0
"""Times what a report takes to make, for which it stands: a batch of hundreds takes seconds."""
OF_A_PATCH = (
    "patch", "phase", "step", "max_steps", "loss", "psnr_covered", "psnr", "num_gaussians", "steps_per_s", "eta_s",
    "gpu_used_mib", "gpu_temperature_c", "node",
)  # fmt: skip


@dataclass(frozen=True)
class Page:
    """A report that was made, of which version, when, and what that took."""

    version: str
    content: bytes
    made_at: float
    took_s: float

    def may_be_followed(self, now: float) -> bool:
        """Return whether it has stood long enough: to make reports is not to take the CPU from who trains."""
        return now - self.made_at >= REST * self.took_s


class Board:
    """Looks at the files of a batch when somebody asks; it starts nothing and writes nothing."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._looking, self._making = threading.Lock(), threading.Lock()
        self._watcher = Watcher(batch.output)
        self._now: dict[str, Any] = {}
        self._looked_at = -LOOK_S
        self._page: Page | None = None

    def now(self) -> dict[str, Any]:
        """Return how far it is: a line, seconds to go, patches left, each running patch, and which report that is."""
        with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_S:
                self._now = self._look()
                self._looked_at = time.monotonic()
            return self._now

    def page(self) -> bytes:
        """Return the report as a page that follows the batch; made anew when a patch or the ledger has changed."""
        version = self.now()["version"]
        with self._making:
            if self._page is None or self._page.version != version:
                self._page = self._made(version)
            return self._page.content

    def _made(self, version: str) -> Page:
        batch, begun, spent = self._batch, time.monotonic(), time.thread_time()
        text = live_page(batch.output, batch.names, tuple(batch.config.variants.values()), batch.standing(), version)
        return Page(version, text.encode(), begun, time.thread_time() - spent)

    def _look(self) -> dict[str, Any]:
        batch = self._batch
        found = read_status(batch.output, batch.names, num_shown(len(batch.tasks)), batch.standing())
        running = holder(batch.output.lock)
        return {
            "line": batch_line(found),
            "eta_s": batch_eta_s(found),
            "left": num_left(found),
            "run": " and ".join(filter(None, (_who(running), _others(at_work(self._watcher, but=LOCAL))))),
            "running": [_row(one) for one in found if one.state == "running"],
            "states": {one.patch: one.state for one in found},
            "version": self._version(found),
        }

    def _version(self, found: tuple[PatchStatus, ...]) -> str:
        """Return what tells this report from an earlier one: states and attempts, and how much the ledgers say.

        That of the page, as long as it stands.
        """
        if self._page and not self._page.may_be_followed(time.monotonic()):
            return self._page.version
        facts = [(one.patch, one.state, one.attempt, one.cause) for one in found]
        sizes = [path.stat().st_size for path in self._batch.output.ledgers() if path.exists()]
        return hashlib.sha256(repr((facts, sizes)).encode()).hexdigest()[:16]


def _who(running: Holder | None) -> str:
    return f"process {running.pid} on {running.host}" if running else ""


def _others(workers: Sequence[AtWork]) -> str:
    return (in_short(workers) or "1 worker") if workers else ""


def _row(status: PatchStatus) -> dict[str, Any]:
    known = asdict(status)
    return {key: known[key] for key in OF_A_PATCH}
