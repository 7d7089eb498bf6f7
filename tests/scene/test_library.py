"""pycolmap takes no signal away from a batch that has to end in order."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

CODE = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
from splatbatch.scene.colmap.files import load_pycolmap
load_pycolmap().Camera
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_batch_that_has_read_camera_models_still_hears_sigterm() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "heard\n", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_what_kills_it_kills_it_without_a_stack_trace_of_another_library(number: signal.Signals) -> None:
    code = "from splatbatch.scene.colmap.files import load_pycolmap as load; import os; load(); "
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}os.kill(os.getpid(), {int(number)})"], capture_output=True, check=False
    )
    assert ended.returncode == -number
    assert b"stack trace" not in ended.stderr
