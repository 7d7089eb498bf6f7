"""Kernels of tones compile for the GPUs of today, also where there is none: Triton brings its own assembler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

COMPILE = """
import json, sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from splatbatch.training.cuda import tones

POINTERS = {"photo": "*u8", "height": "i32", "width": "i32"}
SIZES = {"clipped": 250, "counts": 0.1, "ROWS": 4, "COLUMNS": 128}
names = tones._even.arg_names
for capability in (80, 90):
    for num in (0, 2, 4):
        constants = SIZES | {"NUM": num}
        signature = {name: "constexpr" if name in constants else POINTERS.get(name, "*fp32") for name in names}
        made = compile(ASTSource(tones._even, signature, constants), target=GPUTarget("cuda", capability, 32))
        print(json.dumps([capability, num, len(made.asm["cubin"])]))
"""


def test_the_kernel_that_evens_photographs_compiles_for_an_a100_and_an_h100(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMPILE]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    made = [json.loads(line) for line in said]
    assert [one[:2] for one in made] == [[capability, num] for capability in (80, 90) for num in (0, 2, 4)]
    assert all(num_bytes > 1000 for *_, num_bytes in made)
