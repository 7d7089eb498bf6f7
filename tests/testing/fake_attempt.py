"""What an attempt of the fake trainer does, as a script says: `fake_attempt.py --attempt FOLDER`.

It starts hundreds of times, so that it imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import struct
import sys
import time
from pathlib import Path

from light_trainer import Folder, behave, die, exit_with, leave_fugitive, ply, say


def leave_splat(folder: Folder, num: int, steps: int) -> None:
    """Leave a splat, whole or not at all: the one that `fake_trainer.splat_of` describes."""
    places = ([3.0 * row, 3.0 * row + 1, 3.0 * row + 2] for row in (one % 20 for one in range(num)))  # finite
    aside = folder.splat.with_name(".splat.ply")
    aside.write_bytes(ply(([*at, *at, 0.0, *at, 1.0, 0.0, 0.0, 0.0] for at in places), num, steps))
    aside.replace(folder.splat)


def train(folder: Folder, rest: str, steps: int, num: int = 10) -> int:
    """Train: "train 20 70000": for 20 seconds, 70,000 Gaussians."""
    seconds, _, many = rest.partition(" ")
    time.sleep(float(seconds or 0))
    leave_splat(folder, int(many or num), steps)
    say(folder, phase="done", step=steps, max_steps=steps)
    return 0


def measure(folder: Folder, rest: str, steps: int) -> int:
    """Train, and say how good it is, and of which photographs.

    "measure 24.6 25": 24.6 dB, in 25 Gaussians; "measure 24.6 25 30.1": 30.1 dB on covered pixels, always the same.
    """
    psnr, num, covered, *_ = (*rest.split(), "", "")
    figures = {"psnr": float(psnr), "ssim": 0.9}
    used = json.loads(folder.settings.read_text())["resolution"]
    metrics = {"initial": {"psnr": 10.0}, "final": figures, "resolution": used}
    if covered:
        figures |= {"psnr_covered": float(covered), "covered_share": 0.9}
        metrics["covered"] = {"hash": "the same", "why": ""}
    folder.metrics.write_text(json.dumps(metrics))
    return train(folder, "", steps, int(num or 10))


def train_then_die(folder: Folder, rest: str, steps: int) -> int:
    train(folder, "", steps)
    return die(folder, rest, steps)


def spoil(folder: Folder, rest: str, steps: int) -> int:
    """Leave a splat that does not count, and say that all went well."""
    if rest == "nothing":
        return 0
    leave_splat(folder, 10, steps - 1 if rest == "early" else steps)
    if rest == "cut":
        os.truncate(folder.splat, folder.splat.stat().st_size - 1)
    if rest == "nan":
        data = folder.splat.read_bytes()
        folder.splat.write_bytes(data[:-4] + struct.pack("<f", float("nan")))
    return 0


def needs(folder: Folder, rest: str, steps: int) -> int:
    """Train if a setting is as it must be ("training.workers<=4 Segmentation fault"), else say the words and fail."""
    condition, _, words = rest.partition(" ")
    name, sign, least = re.fullmatch(r"([\w.]+)(<=|>=|==)(.+)", condition).groups()
    section, _, key = name.partition(".")
    value = json.loads(folder.settings.read_text())["recipe"][section][key]
    holds = {"<=": lambda: float(value) <= float(least), ">=": lambda: float(value) >= float(least)}
    if holds.get(sign, lambda: str(value) == least)():
        return train(folder, "", steps)
    print(words, file=sys.stderr, flush=True)
    return die(folder, words, steps) if words.startswith("SIG") else 1


def devour(folder: Folder, rest: str, steps: int) -> int:
    """Ask for more host memory than the limit of this process allows."""
    import numpy as np

    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return len(np.ones(1 << 31, dtype=np.uint8))


def linger(folder: Folder, rest: str, steps: int) -> int:
    """Train, then stay up as a viewer does."""
    train(folder, "", steps)
    return hang(folder, "", steps)


def fill_disk(folder: Folder, rest: str, steps: int) -> int:
    with folder.splat.open("wb") as file:
        while True:
            file.write(b"\0" * (1 << 20))


def unhealthy(folder: Folder, rest: str, steps: int) -> int:
    say(folder, phase="train", step=9, max_steps=steps, health=rest)
    return 4


def hang(folder: Folder, rest: str, steps: int) -> int:
    if "deaf" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in rest and os.fork() == 0:
        os.setsid()
    time.sleep(600)
    return 0


def train_with_kin(folder: Folder, rest: str, steps: int) -> int:
    """Train beside a deaf child in a session of its own; the splat tells which attempt it came from."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    time.sleep(float(rest))
    leave_splat(folder, 10 + folder.number, steps)
    return 0


def train_with_fugitive(folder: Folder, rest: str, steps: int) -> int:
    leave_fugitive()
    return train(folder, rest, steps)


def await_file(folder: Folder, rest: str, steps: int) -> int:
    """Train once a file lies beside the config."""
    while not Path(os.environ["SPLATBATCH_CONFIG"]).with_name(rest).exists():
        time.sleep(0.01)
    return train(folder, "", steps)


def train_then_fill(folder: Folder, rest: str, steps: int) -> int:
    """Train, then leave no byte free on the disk of the output folder."""
    train(folder, "", steps)
    fill(folder.path.parents[2] / "filler")
    return 0


def write(folder: Folder, rest: str, steps: int) -> int:
    """Write the splat piece by piece: "write 3 20000": for three seconds, 20,000 Gaussians."""
    seconds, num = rest.split()
    leave_splat(folder, int(num), steps)
    write_slowly(folder.splat, float(seconds))
    say(folder, phase="done", step=steps, max_steps=steps)
    return 0


def write_slowly(path: Path, seconds: float, pieces: int = 20) -> None:
    """Write a file once more, in so many pieces, for so long."""
    data = path.read_bytes()
    with path.open("wb", buffering=0) as file:
        for piece in range(pieces):
            file.write(data[piece * len(data) // pieces : (piece + 1) * len(data) // pieces])
            time.sleep(seconds / pieces)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass


def talk(folder: Folder, rest: str, steps: int) -> int:
    """Say so many MiB as fast as it goes, then train."""
    for _ in range(int(rest)):
        sys.stdout.write(("x" * 127 + "\n") * (1 << 13))
    return train(folder, "", steps)


def take(folder: Folder, rest: str, steps: int) -> int:
    """Train, and say that it took so many seconds."""
    say(folder, phase="train", step=steps, max_steps=steps, seconds=float(rest))
    leave_splat(folder, 10, steps)
    return 0


BEHAVIOURS = {
    "train-with-kin": train_with_kin,
    "train-with-fugitive": train_with_fugitive,
    "await": await_file,
    "talk": talk,
    "take": take,
    "train-then-fill": train_then_fill,
    "write": write,
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

if __name__ == "__main__":
    sys.exit(behave(Folder(Path(sys.argv[2])), BEHAVIOURS))
