"""A trainer whose every attempt does what a script says: real processes, no mocks.

`script.json` beside the config maps a patch to one line per attempt (the last one repeats), for example
["exit 1 CUDA error: out of memory", "train"]. As a program it is splatbatch with this trainer in place of ours.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_attempt
import numpy as np
from fake_attempt import BEHAVIOURS
from light_trainer import behave

from splatbatch.files import read_json, write_json
from splatbatch.outcome import Rejected, Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.splats import Gaussians, check_splat

if TYPE_CHECKING:  # an attempt starts hundreds of times, and needs none of these
    from splatbatch.config import Recipe
    from splatbatch.scene.patches import Patch

SCRIPT_VARIABLE = "FAKE_TRAINER_SCRIPT"


class FakeTrainer:
    stands_by = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        record = {"patch": folder.task, "sparse": str(patch.sparse), "images": str(patch.images)}
        record["recipe"] = self.recipe.model_dump(mode="json")
        record["holdout"] = held_out_of(patch, self.recipe)
        if "measure" in Path(os.environ.get(SCRIPT_VARIABLE, os.devnull)).read_text():
            record["resolution"] = resolution_of(patch, self.recipe)
        write_json(folder.settings, record)
        program = os.environ.get("FAKE_TRAINER_PROGRAM", fake_attempt.__file__)
        return (sys.executable, program, "--attempt", str(folder.path))

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        splat = check_splat(folder.splat, self.recipe.training.max_steps)
        metrics = read_json(folder.metrics)
        return replace(splat, metrics=metrics) if isinstance(splat, Splat) and metrics else splat


def held_out_of(patch: Patch, recipe: Recipe) -> tuple[str, ...]:
    from splatbatch.scene.holdout import choose_holdout

    return choose_holdout(patch, recipe.evaluation)


def resolution_of(patch: Patch, recipe: Recipe) -> dict[str, Any]:
    """Return which photographs are used, chosen as our own trainer does."""
    from splatbatch.scene.colmap.reconstruction import read_reconstruction
    from splatbatch.scene.photos.folders import choose_photographs

    model = read_reconstruction(patch.sparse)
    chosen = choose_photographs(patch.images, model.images, model.cameras, recipe.training.resolution)
    size = [-(-side // chosen.divisor) for side in (model.cameras[1].width, model.cameras[1].height)]
    return {"used": f"1/{chosen.divisor}", "folder": chosen.folder.name, "largest": size}


def install() -> None:
    from splatbatch import trainers
    from splatbatch.machine import supervisors

    trainers.TRAINERS["gsplat"] = FakeTrainer
    supervisors.start_ahead = lambda *_: None  # nothing of ours will run


def splat_of(num: int) -> Gaussians:
    rows = np.arange(num * 3, dtype=np.float32).reshape(num, 3)
    quats = np.tile(np.array([1, 0, 0, 0], dtype=np.float32), (num, 1))
    shn = np.zeros((num, 0, 3), dtype=np.float32)
    return Gaussians(rows, rows, quats, np.zeros(num, dtype=np.float32), rows, shn)


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


CONSTANTS: dict[str, Any] = {"splatbatch.failures.retry.FIRST_WAIT_S": 0.1}
"""Of the program, as every batch in a test has them."""


def change_constants() -> None:
    """Set constants as FAKE_TRAINER_CONSTANTS says: {"splatbatch.machine.local.SILENCE_S": 1}."""
    for name, value in (CONSTANTS | json.loads(os.environ.get("FAKE_TRAINER_CONSTANTS", "{}"))).items():
        module, constant = constant_of(name)
        setattr(module, constant, value)
    if os.environ.get("FAKE_TRAINER_NO_FLOCK"):
        fcntl.flock = no_locks


def constant_of(name: str) -> tuple[Any, str]:
    """Return the module of a constant, and its name there."""
    module, _, constant = name.rpartition(".")
    return importlib.import_module(module), constant


def train_as_a_plain_program(patch: str, config: Path, output: Path) -> int:
    """Train as a program that a shell loop calls: settings from the YAML, the splat at a fixed place, no questions."""
    from splatbatch.config import load
    from splatbatch.output.folders import PatchFolder
    from splatbatch.scene.patches import Patch

    recipe = load(config).recipe(patch)
    folder = PatchFolder(output / patch).new_attempt()
    if recipe.program:
        return run_and_move(Patch(patch, Path(), Path()), recipe, folder, output / patch / "splat.ply")
    scene = config.parent
    FakeTrainer(recipe).command(Patch(patch, scene / "patches" / patch / "sparse" / "0", scene / "images"), folder)
    try:
        return behave(folder, BEHAVIOURS)
    finally:
        if folder.splat.exists():
            folder.splat.replace(output / patch / "splat.ply")


def run_and_move(patch: Patch, recipe: Recipe, folder: AttemptFolder, place: Path) -> int:
    """Run an external trainer and move the file that it names its splat to a place, as `mv` does."""
    from splatbatch import trainers

    argv = trainers.open_trainer(recipe).command(patch, folder)
    code = subprocess.run(argv, cwd=folder.output, check=False).returncode
    made = folder.output / recipe.program.artifact.ply[0]
    if made.exists():
        made.replace(place)
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        sys.exit(train_as_a_plain_program(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
    install()
    change_constants()
    if os.environ.get("FAKE_TRAINER_INSTANT"):
        from worker_batch import make_instant

        make_instant()
    if "FAKE_TRAINER_KILL" in os.environ:
        from kill_events import kill_as_told

        kill_as_told(os.environ["FAKE_TRAINER_KILL"])
    if "FAKE_DOOR" in os.environ:
        from doors import put_as_told

        put_as_told(os.environ["FAKE_DOOR"])
    if "FAKE_STAGE" in os.environ:
        import doubled_stage

        doubled_stage.install()
    from splatbatch.cli import main

    main()
