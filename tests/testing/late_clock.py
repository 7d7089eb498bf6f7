"""The fake batch as a machine runs it whose clock is five hours ahead."""

from __future__ import annotations

import runpy
import time

import fake_trainer

AHEAD_S = 5 * 3600

if __name__ == "__main__":
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + AHEAD_S
    time.time_ns = lambda: now_ns() + AHEAD_S * 1_000_000_000
    runpy.run_path(fake_trainer.__file__, run_name="__main__")
