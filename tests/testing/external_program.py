"""An external trainer that does what it is told; nothing of splatbatch's files is known to it.

external_program.py --steps 10 --output FOLDER --do "train"
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np

NAMES = ("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", "opacity")
SNAPSHOT = 3
"""Gaussians of a splat that is not the last."""
AGE_S = 2.5
"""A splat that is so much older than the steps after it is not from them."""
PROPERTIES = (*NAMES, *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4)))


def write_ply(
    path: Path, num: int = 10, *, cut: int = 0, value: float = 0.5, also: tuple[str, ...] = (), unfilled: int = 0
) -> None:
    """Write a splat as the first implementation does: with normals, without a word on the step.

    Args:
        path: where.
        num: of Gaussians.
        cut: how many bytes are missing at the end.
        value: of every property.
        also: further properties.
        unfilled: how many Gaussians at the end are zeros: the file has its size, and not yet its content.
    """
    names = (*PROPERTIES, *also)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {num}"]
    header = "\n".join([*lines, *(f"property float {name}" for name in names), "end_header\n"])
    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.full((num, len(names)), value, dtype="<f4")
    table[num - unfilled :] = 0
    data = header.encode() + table.tobytes()
    path.write_bytes(data[: len(data) - cut])


def write_points(path: Path) -> None:
    """Write what the program starts from, as many of them do: a PLY, but no splat."""
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 1", "property float x", "end_header\n"]
    path.write_bytes("\n".join(lines).encode() + bytes(4))


def say(step: int, steps: int) -> None:
    print(f"step {step}/{steps} loss {1 / step:.4f} gaussians {step * 1000:,}", flush=True)


def train(output: Path, steps: int, value: float = 0.5) -> None:
    for step in range(1, steps + 1):
        say(step, steps)
    print("PSNR 21.5", flush=True)
    write_ply(output / f"point_cloud_{steps}.ply", value=value)


def snapshot(output: Path, steps: int, then: str) -> int:
    """Write the only splat after a tenth of the steps, under a name that tells no step, and end without another.

    `then` is what follows: "exit", or a signal of its own, or "hang"; before it "quietly " (no word of steps),
    "last " (all steps are made, and the last splat is not written), "named " (a link tells what step it is from).
    """
    early = max(1, steps // 10)
    words = then.split()
    if "quietly" not in words:
        for step in range(1, early + 1):
            say(step, steps)
    write_ply(output / (f"splat_{early}.ply" if "named" in words else "splat.ply"), SNAPSHOT)
    if "named" in words:
        (output / "splat.ply").symlink_to(f"splat_{early}.ply")
    if "last" in words:
        for step in range(early + 1, steps + 1):
            time.sleep(AGE_S if step in (early + 1, steps // 2 + 1) else 0)
            say(step, steps)
    return end(words[-1])


def end(how: str) -> int:
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
    if how == "hang":
        time.sleep(1_000_000)
    return 0


def link(output: Path, steps: int, where: str) -> int:
    """Train, and name the splat a second time as many programs do, by a link; `where` may be another folder."""
    train(output, steps)
    made = output / f"point_cloud_{steps}.ply"
    if where:
        made = made.replace(Path(where) / made.name)
    (output / "final.ply").symlink_to(made if where else made.name)
    return 0


def stay_up(*, talking: bool) -> int:
    print("Viewer running", flush=True)
    while True:
        time.sleep(0.02)
        if talking:
            print("60 frames per second", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--do", default="train")
    options = parser.parse_args()
    verb, _, rest = options.do.partition(" ")
    return BEHAVIOURS[verb](options.output, options.steps, rest)


def trained(output: Path, steps: int, rest: str) -> int:
    train(output, steps)
    return 0


def train_to(output: Path, steps: int, rest: str) -> int:
    """Train, and leave the splat under a name that tells no step."""
    train(output, steps)
    (output / f"point_cloud_{steps}.ply").replace(output / rest)
    return 0


def train_at(output: Path, steps: int, rest: str) -> int:
    """Train Gaussians of which each coordinate is a value."""
    train(output, steps, float(rest))
    return 0


def points_first(output: Path, steps: int, rest: str) -> int:
    write_points(output / "input.ply")
    time.sleep(float(rest))
    return trained(output, steps, "")


def fail(output: Path, steps: int, rest: str) -> int:
    code, _, words = rest.partition(" ")
    print(words, file=sys.stderr, flush=True)
    return int(code)


def train_then_die(output: Path, steps: int, rest: str) -> int:
    train(output, steps)
    return end(rest)


def write(output: Path, steps: int, rest: str) -> int:
    """Write the splat piece by piece: "write 3 20000": for three seconds, 20,000 Gaussians."""
    from fake_attempt import write_slowly

    seconds, num = rest.split()
    say(steps, steps)
    write_ply(made := output / f"point_cloud_{steps}.ply", int(num))
    write_slowly(made, float(seconds))
    return 0


def linger(output: Path, steps: int, rest: str) -> int:
    train(output, steps)
    return stay_up(talking=rest == "talking")


def fill_later(output: Path, steps: int, rest: str) -> int:
    write_ply(output / f"point_cloud_{steps}.ply", unfilled=int(rest))
    return stay_up(talking=False)


def spoil(output: Path, steps: int, rest: str) -> int:
    if rest != "nothing":
        early = steps - 1 if rest == "early" else steps
        value = float("nan") if rest == "nan" else 0.5
        write_ply(output / f"point_cloud_{early}.ply", cut=int(rest == "cut"), value=value)
    return 0


def nest(output: Path, steps: int, rest: str) -> int:
    """Train, and leave so many folders in each other."""
    train_to(output, steps, "splat.ply")
    os.chdir(output)
    for _ in range(int(rest)):
        os.mkdir("again")  # noqa: PTH102 - their path is longer than any may be
        os.chdir("again")
    return 0


def ask(output: Path, steps: int, rest: str) -> int:
    train(output, steps)
    input("Overwrite? [y/n] ")
    return 0


def leak(output: Path, steps: int, rest: str) -> int:
    """Train, and tell its environment in every way in which programs do; `rest`: "fail", or nothing."""
    token, url = os.environ["HF_TOKEN"], os.environ["TRACKING_URL"]
    print(token, dict(os.environ), json.dumps(dict(os.environ)), f"https://user:{quote(token, safe='')}@host/", url)
    print(f"logged in to https://me:{urlsplit(url).password}@elsewhere, step 7/10 {token}\r{token}\r", flush=True)
    for half in (token[:11], token[11:], f"{token}\n{token[:-1]}", f"{token[-1]}\n"):
        os.write(1, half.encode())
        time.sleep(0.15)
    print(os.environ["A_KEY"].replace("\n", "\r\n"), os.environ["MODE"], os.environ["SHARE"], flush=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "figures.json").write_text(json.dumps({token: token, "psnr": f"21 {token}"}))
    if rest == "fail":
        words = f"401 Client Error: token {token} is refused by {url}"
        raise RuntimeError(words)
    return trained(output, steps, "")


def leak_to_end(output: Path, steps: int, rest: str) -> int:
    """End in the middle of the word."""
    os.write(1, os.environ["HF_TOKEN"][:-2].encode())
    return 3


def melt(output: Path, steps: int, rest: str) -> int:
    """Leave a whole splat, whatever the loss did: "rises", "stays", "nan", or "falls"."""
    for step in range(1, steps + 1):
        share = step / steps
        loss = {"rises": 0.18 + 0.8 * share, "stays": 0.33, "nan": 0.3 if share < 0.5 else math.nan, "falls": 1 - share}
        print(f"step {step}/{steps} loss {loss[rest]:.4f}", flush=True)
    write_ply(output / f"point_cloud_{steps}.ply")
    return 0


def by_hand(output: Path, steps: int, rest: str) -> int:
    """Leave the splat by some Python, which knows it as `out`."""
    exec(rest, {"os": os, "shutil": shutil, "out": output / f"point_cloud_{steps}.ply"})
    return 0


def as_scripted(output: Path, steps: int, rest: str) -> int:
    """Do what a file says of the patch that the output is of, attempt by attempt; train where it says nothing more."""
    attempt, patch = output.parent.name, output.parents[1].name
    script = [*json.loads(Path(rest).read_text()).get(patch, []), "train"]
    number = min(int(attempt.rpartition("-")[2]), len(script))
    verb, _, words = script[number - 1].partition(" ")
    return BEHAVIOURS[verb](output, steps, words)


BEHAVIOURS = {
    "as-scripted": as_scripted,
    "by-hand": by_hand,
    "melt": melt,
    "leak": leak,
    "leak-to-end": leak_to_end,
    "train": trained,
    "train-to": train_to,
    "train-at": train_at,
    "points-first": points_first,
    "exit": fail,
    "die": lambda output, steps, rest: end(rest),
    "hang": lambda output, steps, rest: stay_up(talking=False),
    "train-then-die": train_then_die,
    "linger": linger,
    "chatter": lambda output, steps, rest: linger(output, steps, "talking"),
    "snapshot": snapshot,
    "write": write,
    "link": link,
    "fill-later": fill_later,
    "spoil": spoil,
    "ask": ask,
    "nest": nest,
}


if __name__ == "__main__":
    sys.exit(main())
