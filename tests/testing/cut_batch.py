"""A batch whose patches were cut from one scene: four quarters, and a trainer that leaves the same splat for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from fake_batch import FakeBatch, write_model
from far_away import move
from tiled import CONTENT, partition_of_boxes, random_splat, tiles

from splatbatch.hashing import sha256_of
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition, read_partition, write_partition
from splatbatch.splats import Gaussians, write_splat

NAMES = [f"img{i}.png" for i in range(9)]
TEST = frozenset({"img0.png", "img8.png"})
REACH = 110 + 0.25 * 220
"""How far the content of `tiled` reaches, and a quarter of its widest side more: see `scene.partition.border`."""
QUARTERS = [(0, 0, 0.0), (0, 1, 0.0), (2, 1, 0.0)]


def cut(batch: FakeBatch, where: list[tuple[int, int, float]] = QUARTERS, **changes: Any) -> Partition:
    """Write the partition of the patches p0, p1, …, and the scene that they were cut from."""
    write_model(batch.folder / "sparse" / "0", NAMES)
    offset = changes.get("offset", (0.0, 0.0, 0.0))
    cuts = [(which, axis, at + offset[axis]) for which, axis, at in where]
    content = Box(*(tuple(np.add(side, offset).tolist()) for side in (CONTENT.lower, CONTENT.upper)))
    made = partition_of_boxes(batch.folder / "patches", tiles(cuts), content=content)
    facts = {"source": batch.folder / "sparse/0", "test": TEST, "train": frozenset(NAMES) - TEST}
    partition = Partition(**{**vars(made), **facts, **changes})
    write_partition(partition)
    if any(offset):
        for sparse in (batch.folder / "sparse/0", *(batch.folder / "patches").glob("*/sparse/0")):
            move(sparse, offset)
    return partition


def trained(folder: Path, **changes: Any) -> FakeBatch:
    """Return a batch of four patches, trained, each with a splat of its own that covers the whole scene."""
    batch = FakeBatch(folder).make("p0", "p1", "p2", "p3")
    cut(batch, **changes)
    assert batch.run("train").returncode == 0
    for i in range(4):
        put(batch, f"p{i}", seed=i)
    put_backdrop(batch)
    return batch


def put_backdrop(batch: FakeBatch, splat: Gaussians | None = None) -> None:
    """Make a splat, else one that reaches beyond all patches, the backdrop that they were trained against."""
    place = batch.output / "patches/backdrop"
    place.joinpath("splat.ply").unlink()
    write_splat(place / "splat.ply", splat or backdrop(), 20)
    accept(place)
    for i in range(4):
        accept(batch.output / f"patches/p{i}", backdrop=sha256_of(place / "splat.ply"))


def backdrop() -> Gaussians:
    splat = random_splat(500, 1, seed=7)
    return Gaussians(**{**vars(splat), "means": splat.means * 60})


def expected_backdrop(*missing: str) -> np.ndarray:
    """Return which of the backdrop's means show: beyond what the quarters reach, and in those that are missing."""
    means = backdrop().means
    shown = ~((means >= -REACH) & (means < REACH)).all(axis=1)
    for patch in missing:
        shown |= ((means[:, 0] < 0) == (patch in ("p0", "p1"))) & ((means[:, 1] < 0) == (patch in ("p0", "p2")))
    return means[shown]


def put(batch: FakeBatch, patch: str, seed: int, degree: int = 1) -> None:
    """Make another splat the accepted one of a patch, as a training would that ended now."""
    place = batch.output / "patches" / patch
    place.joinpath("splat.ply").unlink()
    write_splat(place / "splat.ply", random_splat(400, degree, seed), 20)
    accept(place)


def accept(place: Path, **changes: object) -> None:
    """Write down that the splat of a patch is the accepted one."""
    from splatbatch.output.results import splat_facts

    result = json.loads((place / "result.json").read_text())
    facts = splat_facts(place / "splat.ply", 400).to_record()
    (place / "result.json").write_text(json.dumps({**result, "splat": facts, **changes}))


def copy_of(batch: FakeBatch, folder: Path) -> FakeBatch:
    """Return a copy of a batch, with which a test may do what it likes."""
    copied = batch.copied(folder)
    partition = read_partition(copied.folder / "patches/partition.json")
    assert partition.source == copied.folder / "sparse/0"
    return copied


def expected(batch: FakeBatch, *patches: str) -> int:
    """Return how many Gaussians a merge of patches has: each has what lies in its quarter."""
    num = 0
    for patch in patches:
        means = random_splat(400, 1, int(patch[1])).means
        left, below = means[:, 0] < 0, means[:, 1] < 0
        num += int(np.count_nonzero((left == (patch in ("p0", "p1"))) & (below == (patch in ("p0", "p2")))))
    return num
