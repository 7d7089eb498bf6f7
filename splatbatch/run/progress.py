"""Progress and log of a task's process, printed while the process runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from splatbatch.files import open_regular
from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.scheduler.single import SAYS
from splatbatch.text import one_line

LOOKS_EVERY_S = 1.0


class ProgressPrinter:
    """Printer of the progress of a task's process, which it reads from progress.jsonl of the latest attempt.

    `what` names the work in each line, `home` holds the attempts, and `lines` prints. Attempts from before are left
    out.
    """

    def __init__(self, what: str, home: PatchFolder, lines: PipeWriter) -> None:
        self._what, self._home, self._lines = what, home, lines
        self._earlier, self._looked = home.latest(home.files()), 0.0

    def look(self) -> AttemptFolder | None:
        """Print the progress of the latest attempt, at most once a second; called many times a second.

        Returned is that attempt. None: less than a second has passed since the last look, or no attempt has begun since
        this printer was made.
        """
        if time.monotonic() - self._looked < LOOKS_EVERY_S:
            return None
        self._looked = time.monotonic()
        folder = self._home.latest(self._home.files())
        if folder is None or folder == self._earlier:
            return None
        at = folder.last_progress()
        if at.max_steps:
            self._lines.advance(self._what, at.step or 0, at.max_steps, f"steps ({at.phase})")
        return folder


def log_forwarder(home: PatchFolder, say: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that passes each new line in the log of a task's process to `say`.

    The function is to be called many times a second. Attempts from before are left out, and so is the line with the
    final error.
    """
    earlier, places = home.latest(home.files()), Counter[AttemptFolder]()

    def forward() -> None:
        folder = home.latest(home.files())
        if folder is None or folder == earlier:
            return
        with suppress(OSError), open_regular(folder.log) as log:  # there may be no log yet
            log.seek(places[folder])
            whole, end, _ = log.read().rpartition(b"\n")
            places[folder] += len(whole) + len(end)
            for line in whole.decode(errors="replace").splitlines():
                if not line.startswith(SAYS):  # the final error is printed elsewhere
                    say(one_line(line))

    return forward
