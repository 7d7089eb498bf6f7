"""The quarry with a partition beside its patches: its two cores meet in the middle of its longer side.

Its splat is made of the sparse points, as a training begins: nothing has to be trained to look at it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from splatbatch.config import Training
from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.output.results import splat_facts
from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import read_sightings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.holdout import every_nth_frame
from splatbatch.scene.moments import frames_of
from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.partition.files import PARTITION
from splatbatch.scene.partition.record import Core, Partition, write_partition
from splatbatch.splats.ply import Gaussians, offset_comments, write_splat
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import SH_C0, as_parameters, export, init_from_points

QUARRY = Path(__file__).parents[2] / "examples/quarry"
AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
OVERLAP = 0.25
"""Of the width of a core."""


def cut_quarry(folder: Path, offset: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Partition:
    """Copy the quarry into a folder and write its partition; photographs are linked."""
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("images", "output"))
    (folder / "images").symlink_to(QUARRY / "images")
    model = read_reconstruction(folder / "sparse/0")
    low, high = np.percentile(model.points.xyz, (1, 99), axis=0)
    axis = int((high - low).argmax())
    around = Box(tuple(low.tolist()), tuple(high.tolist()))
    cores = EVERYWHERE.cut(axis, float(np.median(model.points.xyz[:, axis])))
    step = [0.0, 0.0, 0.0]
    step[axis] = OVERLAP * float(high[axis] - low[axis]) / 2
    partition = Partition(
        path=folder / "patches" / PARTITION,
        source=folder / "sparse/0",
        axes=AXES,
        offset=offset,
        test=every_nth_frame(frames_of(model.images), 8),
        contiguous=frozenset(),
        cores=tuple(
            Core(f"p{i}", core, core.with_overlap(tuple(step)), core.clipped(around)) for i, core in enumerate(cores)
        ),
        overlap=OVERLAP,
    )
    write_partition(partition)
    return partition


def thinned_quarry(folder: Path, every: int) -> Path:
    """Copy the quarry; of p1 keep each n-th photograph."""
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("output"))
    sparse = folder / "patches/p1/sparse/0"
    known = read_sightings(sparse)
    kept = np.arange(len(known.images)) % every == 0
    for file in sparse.iterdir():
        file.unlink()
    Subset(known, kept, known.seen_by(kept)).write(sparse)
    return folder


def quarry_splat() -> Gaussians:
    """Return the quarry as its sparse points show it."""
    points = read_reconstruction(QUARRY / "sparse/0").points
    frame = LocalFrame(np.zeros(3), scale=1.0, scene_scale=1.0)
    values = init_from_points(points, frame, Training(sh_degree=1, init_opacity=0.9, init_scale=1.5))
    return export(as_parameters(values, torch.device("cpu")), frame)


def part(gaussians: Gaussians, kept: np.ndarray) -> Gaussians:
    return Gaussians(**{name: values[kept] for name, values in vars(gaussians).items()})


def tinted(gaussians: Gaussians, by_255: tuple[float, float, float]) -> Gaussians:
    """Return Gaussians that are so much brighter, in R, G and B."""
    return dataclasses.replace(gaussians, sh0=gaussians.sh0 + np.float32(np.array(by_255) / 255 / SH_C0))


def stretched(gaussians: Gaussians, about: tuple[float, ...], by: float) -> Gaussians:
    """Return Gaussians so many times as far from a place, from which they look the same."""
    means = (gaussians.means.astype(np.float64) - about) * by + about
    return dataclasses.replace(
        gaussians, means=means.astype(np.float32), scales=gaussians.scales + np.float32(np.log(by))
    )


def accept(
    output: Path, name: str, gaussians: Gaussians, psnrs: Mapping[str, float] | None = None, **more: object
) -> Path:
    """Leave a splat as a night does that has trained it; its own figures as given."""
    folder = OutputFolder(output).patch(name)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_splat(folder.splat, gaussians, 1)
    images = {photo: {"psnr": psnr, "ssim": 0.5} for photo, psnr in (psnrs or {}).items()}
    facts = splat_facts(folder.splat, len(gaussians)).to_record()
    write_json(
        folder.result, {"attempt": "attempt-01", "splat": facts, "metrics": {"final": {"images": images}}, **more}
    )
    return folder.splat


def lay_out(folder: Path, gaussians: Gaussians | None = None) -> Partition:
    """Cut the quarry, and leave both patches trained and merged."""
    partition, whole = cut_quarry(folder), gaussians or quarry_splat()
    output = OutputFolder(folder / "output")
    for core in partition.cores:
        kept = core.grown.holds(partition.in_axes(whole.means.astype(np.float64)))
        accept(output.path, core.name, part(whole, kept), dict.fromkeys(partition.test, 20.0))
    output.scene.path.mkdir(parents=True)
    write_splat(output.scene.splat, whole, 1, comments=offset_comments(partition.offset))
    return partition


def trained_p0(folder: Path) -> Path:
    """Let p0 of a copy of the quarry be trained, on the CPU at a quarter of its size; return the config."""
    config = folder / "splat_config.yml"
    config.write_text(config.read_text().replace("training:\n", "training:\n  device: cpu\n  resolution: 1/4\n", 1))
    accept(folder / "output", "p0", quarry_splat())
    (task,) = open_batch(config, ["p0"]).tasks
    result = OutputFolder(folder / "output").patch("p0").result
    write_json(result, {**json.loads(result.read_text()), **fingerprint(task.patch, task.recipe).to_record()})
    return config
