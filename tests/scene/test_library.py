"""pycolmap takes no signal away from a batch that has to end in order, and no thread meets half of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

CODE = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
from splatbatch.scene.colmap.files import load_pycolmap
{load}
os.kill(os.getpid(), signal.SIGTERM)
"""
HERE = "load_pycolmap().Camera"
IN_A_THREAD = "import threading; one = threading.Thread(target=load_pycolmap); one.start(); one.join(); load_pycolmap()"
TWO_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from import_hooks import FirstImport
from splatbatch.scene.colmap.files import load_pycolmap

def late():
    assert first.has_begun.wait(10)
    return load_pycolmap().Camera.__name__

first = FirstImport("pycolmap")
with ThreadPoolExecutor(2) as pool:
    later = pool.submit(late)
    print(pool.submit(lambda: load_pycolmap().Camera.__name__).result(), later.result())
"""


@pytest.mark.contract
@pytest.mark.parametrize("load", [HERE, IN_A_THREAD], ids=["here", "in a thread"])
def test_a_batch_that_has_read_camera_models_still_hears_sigterm(load: str) -> None:
    command = [sys.executable, "-c", CODE.format(load=load)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "heard\n", "")


@pytest.mark.contract
def test_a_thread_that_asks_while_another_imports_gets_the_whole_of_it() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", TWO_THREADS], capture_output=True, text=True, check=False, env=environment
    )
    assert (ended.stdout, ended.stderr) == ("Camera Camera\n", "")


@pytest.mark.contract
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_what_kills_it_kills_it_without_a_stack_trace_of_another_library(number: signal.Signals) -> None:
    code = "from splatbatch.scene.colmap.files import load_pycolmap as load; import os; load(); "
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}os.kill(os.getpid(), {int(number)})"], capture_output=True, check=False
    )
    assert ended.returncode == -number
    assert b"stack trace" not in ended.stderr
