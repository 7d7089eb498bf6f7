"""A training program of somebody else that does what it is told; nothing of splatbatch's files is known to it.

foreign_program.py --steps 10 --output FOLDER --do "train"
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

NAMES = ("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", "opacity")
PROPERTIES = (*NAMES, *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4)))


def write_ply(path: Path, num: int = 10, *, cut: int = 0, value: float = 0.5, also: tuple[str, ...] = ()) -> None:
    """Write a splat as the first implementation does: with normals, without a word on the step."""
    names = (*PROPERTIES, *also)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {num}"]
    header = "\n".join([*lines, *(f"property float {name}" for name in names), "end_header\n"])
    path.parent.mkdir(parents=True, exist_ok=True)
    data = header.encode() + np.full((num, len(names)), value, dtype="<f4").tobytes()
    path.write_bytes(data[: len(data) - cut])


def write_points(path: Path) -> None:
    """Write what the program starts from, as many of them do: a PLY, but no splat."""
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 1", "property float x", "end_header\n"]
    path.write_bytes("\n".join(lines).encode() + bytes(4))


def train(output: Path, steps: int) -> None:
    for step in range(1, steps + 1):
        print(f"step {step}/{steps} loss {1 / step:.4f} gaussians {step * 1000:,}", flush=True)
    print("PSNR 21.5", flush=True)
    write_ply(output / f"point_cloud_{steps}.ply")


def stay_up(*, talking: bool) -> None:
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
    if verb == "points-first":
        write_points(options.output / "input.ply")
        time.sleep(float(rest))
    if verb in ("train", "train-then-die", "linger", "chatter", "ask", "points-first"):
        train(options.output, options.steps)
    match verb:
        case "exit":
            code, _, words = rest.partition(" ")
            print(words, file=sys.stderr, flush=True)
            return int(code)
        case "die" | "train-then-die":
            os.kill(os.getpid(), getattr(signal, rest))
        case "hang" | "linger" | "chatter":
            stay_up(talking=verb == "chatter")
        case "spoil" if rest != "nothing":
            early = options.steps - 1 if rest == "early" else options.steps
            value = float("nan") if rest == "nan" else 0.5
            write_ply(options.output / f"point_cloud_{early}.ply", cut=int(rest == "cut"), value=value)
        case "ask":
            input("Overwrite? [y/n] ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
