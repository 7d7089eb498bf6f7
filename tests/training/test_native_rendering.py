"""A whole rendering by our kernels for GPUs, run on the CPU, is the CPU rasteriser's, gradients included."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_native import COMPILER, shared_folder

PROGRAM = Path(__file__).parents[1] / "testing" / "emulated_rendering.py"
WAYS = ["plain", "absgrad", "antialiased"]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    if importlib.util.find_spec("triton") is None or COMPILER is None:
        pytest.skip("Triton or g++ is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, PROGRAM, str(shared_folder(tmp_path_factory))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_both_draw_and_derive_the_same(errors: dict[str, dict[str, float]], way: str) -> None:
    found = dict(errors[way])
    assert found.pop("psnr") > 80
    assert len(found) >= 7
    assert max(found.values()) < 1e-4, found
