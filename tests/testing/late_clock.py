"""The fake batch as a machine runs it whose clock is off: five hours ahead, or by what a file says now."""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path

import fake_trainer

AHEAD_S = 5 * 3600
CLOCK = "LATE_CLOCK"
"""Variable of the environment that names the file, if there is one: how many seconds the clock is off."""


def main() -> None:
    now, now_ns, file = time.time, time.time_ns, os.environ.get(CLOCK)

    def off() -> float:
        return float(Path(file).read_text()) if file else AHEAD_S

    time.time = lambda: now() + off()
    time.time_ns = lambda: now_ns() + int(off() * 1_000_000_000)
    runpy.run_path(fake_trainer.__file__, run_name="__main__")


if __name__ == "__main__":
    main()
