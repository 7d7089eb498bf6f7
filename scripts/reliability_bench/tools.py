"""splatbatch, a plain bash loop and GNU parallel: one run of each on a batch, and what it counts as done."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import fake_trainer
from fake_batch import FakeBatch

from reliability_bench.rows import PATCHES, Run

PLAIN_ATTEMPTS = 3
LIMIT_S = 120
UNREAD_LIMIT_S = 30
"""Some ten times what the trainings of such a row take: a tool that is not at its end then waits for a reader."""

Products = tuple[set[str], Path, int]
"""What a tool counts as done, the folder with <patch>/splat.ply in it, and how many attempts it made in all."""


def with_splatbatch(batch: FakeBatch, run: Run) -> Products:
    """One command; done is what `status` calls trained."""
    ended = run_to_its_end(batch.command(*run.command), batch, run)
    statuses = json.loads(batch.run("status", "--json").stdout)["patches"]
    done = {status["patch"] for status in statuses if status["state"] == "trained"} if ended else set()
    return done, batch.output / "patches", len(batch.events("attempt_started"))


def with_bash(batch: FakeBatch, run: Run) -> Products:
    """The loop of the field: train each patch, go on whatever happens; a file at the right place is done."""
    loop = 'for p in "$@"; do timeout -k 1 "$LIMIT" "$PYTHON" "$TRAINER" --plain "$p" "$CONFIG" "$OUT" || true; done'
    ended = run_to_its_end(["bash", "-c", loop, "loop", *run.patches], batch, run)
    out = out_of(batch)
    done = {patch for patch in PATCHES if (out / patch / "splat.ply").exists()} if ended else set()
    return done, out, count_attempts(out)


def with_parallel(batch: FakeBatch, run: Run) -> Products:
    """GNU parallel with retries and a job log, then once more with --resume-failed; exit code 0 is done."""
    out, log = out_of(batch), batch.folder / f"joblog-{len(logs_of(batch)) + 1}"
    call = ["parallel", "-j1", "--retries", str(PLAIN_ATTEMPTS), "--joblog", str(log), "--timeout", limit_of(batch)]
    program = [sys.executable, fake_trainer.__file__, "--plain", "{}", str(batch.config), str(out)]
    calls = ([], ["--resume-failed"]) if run.patches else ()
    commands = ([*call, *again, *program, ":::", *run.patches] for again in calls)
    ended = all(run_to_its_end(command, batch, run) for command in commands)
    return done_by(logs_of(batch)) if ended else set(), out, count_attempts(out)


def logs_of(batch: FakeBatch) -> list[Path]:
    return sorted(batch.folder.glob("joblog-*"))


def done_by(logs: list[Path]) -> set[str]:
    """Return the patches whose last line in the job logs says exit code 0 and no signal."""
    rows = [line.split("\t") for log in logs for line in log.read_text().splitlines()[1:]]
    last = {row[8].split("--plain ")[1].split()[0]: (row[6], row[7]) for row in rows}
    return {patch for patch, codes in last.items() if codes == ("0", "0")}


def run_to_its_end(command: list[str], batch: FakeBatch, run: Run) -> bool:
    """Run a command of a tool; return False if it hung and was killed."""
    names = {"LIMIT": limit_of(batch), "PYTHON": sys.executable, "TRAINER": fake_trainer.__file__}
    environment = batch.environment() | names | {"CONFIG": str(batch.config), "OUT": str(out_of(batch))}
    with streams(run) as outlet:
        process = subprocess.Popen(command, env=environment, start_new_session=True, **outlet)
        try:
            process.wait(timeout=UNREAD_LIMIT_S if run.is_unread else LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        finally:
            kill_leftovers(str(batch.folder))
    return True


@contextlib.contextmanager
def streams(run: Run) -> Iterator[Mapping[str, int]]:
    """Yield stdin, stdout and stderr of a tool: nothing to read, and nowhere or into a full pipe to write."""
    if not run.is_unread:
        yield {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return
    outlet, inlet = os.pipe()
    try:
        size = fcntl.fcntl(inlet, fcntl.F_GETPIPE_SZ)
        os.write(inlet, b"." * size)
        yield {"stdin": subprocess.DEVNULL, "stdout": inlet, "stderr": inlet}
    finally:
        os.close(outlet)
        os.close(inlet)


def out_of(batch: FakeBatch) -> Path:
    """Return where the loops write."""
    return batch.folder / "out"


def limit_of(batch: FakeBatch) -> str:
    return str(batch.settings["limits"]["wall_s"])


def kill_leftovers(folder: str) -> None:
    """End what a tool leaves behind; a real machine would keep it until somebody looks."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError, ValueError):
            if folder.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def count_attempts(out: Path) -> int:
    return len(list(out.glob("*/attempt-*")))
