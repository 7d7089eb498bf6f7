"""What scripts use of the package is there: most of them run on a GPU or for hours, and not in these tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODES = ("attr-defined", "call-arg", "import-not-found", "name-defined")
"""Of mypy: a name, or an argument, that is not there. Their types are not checked."""


def is_python(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3")


@pytest.mark.all
def test_every_name_that_a_script_uses_is_there() -> None:
    scripts = [*filter(is_python, (ROOT / "scripts").iterdir()), *(ROOT / "scripts").glob("*_bench/*.py")]
    options = ["--scripts-are-modules", "--implicit-reexport", "--no-pretty", "--no-error-summary"]
    places = {"MYPYPATH": os.pathsep.join(str(ROOT / name) for name in ("scripts", "tests/testing", "tests/nights"))}
    told = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, scripts)],
        cwd=ROOT,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode in (0, 1), told.stdout + told.stderr
    wrong = re.compile(rf"^scripts/.*\[({'|'.join(CODES)})\]$")
    assert [line for line in told.stdout.splitlines() if wrong.match(line)] == []
