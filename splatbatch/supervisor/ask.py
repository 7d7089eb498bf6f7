"""Short programs of ours, asked for one JSON object each: side by side, and never for longer than they may take."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatbatch import processes
from splatbatch.files import Record, last_line, read_tail

TAIL_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """What a program said, or why it said nothing."""

    record: Record | None
    error: str = ""


def ask(modules: Sequence[Sequence[str]], timeout_s: float, environment: Mapping[str, str]) -> list[Answer]:
    """Run `python -m` modules with their arguments at once; return the last JSON object that each has printed.

    Whatever is not done in time is ended with everything below it.
    """
    give_up_at = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="splatbatch-") as folder:
        outputs = [Path(folder) / str(index) for index in range(len(modules))]
        started = [_start(one, output, environment) for one, output in zip(modules, outputs, strict=True)]
        try:
            return [_answer(*one, give_up_at, timeout_s) for one in zip(started, outputs, strict=True)]
        finally:
            for process in started:
                _end(process)


def _start(module: Sequence[str], output: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    me = os.getpid()
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=lambda: processes.die_with_parent(signal.SIGKILL, me),  # noqa: PLW1509 - one thread here
        )


def _answer(process: subprocess.Popen[bytes], output: Path, give_up_at: float, timeout_s: float) -> Answer:
    try:
        code = process.wait(max(0.0, give_up_at - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Answer(None, f"no answer within {timeout_s:g} s")
    record = last_line(output)
    if record is not None:
        return Answer(record)
    words = read_tail(output.with_suffix(".err"), TAIL_BYTES).strip().splitlines()
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return Answer(None, f"{ended}: {words[-1].strip()}" if words else ended)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        below = processes.descendants(process.pid)
        processes.send_group(signal.SIGKILL, process.pid)
        processes.send(signal.SIGKILL, below)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver is left to the kernel
            process.wait(5.0)
