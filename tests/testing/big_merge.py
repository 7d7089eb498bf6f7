"""Merges many Gaussians in a process of its own, and says what that took: `big_merge.py FOLDER MILLIONS DEGREE`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from memory import peak_bytes
from tiled import partition_of_boxes, tiles

from splatbatch.hashing import sha256_of
from splatbatch.splats.merge import MergePart, MergeSource, inside, merge_splats
from splatbatch.splats.ply import names_at

NUM_PATCHES = 10
OVERLAP = 0.15
AT_ONCE = 1 << 16
NONE = (0.0, 0.0, 0.0)


def write_patch(path: Path, num: int, degree: int, left: float) -> None:
    """Write Gaussians between `left` and one further, and some beyond, by the overlap on each side."""
    names = names_at(degree)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {num}", *(f"property float {n}" for n in names)]
    rng = np.random.default_rng(int(left) + 100)
    block = rng.random((min(num, AT_ONCE), len(names)), dtype=np.float32)
    with path.open("wb") as file:
        file.write("\n".join([*lines, "end_header\n"]).encode())
        for start in range(0, num, AT_ONCE):
            rows = block[: min(AT_ONCE, num - start)]
            rows[:, 0] = left - OVERLAP + (1 + 2 * OVERLAP) * rng.random(len(rows), dtype=np.float32)
            file.write(rows.data)


def main(folder: Path, millions: float, degree: int) -> None:
    num = int(millions * 1e6 * (1 + 2 * OVERLAP) / NUM_PATCHES)
    partition = partition_of_boxes(folder, tiles([(i, 0, float(i + 1)) for i in range(NUM_PATCHES - 1)]))
    parts = []
    for i, core in enumerate(partition.cores):
        path = folder / f"{core.name}.ply"
        if not path.exists():
            write_patch(path, num, degree, float(i))
        source = MergeSource(path, core.name, sha256_of(path))
        parts.append(MergePart(source, inside(partition, NONE, core.core), core.name))
    before, began, used = peak_bytes(), time.monotonic(), time.process_time()
    merged = merge_splats(folder / "scene.ply", parts, NONE)
    wall, cpu = time.monotonic() - began, time.process_time() - used
    largest = max(part.source.path.stat().st_size for part in parts)
    facts = {"num": merged.num_gaussians, "bytes": (folder / "scene.ply").stat().st_size, "largest": largest}
    print(json.dumps({**facts, "wall_s": wall, "cpu_s": cpu, "peak": peak_bytes(), "more": peak_bytes() - before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
