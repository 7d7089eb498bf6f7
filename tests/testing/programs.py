"""Programs on a PATH of their own: splatbatch with the scripted trainer, and an ssh whose hosts are all this one."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from fake_batch import FakeBatch

SSH = """#!/bin/sh
# ssh [-o OPTION]... [--] HOST COMMAND: what a host runs gets a home of its own as working folder; `gone` is not reached
while [ "$1" = -o ]; do shift 2; done
[ "$1" != -- ] || shift
host=$1; shift
echo "$host" >> {log}
[ "$host" != gone ] || {{ echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }}
mkdir -p {homes}/"$host" && cd {homes}/"$host" || exit
exec env HOST_OF_TEST="$host" setsid sh -c "$*"
"""


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def put_programs(batch: FakeBatch, folder: Path) -> dict[str, str]:
    """Write them into a folder; return the environment in which they are found first."""
    write_program(folder / "splatbatch", f'#!/bin/sh\nexec {shlex.join(batch.command())} "$@"\n')
    log, homes = (shlex.quote(str(folder / name)) for name in ("called", "homes"))
    write_program(folder / "ssh", SSH.format(log=log, homes=homes))
    return {**batch.environment(), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
