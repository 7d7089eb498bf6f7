"""Photographs that are no 8-bit pictures of one pinhole are trained, and the threads of a training import nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from odd_patches import KINDS, odd_patch
from small_patch import prepared, recipe, trained

PREPARE = """
import sys
from pathlib import Path
from import_hooks import ImportedInThreads
from splatbatch.config import Recipe
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.attempt import prepare
in_threads, folder = ImportedInThreads(), AttemptFolder(Path(sys.argv[1]))
settings = folder.read_settings()
ready = prepare(settings, Recipe.model_validate(settings.recipe), ProgressRecorder(folder.progress, 20))
print(len(ready.views.training), *in_threads.names)
"""


@pytest.mark.all(but="fisheye")
@pytest.mark.parametrize("kind", KINDS)
def test_odd_photographs_are_trained(tmp_path: Path, kind: str) -> None:
    _, splat = trained(odd_patch(tmp_path, kind), recipe(max_steps=25))
    assert splat.metrics["final"]["psnr"] >= splat.metrics["initial"]["psnr"] + 3


@pytest.mark.all
@pytest.mark.contract
def test_what_the_threads_of_a_training_need_is_imported_before_they_begin(tmp_path: Path) -> None:
    folder = prepared(odd_patch(tmp_path, "two_lenses"), recipe())
    command = [sys.executable, "-c", PREPARE, str(folder.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (ended.stdout, ended.stderr) == ("7\n", "")
