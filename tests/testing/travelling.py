"""Batches whose tasks travel by a store, and workers of that store.

By a folder, home and its workers take turns in the process of the test, by its clock. By a server each has its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_batch import CONSTANTS, FakeBatch
from turns import CLOCK

from splatbatch import isolated
from splatbatch.run import store_worker
from splatbatch.transfer import courier, exchange

Step = Callable[[], object]

QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}
SHORT = {
    "splatbatch.transfer.exchange.BEAT_S": 0.3,
    "splatbatch.transfer.exchange.SILENCE_S": 4.0,
    "splatbatch.run.store_worker.POLL_S": 0.3,
    "splatbatch.run.store_home.LOOK_S": 0.3,
    "splatbatch.transfer.courier.PAUSES_S": [0.3],
    "splatbatch.transfer.courier.HANGS_S": 8.0,
}
"""Spans of time, so that a test of them ends soon."""
MOST_S = 3600.0
"""By the clock of the test: who waits for longer waits in vain."""
TURN_S = 1.0
"""A turn takes longer than the pause between two looks: the next begins once this one was seen."""
BY_FOLDER = [
    "folder",
    *(pytest.param(kind, marks=pytest.mark.all) for kind in ("ssh", "s3")),
]
"""Stores of a test that proves something of home or a worker: another kind of store would make no difference."""
decided_at_home = pytest.mark.parametrize("place", BY_FOLDER, indirect=True)


class TimeHere:
    """The module `time` by the clock of the test: while one waits, others take their turns."""

    monotonic = staticmethod(CLOCK.now)

    def __init__(self, others: list[Step]) -> None:
        self._others, self._end = others, CLOCK.now() + MOST_S

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        assert CLOCK.now() < self._end, "it is waited for what never comes"
        if self._others:
            self._others.pop(0)()
            seconds = TURN_S
        CLOCK.sleep(seconds)


REST = isolated.wait_for_any


def rest(seconds: float, readings: Sequence[object]) -> None:
    """Wait by the clock of the test, but for a process."""
    if any(getattr(one, "descriptor", None) is not None for one in readings):
        REST(seconds, readings)
    else:
        CLOCK.sleep(seconds)


@contextlib.contextmanager
def taking_turns(*others: Step) -> Iterator[None]:
    """Let home and workers of this process wait by the clock of the test.

    Args:
        others: do their part once somebody waits, one after the other.
    """
    time_here = TimeHere([*others])
    with pytest.MonkeyPatch.context() as here:
        for module in (store_worker, exchange, courier):
            here.setattr(module, "time", time_here)
        here.setattr(isolated, "wait_for_any", rest)
        yield


def run(batch: FakeBatch, url: str, *words: str, others: tuple[Step, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command at home, here if it can."""
    if not runs_here(batch, url):
        return batch.run_apart(*words, timeout_s=300)
    with taking_turns(*others):
        return batch.run(*words)


def runs_here(batch: FakeBatch, url: str) -> bool:
    """Return whether a store needs no server, and the program of a batch is that of the tests."""
    return "://" not in url and type(batch) is FakeBatch


def elsewhere(folder: Path, batch: FakeBatch) -> FakeBatch:
    """Return a folder on another machine: with the program and its script alone, no scene and no YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    other = type(batch)(folder, {}, {**batch.constants})
    (folder / "script.json").write_text((batch.folder / "script.json").read_text())
    return other


def worker(batch: FakeBatch, folder: Path, url: str, *words: str) -> subprocess.Popen[str]:
    """Start a worker of a store as on another machine: it knows nothing but the store."""
    other = elsewhere(folder, batch)
    environment = {name: value for name, value in other.environment().items() if name != "SPLATBATCH_CONFIG"}
    environment |= {"SPLATBATCH_CACHE": str(folder / "cache"), CONSTANTS: json.dumps(SHORT | other.constants)}
    command = other.command("work", url, "--scratch", "scratch", *words)  # as one types it: below its own folder
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env=environment, cwd=folder, **pipes)


def work(batch: FakeBatch, folder: Path, url: str, *words: str) -> tuple[int, str]:
    """Have a worker do all there is, here if it can; return its exit code and what it said."""
    from command_line import invoke

    if not runs_here(batch, url):
        return work_apart(batch, folder, url, *words, timeout_s=300)
    other = elsewhere(folder, batch)
    other.constants = SHORT | other.constants
    with pytest.MonkeyPatch.context() as there, taking_turns():
        there.chdir(folder)
        there.setenv("SPLATBATCH_CACHE", str(folder / "cache"))
        ended = invoke("work", url, "--scratch", "scratch", *words, batch=other)
    return ended.code, ended.out + ended.err


def work_apart(batch: FakeBatch, folder: Path, url: str, *words: str, timeout_s: float = 90) -> tuple[int, str]:
    """Have a worker in a process of its own do all there is."""
    one = worker(batch, folder, url, *words)
    said, _ = one.communicate(timeout=timeout_s)
    return one.returncode, said


def states(batch: FakeBatch) -> dict[str, str]:
    """Return the state of each patch, as `status` tells it."""
    told = json.loads(batch.run("status", "--json").stdout)
    return {one["patch"]: f"{one['state']} {one['cause']}".strip() for one in told["patches"]}


def ends(batch: FakeBatch) -> list[tuple[str, int, str, bool | None]]:
    """Return how each attempt has ended, by the ledger at home."""
    found = batch.events("attempt_ended")
    return sorted((one["patch"], one["attempt"], one["outcome"], one.get("accepted")) for one in found)


def bundles(url: str) -> list[dict[str, Any]]:
    """Return what `status STORE` says of each bundle."""
    from command_line import invoke

    return json.loads(invoke("status", url, "--json").out)["bundles"]


def files_below(folder: Path) -> list[Path]:
    return [Path(root) / name for root, _, names in os.walk(folder) for name in names]
