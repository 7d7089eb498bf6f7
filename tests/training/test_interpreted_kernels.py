"""The CUDA kernels compute what they stand for, also where there is no GPU to run them on."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "testing" / "interpreted_kernels.py"
NAMES = [
    *(f"colours of degree {degree}" for degree in range(4)),
    *(
        "loss of bytes",
        "loss of floats",
        "SSIM",
        "tone with 0 coefficients",
        "tone with 2 coefficients",
        "tone with 4 coefficients",
    ),
    *("Adam", "colours and Adam before a backdrop", "tile lists", "tile lists that are too short"),
]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_agrees_with_its_reference(errors: dict[str, float], name: str) -> None:
    assert errors[name] < (0.5 if name.startswith("tile") else 1e-5)


def test_no_check_is_left_out(errors: dict[str, float]) -> None:
    assert list(errors) == NAMES
