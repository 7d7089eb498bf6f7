"""A trainer whose every attempt does what a script says: real processes, no mocks.

`script.json` beside the config maps a patch to one line per attempt (the last one repeats), for example
["exit 1 CUDA error: out of memory", "train"]. As a program it is splatbatch with this trainer in place of ours.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from splatbatch import trainers
from splatbatch.attempt import AttemptFolder, Splat, Unfit
from splatbatch.config import Recipe
from splatbatch.files import append_line, read_json, write_json
from splatbatch.scene.patches import Patch
from splatbatch.splats import Gaussians, check_splat, write_splat

SCRIPT_VARIABLE = "FAKE_TRAINER_SCRIPT"


class FakeTrainer:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        record = {"patch": patch.name, "recipe": self.recipe.model_dump(mode="json")}
        write_json(folder.settings, record)
        return (sys.executable, __file__, "--attempt", str(folder.path))

    def collect(self, folder: AttemptFolder) -> Splat | Unfit:
        return check_splat(folder.splat, self.recipe.training.max_steps)


def install() -> None:
    trainers.TRAINERS["gsplat"] = FakeTrainer


def splat_of(num: int) -> Gaussians:
    rows = np.arange(num * 3, dtype=np.float32).reshape(num, 3)
    quats = np.tile(np.array([1, 0, 0, 0], dtype=np.float32), (num, 1))
    shn = np.zeros((num, 0, 3), dtype=np.float32)
    return Gaussians(rows, rows, quats, np.zeros(num, dtype=np.float32), rows, shn)


def behave(folder: AttemptFolder) -> int:
    settings = read_json(folder.settings) or {}
    script = json.loads(Path(os.environ[SCRIPT_VARIABLE]).read_text()).get(settings["patch"], ["train"])
    verb, _, rest = script[min(folder.number, len(script)) - 1].partition(" ")
    steps = settings["recipe"]["training"]["max_steps"]
    append_line(folder.progress, {"phase": "train", "step": 1, "max_steps": steps, "loss": 0.5}, durable=False)
    return BEHAVIOURS[verb](folder, rest, steps)


def train(folder: AttemptFolder, rest: str, steps: int) -> int:
    time.sleep(float(rest or 0))
    write_splat(folder.splat, splat_of(10), steps)
    append_line(folder.progress, {"phase": "done", "step": steps, "max_steps": steps}, durable=False)
    return 0


def exit_with(folder: AttemptFolder, rest: str, steps: int) -> int:
    code, _, words = rest.partition(" ")
    print(words, file=sys.stderr, flush=True)
    return int(code)


def die(folder: AttemptFolder, rest: str, steps: int) -> int:
    os.kill(os.getpid(), getattr(signal, rest))
    return 1


def train_then_die(folder: AttemptFolder, rest: str, steps: int) -> int:
    train(folder, "", steps)
    return die(folder, rest, steps)


def spoil(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Leave a splat that does not count, and say that all went well."""
    if rest == "nothing":
        return 0
    write_splat(folder.splat, splat_of(10), steps - 1 if rest == "early" else steps)
    if rest == "cut":
        os.truncate(folder.splat, folder.splat.stat().st_size - 1)
    if rest == "nan":
        data = folder.splat.read_bytes()
        folder.splat.write_bytes(data[:-4] + np.float32("nan").tobytes())
    return 0


def hang(folder: AttemptFolder, rest: str, steps: int) -> int:
    if "deaf" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in rest and os.fork() == 0:
        os.setsid()
    time.sleep(600)
    return 0


BEHAVIOURS = {
    "train": train,
    "exit": exit_with,
    "die": die,
    "train-then-die": train_then_die,
    "spoil": spoil,
    "hang": hang,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attempt"]:
        sys.exit(behave(AttemptFolder(Path(sys.argv[2]))))
    install()
    from splatbatch.cli import main

    main()
