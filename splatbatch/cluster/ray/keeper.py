"""`python keeper.py SCRIPT LOG CODE GRACE_S`: runs a worker's script on a node, and writes down how it has ended.

Ray kills what its processes have started, without grace: it kills this one, and the worker below is told to stop.
Stands alone: it imports nothing of splatbatch, and so starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType


def _told_of_our_end() -> None:
    """Have the kernel send SIGTERM when the keeper ends, however it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def keep(script: str, log: Path, code: Path, grace_s: float) -> int:
    """Run the script to its end."""
    code.unlink(missing_ok=True)  # of an earlier start
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until it can be passed on
    with log.open("ab") as words:
        worker = subprocess.Popen(
            ["/bin/bash", script],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_told_of_our_end,  # noqa: PLW1509  there are no threads
        )

    def pass_on(_: int, __: FrameType | None) -> None:
        worker.terminate()
        signal.alarm(max(1, round(grace_s)))

    def end(_: int, __: FrameType | None) -> None:
        worker.kill()

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGALRM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    ended = worker.wait()
    written = code.with_name(f".{code.name}.{os.getpid()}")
    written.write_text(f"{ended}\n")
    written.replace(code)
    return 0


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])))
