"""Where an engine starts workers in a test, and what happens to them there: a site for each engine."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from process_family import argv_of
from slurm_cluster import SlurmCluster

from splatbatch import processes
from splatbatch.cluster.job import JOB
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import Watcher

CONSTANTS = {
    "splatbatch.output.workers.SILENCE_S": 7,
    "splatbatch.run.cluster_workers.LOOK_S": 2,
}
"""A worker that is gone is missed after seconds, not minutes."""


class Site(Protocol):
    """A place with workers; a context manager, for several tests one after another."""

    executor: dict[str, Any]
    """The section of the YAML that leads there."""
    environment: dict[str, str]
    """What commands that use it need."""

    def __enter__(self) -> Site: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take it down: nothing is left of it."""

    def lose_node_of(self, job: str) -> None:
        """Have the machine that a worker runs on go down; nobody is told."""

    def mend(self) -> None:
        """Have all machines up again, with nothing to do."""

    def jobs(self) -> list[str]:
        """Return what the engine still has to do."""


class LocalSite:
    """This machine."""

    executor: dict[str, Any] = {"engine": "local", "workers": 3}
    environment: dict[str, str] = {}

    def __enter__(self) -> LocalSite:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing was put up."""

    def lose_node_of(self, job: str) -> None:
        """Kill all that the worker has started: the machine itself is needed."""
        for pid in pids_of(job):
            with suppress(ProcessLookupError):  # one ends by itself once those that it serves are gone
                os.kill(pid, signal.SIGKILL)

    def mend(self) -> None:
        """Nothing is broken."""

    def jobs(self) -> list[str]:
        """Return nothing: what is left of a batch shows in its processes."""
        return []


class SlurmSite:
    """A Slurm of our own, of three nodes with two GPUs each."""

    executor: dict[str, Any] = {"engine": "slurm", "workers": 3, "gpus_per_worker": 1}

    def __init__(self) -> None:
        self.cluster = SlurmCluster()

    @property
    def environment(self) -> dict[str, str]:
        """Return what Slurm's commands need."""
        return self.cluster.environment

    def __enter__(self) -> SlurmSite:
        self.cluster.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cluster.__exit__(kind, error, at)

    def lose_node_of(self, job: str) -> None:
        """Pull the plug of its node."""
        self.cluster.power_off(self.node_of(job))

    def node_of(self, job: str) -> str:
        """Return the node that a job runs on."""
        return self.cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()

    def mend(self) -> None:
        """Switch nodes on again, end what is left in the queue."""
        self.cluster.mend()

    def jobs(self) -> list[str]:
        """Return what waits or runs."""
        return self.cluster.ask("squeue", "--noheader", "--array", "--format=%F_%K %T").split("\n")[:-1]


def pids_of(job: str) -> list[int]:
    """Return all processes of a worker, by the environment that they have from it."""
    mark, found = f"{JOB}={job}".encode(), []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(environ.parent.name)] if mark in environ.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


def worker_pid(job: str) -> int:
    """Return the process of a worker itself, as it is called here, whatever it is called on its node."""
    found = [pid for pid in pids_of(job) if b"work" in argv_of(pid)]
    [pid] = [pid for pid in found if processes.parent(pid) not in found]  # what it has just forked looks like it
    return pid


def at_work(output: Path) -> list[WorkerRecord]:
    """Return the workers that have begun an attempt and not ended, by what they say of themselves."""
    workers = [worker for worker in Watcher(OutputFolder(output)).living() if worker.job]
    claimed = {json.loads(path.read_text())["worker"] for path in output.glob("claims/p*/*[0-9]")}
    return [worker for worker in workers if worker.worker in claimed and not worker.has_ended]


def wait_for(found: Any, patience_s: float = 60.0) -> Any:
    """Wait until something is found; return it."""
    end = time.monotonic() + patience_s
    while not (one := found()):
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.05)
    return one
