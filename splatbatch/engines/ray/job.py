"""What one worker on Ray runs on its node, and what it leaves there: each file has one writer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splatbatch.engines.engine import JOB, Handle, Wanted
from splatbatch.files import read_tail
from splatbatch.store.submissions import Submission

KEEPER = Path(__file__).with_name("keeper.py")
Answer = Mapping[str, Any]
STOP_S = 20.0
"""Beside grace_s: then a worker that was told to stop is killed."""
OF_HERE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HOSTNAME")

SCRIPT = """\
#!/bin/bash
# A worker of splatbatch. It may be run again at any time: it takes up what is left.
{setup}
{exports}
exec {command}
"""
SETUP = """\
{{ {line}
}} || {{ echo "splatbatch: on node $(hostname) this line of executor.setup failed:" {quoted} >&2; exit 5; }}"""


def script_of(wanted: Wanted) -> str:
    """Return what runs on the node; it is replaced by the worker, so that signals reach that."""
    return SCRIPT.format(
        setup="\n".join(SETUP.format(line=line, quoted=shlex.quote(line)) for line in wanted.setup),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in wanted.environment.items()),
        command=shlex.join(wanted.command),
    )


def needed(wanted: Wanted) -> list[str]:
    """Return what a node has to see."""
    return [str(wanted.folder), wanted.command[0], str(KEEPER)]


def told(wanted: Wanted) -> dict[str, str]:
    """Return the environment of workers: as with sbatch that of this shell, less what is Ray's or this machine's."""
    ours = {name: value for name, value in os.environ.items() if name not in OF_HERE and not name.startswith("RAY_")}
    return {**ours, **wanted.environment, "PWD": str(wanted.folder)}


def job_of(wanted: Wanted, submission: Submission, index: int, cpus: int) -> dict[str, Any]:
    """Return one worker, as the client is asked for it."""
    path = submission.path / str(index)
    files = (submission.script, submission.log(index), f"{path}.code")
    keeper = (wanted.command[0], KEEPER, *files, wanted.grace_s + STOP_S)
    handle = f"{submission.name}/{index}"
    return {
        "handle": handle,
        "moves": 0,
        "path": str(path),
        "gpus": wanted.gpus,
        "cpus": cpus,
        "keeper": ["env", f"--chdir={wanted.folder}", f"{JOB}={handle}", *map(str, keeper)],
    }


def node_of(submission: Submission, handle: Handle) -> tuple[str, str]:
    """Return the name and the number of the node that a worker was started on last; empty: none yet."""
    name, _, number = (_read(_path(submission, handle, "starts")).split("\n")[:-1] or [""])[-1].partition(" ")
    return name, number


def code_of(submission: Submission, handle: Handle) -> int | None:
    """Return the exit code of a worker that has ended by itself, or was told to."""
    words = _read(_path(submission, handle, "code")).strip()
    return int(words) if words.removeprefix("-").isdecimal() else None


def _path(submission: Submission, handle: Handle, kind: str) -> Path:
    return submission.path / f"{handle.rpartition('/')[2]}.{kind}"


def _read(path: Path) -> str:
    return read_tail(path)
