"""A splat as wide as a town, of any size, and a camera that sees one corner of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from memory import peak_bytes

from splatbatch.files import write_whole
from splatbatch.splats.blocks import index_blocks
from splatbatch.splats.ply import property_names
from splatbatch.training.frame import LocalFrame
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.scene.block_cache import BlockCache

WIDTH = 1000.0
CHUNK = 1 << 18


def write_town(path: Path, num: int, num_rest: int = 0, seed: int = 0) -> None:
    """Write so many Gaussians on the ground, in no order at all, a few at a time."""
    generator, names = np.random.default_rng(seed), property_names(num_rest)
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {num}"]
    header += [*(f"property float {name}" for name in names), "end_header\n"]

    def write(file: BinaryIO) -> None:
        file.write("\n".join(header).encode())
        for start in range(0, num, CHUNK):
            rows = np.zeros((min(CHUNK, num - start), len(names)), dtype="<f4")
            rows[:, :2] = generator.uniform(-WIDTH / 2, WIDTH / 2, (len(rows), 2))
            rows[:, 3:6] = generator.uniform(-1, 1, (len(rows), 3))
            rows[:, names.index("opacity")] = 2.0
            rows[:, [names.index(f"scale_{axis}") for axis in range(3)]] = np.log(0.4 * WIDTH / num**0.5)
            rows[:, names.index("rot_0")] = 1.0
            file.write(rows.data)

    write_whole(path, write)


def above(x: float, y: float, height: float) -> tuple[LocalFrame, RenderCamera]:
    """Look straight down."""
    viewmat = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0]))
    K = torch.tensor([[64.0, 0, 32], [0, 64.0, 24], [0, 0, 1]])
    return LocalFrame(np.array([x, y, height]), scale=10.0), RenderCamera(viewmat, K, 64, 48)


def main(path: Path, most: int) -> None:
    """Say what it takes to look at two corners: memory in MiB, and how many Gaussians were read."""
    _look(
        BlockCache(index_blocks(path.with_name("little.ply")), torch.device("cpu"), 1000), 0.0
    )  # what torch itself takes
    before = peak_bytes() / (1 << 20)
    store = BlockCache(index_blocks(path), torch.device("cpu"), most)
    num_seen = [_look(store, x) for x in (-400.0, 400.0)]
    print(f"{peak_bytes() / (1 << 20) - before:.0f} {store.num_loaded} {max(num_seen)}")


def _look(store: BlockCache, x: float) -> int:
    """Draw what is seen from above a place; return how many Gaussians that are."""
    frame, view = above(x, 300.0, 60.0)
    gaussians = store.seen_from(frame, view)
    picture = rasterize(gaussians, view, RasterOptions(sh_degree=store.blocks.header.sh_degree)).colors
    assert float((picture > 0).float().mean()) > 0.5
    return len(gaussians["means"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
