"""A scripted trainer that starts in no time, for tests of hundreds of attempts: `light_trainer.py --attempt FOLDER`.

Its splats tell which attempt they came from: attempt 2 leaves 12 Gaussians. They are written in two halves, so that a
kill may leave one of them. It imports nothing of the package, as no other program that trains would.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

PROPERTIES = (*"xyz", *(f"f_dc_{i}" for i in range(3)), "opacity", *(f"scale_{i}" for i in range(3)))
ROTATION = tuple(f"rot_{i}" for i in range(4))


class Folder:
    """An attempt's folder, by the names that its files are promised to have."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, int(path.name.rpartition("-")[2])
        self.settings, self.go, self.progress = path / "settings.json", path / "go.json", path / "progress.jsonl"
        self.splat, self.metrics = path / "splat.ply", path / "metrics.json"


Behaviour = Callable[[Folder, str, int], int]


def behave(folder: Folder, behaviours: Mapping[str, Behaviour]) -> int:
    """Do what the script says for this attempt: a verb and its words; "unready" is one that no standby outlives."""
    settings = json.loads(folder.settings.read_text())
    script = json.loads(Path(os.environ["FAKE_TRAINER_SCRIPT"]).read_text()).get(settings["patch"], ["train"])
    verb, _, rest = script[min(folder.number, len(script)) - 1].partition(" ")
    if os.environ.get("SPLATBATCH_STANDBY") and not stand_by(folder, verb):
        return 1
    if verb == "unready":
        verb, _, rest = rest.partition(" ")
    steps = settings["recipe"]["training"]["max_steps"]
    say(folder, phase="train", step=1, max_steps=steps, loss=0.5)
    return behaviours[verb](folder, rest, steps)


def stand_by(folder: Folder, verb: str) -> bool:
    """Wait for `go`, unless the script says that no standby ever becomes ready ("unready train")."""
    say(folder, phase="standby", step=0)
    while not folder.go.exists() and verb != "unready":
        time.sleep(0.005)
    return verb != "unready"


def say(folder: Folder, **line: Any) -> None:
    with folder.progress.open("a") as file:
        file.write(json.dumps(line) + "\n")


def train(folder: Folder, rest: str, steps: int) -> int:
    time.sleep(float(rest or 0))
    data = splat_of(10 + folder.number, steps)
    with folder.splat.open("wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        file.write(data[len(data) // 2 :])
    say(folder, phase="done", step=steps, max_steps=steps)
    return 0


def splat_of(num: int, steps: int) -> bytes:
    return ply(([0.5 + row] * len(PROPERTIES + ROTATION) for row in range(num)), num, steps)


def ply(rows: Iterable[list[float]], num: int, steps: int) -> bytes:
    """Return a splat without spherical harmonics of higher degrees, as a file holds it."""
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        f"comment splatbatch step {steps}",
        f"element vertex {num}",
        *(f"property float {name}" for name in PROPERTIES + ROTATION),
        "end_header\n",
    ]
    return "\n".join(lines).encode() + b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)


def train_with_kin(folder: Folder, rest: str, steps: int) -> int:
    """Train beside a deaf child in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    return train(folder, rest, steps)


def train_with_fugitive(folder: Folder, rest: str, steps: int) -> int:
    leave_fugitive()
    return train(folder, rest, steps)


def leave_fugitive() -> None:
    """Leave a grandchild that hides: a session and an environment of its own; its number and start are noted."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            names = Path(os.environ["SPLATBATCH_CONFIG"]).with_name("fugitives")
            ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
            with names.open("a") as file:
                file.write(f"{os.getpid()}:{ticks}\n")
            os.execve("/bin/sleep", ["sleep", "600"], {})
        os._exit(0)


def exit_with(folder: Folder, rest: str, steps: int) -> int:
    code, _, words = rest.partition(" ")
    print(words, file=sys.stderr, flush=True)
    return int(code)


def die(folder: Folder, rest: str, steps: int) -> int:
    os.kill(os.getpid(), getattr(signal, rest))
    return 1


BEHAVIOURS = {
    "train": train,
    "train-with-kin": train_with_kin,
    "train-with-fugitive": train_with_fugitive,
    "exit": exit_with,
    "die": die,
}

if __name__ == "__main__":
    sys.exit(behave(Folder(Path(sys.argv[2])), BEHAVIOURS))
