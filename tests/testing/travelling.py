"""Batches whose tasks travel by a store, and workers of that store."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from fake_batch import CONSTANTS, FakeBatch

QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}
SHORT = {
    "splatbatch.remote.exchange.BEAT_S": 0.3,
    "splatbatch.remote.exchange.SILENCE_S": 4.0,
    "splatbatch.night.store_worker.POLL_S": 0.3,
    "splatbatch.night.travel.LOOK_S": 0.3,
    "splatbatch.remote.traffic.PAUSES_S": [0.3],
    "splatbatch.remote.traffic.HANGS_S": 8.0,
}
"""Spans of time, so that a test of them ends soon."""


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


def work(batch: FakeBatch, folder: Path, url: str, *words: str, timeout_s: float = 90) -> tuple[int, str]:
    """Have a worker do all there is; return its exit code and what it said."""
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
