"""A trainer whose every attempt does what a script says: real processes, no mocks.

`script.json` beside the config maps a patch to one line per attempt (the last one repeats), for example
["exit 1 CUDA error: out of memory", "train"]. As a program it is splatbatch with this trainer in place of ours.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from light_trainer import die, exit_with, leave_fugitive

from splatbatch.files import append_line, read_json, write_json
from splatbatch.outcome import Rejected, Splat
from splatbatch.splats import Gaussians, check_splat, write_splat
from splatbatch.store.attempt_folder import AttemptFolder

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
        write_json(folder.settings, record)
        return (sys.executable, os.environ.get("FAKE_TRAINER_PROGRAM", __file__), "--attempt", str(folder.path))

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        splat = check_splat(folder.splat, self.recipe.training.max_steps)
        metrics = read_json(folder.metrics)
        return replace(splat, metrics=metrics) if isinstance(splat, Splat) and metrics else splat


def install() -> None:
    from splatbatch import trainers

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
    if os.environ.get("SPLATBATCH_STANDBY") and not stand_by(folder, verb):
        return 1
    if verb == "unready":
        verb, _, rest = rest.partition(" ")
    steps = settings["recipe"]["training"]["max_steps"]
    append_line(folder.progress, {"phase": "train", "step": 1, "max_steps": steps, "loss": 0.5}, durable=False)
    return BEHAVIOURS[verb](folder, rest, steps)


def stand_by(folder: AttemptFolder, verb: str) -> bool:
    """Wait for `go`, unless the script says that no standby ever becomes ready ("unready train")."""
    append_line(folder.progress, {"phase": "standby", "step": 0}, durable=False)
    while not folder.go.exists() and verb != "unready":
        time.sleep(0.005)
    return verb != "unready"


def train(folder: AttemptFolder, rest: str, steps: int, num: int = 10) -> int:
    time.sleep(float(rest or 0))
    write_splat(folder.splat, splat_of(num), steps)
    append_line(folder.progress, {"phase": "done", "step": steps, "max_steps": steps}, durable=False)
    return 0


def measure(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train, and say how good it is and which photographs were used, chosen as our own trainer does.

    "measure 24.6 25": 24.6 dB, in 25 Gaussians.
    """
    from splatbatch.scene.colmap.reconstruction import read_reconstruction
    from splatbatch.scene.photos.photographs import choose_photographs

    psnr, _, num = rest.partition(" ")
    settings = read_json(folder.settings) or {}
    model = read_reconstruction(Path(settings["sparse"]))
    resolution = settings["recipe"]["training"]["resolution"]
    chosen = choose_photographs(Path(settings["images"]), model.images, model.cameras, resolution)
    size = [-(-side // chosen.divisor) for side in (model.cameras[1].width, model.cameras[1].height)]
    used = {"used": f"1/{chosen.divisor}", "folder": chosen.folder.name, "largest": size}
    figures = {"psnr": float(psnr), "ssim": 0.9}
    write_json(folder.metrics, {"initial": {"psnr": 10.0}, "final": figures, "resolution": used})
    return train(folder, "", steps, int(num or 10))


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


def needs(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train if a setting is as it must be ("training.workers<=4 Segmentation fault"), else say the words and fail."""
    condition, _, words = rest.partition(" ")
    name, sign, least = re.fullmatch(r"([\w.]+)(<=|>=|==)(.+)", condition).groups()
    section, _, key = name.partition(".")
    value = (read_json(folder.settings) or {})["recipe"][section][key]
    holds = {"<=": lambda: float(value) <= float(least), ">=": lambda: float(value) >= float(least)}
    if holds.get(sign, lambda: str(value) == least)():
        return train(folder, "", steps)
    print(words, file=sys.stderr, flush=True)
    return die(folder, words, steps) if words.startswith("SIG") else 1


def devour(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Ask for more host memory than the limit of this process allows."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return len(np.ones(1 << 31, dtype=np.uint8))


def linger(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train, then stay up as a viewer does."""
    train(folder, "", steps)
    return hang(folder, "", steps)


def fill_disk(folder: AttemptFolder, rest: str, steps: int) -> int:
    with folder.splat.open("wb") as file:
        while True:
            file.write(b"\0" * (1 << 20))


def unhealthy(folder: AttemptFolder, rest: str, steps: int) -> int:
    append_line(folder.progress, {"phase": "train", "step": 9, "max_steps": steps, "health": rest}, durable=False)
    return 4


def hang(folder: AttemptFolder, rest: str, steps: int) -> int:
    if "deaf" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in rest and os.fork() == 0:
        os.setsid()
    time.sleep(600)
    return 0


def train_with_kin(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train beside a deaf child in a session of its own; the splat tells which attempt it came from."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    time.sleep(float(rest))
    write_splat(folder.splat, splat_of(10 + folder.number), steps)
    return 0


def train_with_fugitive(folder: AttemptFolder, rest: str, steps: int) -> int:
    leave_fugitive()
    return train(folder, rest, steps)


def await_file(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train once a file lies beside the config."""
    while not Path(os.environ["SPLATBATCH_CONFIG"]).with_name(rest).exists():
        time.sleep(0.01)
    return train(folder, "", steps)


def train_then_fill(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train, then leave no byte free on the disk of the output folder."""
    train(folder, "", steps)
    fill(folder.path.parents[2] / "filler")
    return 0


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass


def talk(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Say so many MiB as fast as it goes, then train."""
    for _ in range(int(rest)):
        sys.stdout.write(("x" * 127 + "\n") * (1 << 13))
    return train(folder, "", steps)


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def change_constants() -> None:
    """Set constants of the program as FAKE_TRAINER_CONSTANTS says: {"splatbatch.machine.heartbeat.SILENCE_S": 1}."""
    for name, value in json.loads(os.environ.get("FAKE_TRAINER_CONSTANTS", "{}")).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    if os.environ.get("FAKE_TRAINER_NO_FLOCK"):
        fcntl.flock = no_locks


def wait_at_the_barrier() -> None:
    """Wait until the file of FAKE_TRAINER_BARRIER is there, with everything imported: a start at one instant."""
    if barrier := os.environ.get("FAKE_TRAINER_BARRIER"):
        from splatbatch.commands.train import train  # noqa: F401

        Path(f"{barrier}.{os.getpid()}").touch()
        while not Path(barrier).exists():
            pass


BEHAVIOURS = {
    "train-with-kin": train_with_kin,
    "train-with-fugitive": train_with_fugitive,
    "await": await_file,
    "talk": talk,
    "train-then-fill": train_then_fill,
    "train": train,
    "exit": exit_with,
    "die": die,
    "train-then-die": train_then_die,
    "spoil": spoil,
    "hang": hang,
    "needs": needs,
    "measure": measure,
    "unhealthy": unhealthy,
    "devour": devour,
    "linger": linger,
    "fill-disk": fill_disk,
}


def train_as_a_plain_program(patch: str, config: Path, output: Path) -> int:
    """Train as a program that a shell loop calls: settings from the YAML, the splat at a fixed place, no questions."""
    from splatbatch.config import load
    from splatbatch.scene.patches import Patch
    from splatbatch.store.layout import PatchFolder

    recipe = load(config).recipe(patch)
    folder = PatchFolder(output / patch).new_attempt()
    if recipe.program:
        return run_and_move(Patch(patch, Path(), Path()), recipe, folder, output / patch / "splat.ply")
    scene = config.parent
    FakeTrainer(recipe).command(Patch(patch, scene / "patches" / patch / "sparse" / "0", scene / "images"), folder)
    try:
        return behave(folder)
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
    if sys.argv[1:2] == ["--attempt"]:
        sys.exit(behave(AttemptFolder(Path(sys.argv[2]))))
    if sys.argv[1:2] == ["--plain"]:
        sys.exit(train_as_a_plain_program(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
    install()
    change_constants()
    if "FAKE_TRAINER_KILL" in os.environ:
        from kill_events import kill_as_told

        kill_as_told(os.environ["FAKE_TRAINER_KILL"])
    wait_at_the_barrier()
    from splatbatch.cli import main

    main()
