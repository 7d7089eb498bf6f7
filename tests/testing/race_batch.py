"""Two parents at one instant, again and again."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import fake_trainer
from fake_batch import FakeBatch
from process_family import PATIENCE_S, wait_until

WAITS, GOES = 0, 1


def races(folder: Path, number: int) -> Counter[tuple[int, int]]:
    """Start two parents at one instant, again and again; count how the pairs ended."""
    batch = FakeBatch(folder).make("p0", limits={"grace_s": 0.5, "free_disk_mib": 0}).script(p0=["await go"])
    command, patience_s = [sys.executable, __file__, str(folder), str(number)], PATIENCE_S * (1 + number)
    ended = subprocess.run(
        command, env=batch.environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=patience_s
    )
    return Counter(tuple(pair) for pair in json.loads(ended.stdout))


def _race(batch: FakeBatch) -> tuple[int, int]:
    """Fork two parents that have everything imported and wait for one byte that both see: no start is closer."""
    shutil.rmtree(batch.output, ignore_errors=True)
    (batch.folder / "go").unlink(missing_ok=True)
    barrier = mmap.mmap(-1, 3)
    both = [_fork(barrier, place) for place in (1, 2)]
    wait_until(lambda: barrier[1] == barrier[2] == GOES)
    barrier[0] = GOES
    pid, status = os.wait()
    (batch.folder / "go").touch()
    both.remove(pid)
    first, second = sorted(os.waitstatus_to_exitcode(one) for one in (status, os.waitpid(both[0], 0)[1]))
    return first, second


def _fork(barrier: mmap.mmap, place: int) -> int:
    if pid := os.fork():
        return pid
    barrier[place] = GOES
    while barrier[0] == WAITS:
        pass
    _train()


def _train() -> NoReturn:
    from splatbatch.cli import main

    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    code = 70
    try:
        main(["train"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)  # what the other one has open is not ours to close


if __name__ == "__main__":
    from splatbatch.run import train  # noqa: F401 - both have it when they begin

    fake_trainer.install()
    fake_trainer.change_constants()
    print(json.dumps([_race(FakeBatch(Path(sys.argv[1]))) for _ in range(int(sys.argv[2]))]))
