"""Kernels compile for the GPUs of today, also where there is none: Triton brings its own assembler."""

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
from splatbatch.training.cuda import photometric

POINTERS = {"photo": "*u8", "height": "i32", "width": "i32"}
SIZES = {"clipped": 250, "counts": 0.1, "ROWS": 4, "COLUMNS": 128}
names = photometric._even.arg_names
for capability in (80, 90):
    for num in (0, 2, 4):
        constants = SIZES | {"NUM": num}
        signature = {name: "constexpr" if name in constants else POINTERS.get(name, "*fp32") for name in names}
        made = compile(ASTSource(photometric._even, signature, constants), target=GPUTarget("cuda", capability, 32))
        print(json.dumps([capability, num, len(made.asm["cubin"])]))
"""


@pytest.mark.slow
def test_the_kernel_that_evens_photographs_compiles_for_an_a100_and_an_h100(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMPILE]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    made = [json.loads(line) for line in said]
    assert [one[:2] for one in made] == [[capability, num] for capability in (80, 90) for num in (0, 2, 4)]
    assert all(num_bytes > 1000 for *_, num_bytes in made)


AHEAD = """
import json, os
from pathlib import Path
import torch
from splatbatch.training.cuda import ahead, warm

GROUPS = ("optimizer", "tile lists", "colors 1")
cache = Path(os.environ["TRITON_CACHE_DIR"])
for capability in ((8, 0), (9, 0)):
    compiling = ahead.start(capability, GROUPS)
    num = len(compiling.groups)
    compiling.wait()
    made = sorted(path.stem for path in cache.glob("*/*.cubin"))
    again = len(ahead.start(capability, GROUPS).groups)
    print(json.dumps([num, made, again, torch.cuda.is_initialized()]))
"""


@pytest.mark.slow
def test_kernels_are_compiled_beside_other_work_once_for_each_kind_of_gpu(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", AHEAD]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    # tile numbers of 16 bits and of 32 are two kinds of _emit
    kernels = ["_adam", "_backward", "_count", "_emit", "_emit", "_forward", "_spread"]
    assert [json.loads(line) for line in said] == [
        [3, kernels, 0, False],
        [3, sorted(2 * kernels), 0, False],
    ]


NATIVE = """
import json, os
from pathlib import Path
from splatbatch.training.cuda import ahead, warm
from splatbatch.training.cuda.native import library

def built(capability):
    file = library.file_for(capability)
    file.parent.mkdir()
    file.write_text(f"{capability} in {os.getppid()}")

library.built = built
for capability in ((8, 9), (9, 0)):
    compiling = ahead.start(capability, [ahead.NATIVE])
    num = len(compiling.groups)
    compiling.wait()
    assert library.file_for(capability).read_text() == f"{capability} in {os.getpid()}"
    again = len(ahead.start(capability, [ahead.NATIVE]).groups)
    print(json.dumps([num, again, library.file_for(capability).name[-9:]]))
"""


@pytest.mark.slow
def test_kernels_in_cuda_are_compiled_ahead_where_they_are_looked_for(tmp_path: Path) -> None:
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", NATIVE]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [json.loads(line) for line in said] == [[1, 0, "_sm_89.so"], [1, 0, "_sm_90.so"]]


FAILING = """
import os
from pathlib import Path
from splatbatch.training.cuda import ahead, warm
ahead.OURS["none"] = lambda device: 1 / 0
ahead.OURS["endless"] = lambda device: __import__("time").sleep(600)
ahead.LONGEST_S = 1.0
compiling = ahead.start((9, 0), ["none", "endless"])
compiling.wait()
print(len(compiling.groups), list(Path(os.environ["TRITON_CACHE_DIR"]).glob(f"{warm.STAMP}*")))
"""


@pytest.mark.slow
def test_what_cannot_be_compiled_ahead_or_not_in_time_is_no_failure(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FAILING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0 []\n"
