"""On a real GPU: compiling touches none, and what a process with its context open holds there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from given_card import given_card

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
COMPILE = """
import time, torch
from splatbatch.config import Recipe
from splatbatch.training import cuda
from splatbatch.training.cuda import precompile, compile
started = time.monotonic()
precompile.compile_kernels(Recipe())
took_s = time.monotonic() - started
assert not torch.cuda.is_initialized()
compile.Nvrtc.compile = None  # whoever compiles again fails
assert cuda.why_not_here() == "", cuda.why_not_here()
print(took_s)
"""


def test_kernels_are_compiled_without_touching_the_gpu_and_not_again(tmp_path: Path) -> None:
    environment = {**os.environ, "SPLATBATCH_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"PATH": "", "CUDA_HOME": "", "CUDA_VISIBLE_DEVICES": given_card().uuid}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    took_s = float(done.stdout.splitlines()[-1])
    print(f"compiled in {took_s:.1f} s")
    assert took_s < 30


def test_a_process_with_its_context_open_holds_less_than_is_allowed_for(tmp_path: Path) -> None:
    code = """
import json
from given_card import given_card
from splatbatch.machine import gpu
from splatbatch.machine.slots import CONTEXT_MIB
uuid = given_card().uuid
before = gpu.sample(uuid).used_mib
import torch
from splatbatch.config import Recipe
from splatbatch.training.standby import rehearse
from splatbatch.training.attempt import open_device
for strategy in ("default", "mcmc"):
    recipe = Recipe.model_validate({"training": {"strategy": strategy, "cap_max": 400000}})
    rehearse(recipe, open_device("cuda"))
print(json.dumps(gpu.sample(uuid).used_mib - before))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 0, said.stderr[-2000:]
    held_mib = json.loads(said.stdout.splitlines()[-1])
    print(f"held: {held_mib} MiB")
    assert 100 < held_mib < 1024
