"""A scripted trainer that starts in no time, for tests of hundreds of attempts: `light_trainer.py --attempt FOLDER`.

Its splats tell which attempt they came from: attempt 2 leaves 12 Gaussians. They are written in two halves, so that a
kill may leave one of them.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from pathlib import Path

from splatbatch.store.attempt_folder import AttemptFolder

PROPERTIES = (*"xyz", *(f"f_dc_{i}" for i in range(3)), "opacity", *(f"scale_{i}" for i in range(3)))
ROTATION = tuple(f"rot_{i}" for i in range(4))


def behave(folder: AttemptFolder) -> int:
    settings = json.loads(folder.settings.read_text())
    script = json.loads(Path(os.environ["FAKE_TRAINER_SCRIPT"]).read_text()).get(settings["patch"], ["train"])
    verb, _, rest = script[min(folder.number, len(script)) - 1].partition(" ")
    if os.environ.get("SPLATBATCH_STANDBY"):
        stand_by(folder)
    steps = settings["recipe"]["training"]["max_steps"]
    say(folder, {"phase": "train", "step": 1, "max_steps": steps, "loss": 0.5})
    return BEHAVIOURS[verb](folder, rest, steps)


def stand_by(folder: AttemptFolder) -> None:
    say(folder, {"phase": "standby", "step": 0})
    while not folder.go.exists():
        time.sleep(0.005)


def say(folder: AttemptFolder, line: dict) -> None:
    with folder.progress.open("a") as file:
        file.write(json.dumps(line) + "\n")


def train(folder: AttemptFolder, rest: str, steps: int) -> int:
    time.sleep(float(rest or 0))
    data = splat_of(10 + folder.number, steps)
    with folder.splat.open("wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        file.write(data[len(data) // 2 :])
    say(folder, {"phase": "done", "step": steps, "max_steps": steps})
    return 0


def splat_of(num: int, steps: int) -> bytes:
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        f"comment splatbatch step {steps}",
        f"element vertex {num}",
        *(f"property float {name}" for name in PROPERTIES + ROTATION),
        "end_header\n",
    ]
    values = [0.5 + row for row in range(num) for _ in PROPERTIES + ROTATION]
    return "\n".join(lines).encode() + struct.pack(f"<{len(values)}f", *values)


def train_with_kin(folder: AttemptFolder, rest: str, steps: int) -> int:
    """Train beside a deaf child in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    return train(folder, rest, steps)


def train_with_fugitive(folder: AttemptFolder, rest: str, steps: int) -> int:
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


def exit_with(folder: AttemptFolder, rest: str, steps: int) -> int:
    code, _, words = rest.partition(" ")
    print(words, file=sys.stderr, flush=True)
    return int(code)


def die(folder: AttemptFolder, rest: str, steps: int) -> int:
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
    sys.exit(behave(AttemptFolder(Path(sys.argv[2]))))
