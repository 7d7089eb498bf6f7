"""Who runs below a batch, and what of it is left when nobody should be."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from fake_batch import FakeBatch

from splatbatch import processes

PATIENCE_S = 60.0


def family(parent: int) -> dict[str, list[int]]:
    """Return the supervisors below a parent, and the trainers below them."""
    found: dict[str, list[int]] = {"supervisor": [], "trainer": []}
    for pid in processes.descendants(parent):
        argv = argv_of(pid)
        role = "supervisor" if b"splatbatch.supervisor" in argv else "trainer" if b"--attempt" in argv else ""
        found.get(role, []).append(pid)
    return found


def argv_of(pid: int) -> list[bytes]:
    """Return the command line of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def patch_of_trainer(pid: int) -> str:
    """Return the name of the patch that a trainer trains; empty if it is gone."""
    argv = argv_of(pid)
    return Path(argv[argv.index(b"--attempt") + 1].decode()).parent.name if b"--attempt" in argv else ""


def fugitives(batch: FakeBatch) -> list[int]:
    """Return the processes that hide (`train-with-fugitive`) and still run."""
    path = batch.folder / "fugitives"
    names = path.read_text().split() if path.exists() else ()
    pairs = [(int(pid), int(ticks)) for pid, _, ticks in (name.partition(":") for name in names)]
    return [pid for pid, ticks in pairs if processes.start_ticks(pid) == ticks]


def left_of(batch: FakeBatch, patience_s: float = 2.0) -> list[int]:
    """Return all that a batch has started and that still runs: by environment, and by what hides from that."""
    script = f"FAKE_TRAINER_SCRIPT={batch.folder / 'script.json'}".encode()
    end = monotonic() + patience_s
    while (left := [*_with_variable(script), *fugitives(batch)]) and monotonic() < end:
        time.sleep(0.05)
    return left


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something holds, but not for ever."""
    end = monotonic() + PATIENCE_S
    while not condition():
        if monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.002)


def may_unshare() -> bool:
    """Return whether a process may have a host name of its own here."""
    try:
        return subprocess.run(["unshare", "--uts", "hostname", "far-away"], check=False).returncode == 0
    except OSError:
        return False


def _with_variable(variable: bytes) -> Iterator[int]:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable in environ.read_bytes().split(b"\0"):
                yield int(environ.parent.name)
        except OSError:
            continue
