"""The quarry cut in two, trained by the scripted trainer, with splats made of its sparse points, and merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from command_line import invoke
from cut_batch import accept
from cut_quarry import QUARRY, cut_quarry, part, quarry_splat
from fake_batch import FakeBatch
from far_away import move

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.hashing import sha256_of
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition, write_partition
from splatbatch.splats import Gaussians, offset_comments, write_splat


def quarry(folder: Path, offset: Offset = NO_OFFSET, **sections: dict[str, object]) -> FakeBatch:
    """Return the quarry as a batch whose patches are trained, and merged."""
    partition = moved(cut_quarry(folder), offset)
    settings = yaml.safe_load((QUARRY / "splat_config.yml").read_text())
    batch = FakeBatch(folder, settings)
    batch.change(training={"device": "cpu", "resolution": "1/4", "max_steps": 20}, output={"previews_mib": 0})
    batch.change(**sections)
    batch.script()
    ended = batch.run("train")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    whole = coloured_by_direction(quarry_splat())
    for core in partition.cores:
        places = partition.in_axes(whole.means.astype(np.float64), offset)
        put(batch, core.name, part(whole, core.grown.holds(places)), offset)
    put_backdrop(batch, part(whole, slice(0, None, 50)), offset)
    merged = invoke("merge", batch=batch)
    assert merged.code == 0, merged.err
    return batch


def coloured_by_direction(gaussians: Gaussians) -> Gaussians:
    """Return Gaussians whose colours depend on where one stands."""
    directions = np.zeros_like(gaussians.shN)
    directions[:, 0, 1], directions[:, 1, 2], directions[:, 2, 0] = 0.3, 0.2, -0.4  # y green, z blue, x red
    return replace(gaussians, shN=directions)


def moved(partition: Partition, by: Offset) -> Partition:
    """Move a cut scene, its models and its partition; the offset takes that off again."""
    if not any(by):
        return partition
    home = partition.path.parent
    for sparse in (partition.source, *(path for path in home.glob("*/sparse/0"))):
        move(sparse, by)
    cores = tuple(
        replace(core, core=shifted(core.core, by), grown=shifted(core.grown, by), bounds=shifted(core.bounds, by))
        for core in partition.cores
    )
    there = replace(partition, cores=cores, offset=by)
    write_partition(there)
    return there


def shifted(box: Box, by: Offset) -> Box:
    return Box(*(tuple(np.add(side, by).tolist()) for side in (box.lower, box.upper)))


def put(batch: FakeBatch, patch: str, gaussians: Gaussians, offset: Offset = NO_OFFSET) -> None:
    """Make a splat the accepted one of a patch, as a training would that ended now."""
    place = batch.output / "patches" / patch
    place.joinpath("splat.ply").unlink()
    write_splat(place / "splat.ply", gaussians, 20, comments=offset_comments(offset))
    accept(place)


def put_backdrop(batch: FakeBatch, gaussians: Gaussians, offset: Offset) -> None:
    """Make a splat the backdrop that the patches were trained against."""
    put(batch, "backdrop", gaussians, offset)
    for place in (batch.output / "patches").glob("p*"):
        accept(place, backdrop=sha256_of(batch.output / "patches/backdrop/splat.ply"))
