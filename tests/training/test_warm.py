"""What `doctor --warm` builds is all that a training asks for; here in Triton's interpreter, on a GPU for real."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from splatbatch.training.cuda.warm import KERNELS

SOURCES = Path(__file__).parents[2] / "splatbatch" / "training" / "cuda"
WARM = """
import torch
from splatbatch.training.cuda import warm
device = torch.device("cpu")
for dtype in (torch.uint8, torch.float32):
    warm.loss(dtype, device, [6])
for degree in range(4):
    warm.colors(degree, device, 5)
warm.evening(device, [6]), warm.optimizer(device), warm.lists(device, 5, [(40, 30)])
"""


def test_every_kernel_that_is_launched_is_known() -> None:
    sources = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    assert set(KERNELS) == set(re.findall(r"^ +(_\w+)\[.*\]\(", sources, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_what_is_built_ahead_calls_the_kernels_as_they_want_it() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", WARM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


NOTED = """
import torch
from splatbatch.training.cuda import warm
torch.cuda.synchronize = lambda: None
torch.cuda.get_device_capability = lambda: (9, 0)
warm.GROUPS["optimizer"] = lambda device: None
warm.main("optimizer"), warm.main("colors 1")
names = ["optimizer", "colors 1"]
print([name for name in names if not warm.made(name, (9, 0)).exists()], warm.made("optimizer", (8, 0)).exists())
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_what_is_built_ahead_is_not_compiled_again_by_the_first_training(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", NOTED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['colors 1'] False"


@pytest.mark.slow(but="gsplat")
@pytest.mark.parametrize("group", ["gsplat", "optimizer", "native"])
def test_what_cannot_be_built_is_told(group: str) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "splatbatch.training.cuda.warm", group]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["error"]
