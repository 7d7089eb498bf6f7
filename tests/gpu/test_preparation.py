"""The preparation of a patch leaves no trace on the GPU, so that it may run while another patch trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from given_card import given_card

from splatbatch.config import Recipe
from splatbatch.config.sections import Scene
from splatbatch.machine import gpu
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import find_patches
from splatbatch.trainers import open_trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]

PREPARE = """
import sys, torch
from pathlib import Path
from splatbatch.config import Recipe
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.attempt import prepare
folder = AttemptFolder(Path(sys.argv[1]))
settings = folder.read_settings()
ready = prepare(settings, Recipe.model_validate(settings.recipe), ProgressRecorder(folder.progress, 10))
print(len(ready.views.training), torch.cuda.is_initialized(), flush=True)
sys.stdin.read()
"""


def test_a_prepared_process_holds_nothing_on_the_gpu(tmp_path: Path) -> None:
    quarry = Path(__file__).parents[2] / "examples/quarry"
    scene = Scene.model_validate({"patches": quarry / "patches", "images": quarry / "images"})
    folder = AttemptFolder(tmp_path)
    open_trainer(Recipe()).command(find_patches(scene)[0], folder)
    before = gpu.sample(given_card().uuid)
    command = [sys.executable, "-c", PREPARE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline().split()[1] == "False"
        now = gpu.sample(given_card().uuid)
        process.communicate()
    assert now.used_mib == before.used_mib
    assert set(now.processes) <= set(before.processes)
