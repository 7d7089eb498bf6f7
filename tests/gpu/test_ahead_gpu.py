"""On a real GPU: what was compiled without one is what is asked for with one, of all kinds, and nothing is left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
COMPILE = """
from splatbatch.training.cuda import ahead
from splatbatch.machine import gpu
import torch
card = gpu.gpus()[0]
compiling = ahead.start(card.capability, ahead.OURS)
compiling.wait()
assert not torch.cuda.is_initialized()
"""
USE = """
import torch
from splatbatch.training.cuda.warm import OURS
for build in OURS.values():
    build(torch.device("cuda"))
torch.cuda.synchronize()
"""
SIZES = """
import json, torch
from splatbatch.training.cuda import warm
device = torch.device("cuda")
for num in (1000, 4096, 70001, 200000):
    for size in ((125, 94), (249, 187), (512, 256), (995, 748)):
        warm.lists(device, num, [size])
    for degree in range(4):
        warm.colors(degree, device, num)
for width in (125, 166, 249, 332, 498, 995, 1600):
    warm.loss(torch.uint8, device, [width])
torch.cuda.synchronize()
"""


def run(code: str, cache: Path) -> set[str]:
    """Run a program; return the names of compiled kernels that lie in the cache then, each with its folder."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
    return {str(path.relative_to(cache)) for path in cache.glob("*/*.cubin")}


def test_what_is_compiled_without_a_gpu_is_all_that_is_asked_for_on_one(tmp_path: Path) -> None:
    ahead = run(COMPILE, tmp_path)
    assert ahead
    assert run(USE, tmp_path) == ahead


def test_no_number_of_gaussians_and_no_size_needs_another_kernel(tmp_path: Path) -> None:
    ahead = run(COMPILE, tmp_path)
    assert run(SIZES, tmp_path) == ahead


def test_a_process_with_its_context_open_holds_less_than_is_allowed_for(tmp_path: Path) -> None:
    code = """
import json, sys, time
from pathlib import Path
from splatbatch.machine import gpu
from splatbatch.machine.slots import CONTEXT_MIB
uuid = gpu.gpus()[0].uuid
before = gpu.sample(uuid).used_mib
import torch
from splatbatch.config import Recipe
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.training.gaussians import first_values
from splatbatch.training.photos.views import Folders, decode_views
from splatbatch.training.standby import rehearse
from splatbatch.training.session import open_device
for strategy in ("default", "mcmc"):
    recipe = Recipe.model_validate({"training": {"strategy": strategy, "cap_max": 400000}})
    patch = Path("QUARRY")
    model = read_reconstruction(patch / "patches/p0/sparse/0")
    views = decode_views(model, Folders(patch / "images"), frozenset(), recipe.training)
    device = open_device("cuda")
    rehearse(views, first_values(model.points, views.frame, recipe.training), recipe, device)
print(json.dumps(gpu.sample(uuid).used_mib - before))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    quarry = Path(__file__).parents[2] / "examples/quarry"
    command = [sys.executable, "-c", code.replace("QUARRY", str(quarry))]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 0, said.stderr[-2000:]
    held_mib = json.loads(said.stdout.splitlines()[-1])
    print(f"held: {held_mib} MiB")
    assert 100 < held_mib < 1024
