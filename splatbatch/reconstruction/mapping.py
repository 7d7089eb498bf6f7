"""The cameras placed, from all features and matches; a mapping that was cut off goes on from its snapshot."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.reconstruction.matching import copy_features, readable
from splatbatch.reconstruction.stage import DATABASE, StageAttempt

if TYPE_CHECKING:
    import pycolmap

NO_START = "no initial pair: no two photographs fit together well enough to begin with"
NO_MATCH = "no pair at all: no two photographs have matches that fit together"
"""signatures.toml knows all three."""
NO_MOTION = "no initial pair: the camera has hardly moved between the photographs"
LEAST = 3
"""Photographs of a component."""
SNAPSHOTS = 8
"""Of a component, while it grows: a process that is killed costs an eighth of it."""
SEALED = "sealed"
STILL = 0.01
"""Of the longer side: what moves less between two photographs has not been seen from two places."""
RELAXED: tuple[dict[str, float], ...] = (
    {},
    {"init_min_num_inliers": 50, "init_min_tri_angle": 8.0},
    {"init_min_num_inliers": 25, "init_min_tri_angle": 3.0},
)
"""What an initial pair must have, rung by rung; COLMAP's defaults are 100 matches and 16 degrees."""


def make(work: StageAttempt) -> dict[str, Any]:
    """Place the cameras; return how many components there are, and how large each is."""
    relaxed = int(work.told.changes.get("relaxed", 0))
    with work.scratch() as scratch:
        database = merged(work, scratch)
        work.linked(scratch)
        if not any(made.facts.get("verified") for _, made in work.made("matching")):
            raise SceneError(NO_MATCH, "Do they show one place, and overlap by half? Name --pairs all for few of them.")
        is_global = work.plan.mapper == "global"
        models = (
            _globally(work, database, scratch) if is_global else ComponentGrowth(work, database, scratch, relaxed).all()
        )
        if not models:
            if hardly_moved(work, database):
                raise SceneError(NO_MOTION, "Take photographs from places well apart: step sideways between two.")
            raise SceneError(NO_START, "Take more photographs that overlap, or name a camera model with --camera.")
        models.sort(key=lambda one: -one.num_reg_images())
        work.product.mkdir()
        for number, one in enumerate(models):
            place = work.product / str(number)
            place.mkdir()
            one.write(place)
    return {"components": [one.num_reg_images() for one in models], "relaxed": relaxed}


def merged(work: StageAttempt, scratch: Path) -> Path:
    """Return a database of all photographs with keypoints and two-view geometries."""
    import pycolmap

    path = scratch / DATABASE
    copy_features(work, path, list(range(len(work.plan.photographs))), with_descriptors=False)
    with pycolmap.Database.open(path) as database, pycolmap.DatabaseTransaction(database):
        for name, _ in work.made("matching"):
            with readable(work.of(name) / DATABASE, scratch) as source:
                for pair_id, found in zip(*source.read_two_view_geometries(), strict=True):
                    database.write_two_view_geometry(*pycolmap.pair_id_to_image_pair(pair_id), found)
    return path


def hardly_moved(work: StageAttempt, database: Path) -> bool:
    """Return whether what two photographs share lies at the same place in both, in most pairs that fit together."""
    import pycolmap

    shifts = list[float]()
    with pycolmap.Database.open(database) as read:
        for pair_id, found in zip(*read.read_two_view_geometries(), strict=True):
            if not len(found.inlier_matches):
                continue
            places = pycolmap.pair_id_to_image_pair(pair_id)
            one, other = (read.read_keypoints(place)[:, :2] for place in places)
            a, b = found.inlier_matches.T
            camera = work.plan.cameras[work.plan.photographs[places[0] - 1].camera - 1]
            away = np.linalg.norm(one[a] - other[b], axis=1)
            shifts.append(float(np.median(away)) / max(camera.width, camera.height))
    return bool(shifts) and float(np.median(shifts)) < STILL


@dataclass(frozen=True)
class ComponentGrowth:
    """Components that grow photograph by photograph, and the snapshots that another attempt goes on from."""

    work: StageAttempt
    database: Path
    scratch: Path
    relaxed: int
    """Which of `RELAXED`."""

    @cached_property
    def snapshots(self) -> Path:
        """Where they lie: beside the attempts, since each costs its work to the attempts that follow."""
        return self.work.folder.path.parent / f"snapshots-{self.work.told.inputs[:16]}-{self.relaxed}"

    def all(self) -> list[pycolmap.Reconstruction]:
        """Grow all; where an attempt was cut off, first the largest from its last snapshot, then the others."""
        import pycolmap

        self.snapshots.mkdir(exist_ok=True)
        sealed = {one.parent for one in self.snapshots.glob(f"*/{SEALED}")}
        for one in self.snapshots.iterdir():
            if one not in sealed:
                shutil.rmtree(one)  # cut off while it was written
        names = self.work.plan.numbers
        sizes = {one: pycolmap.Reconstruction(one).num_reg_images() for one in sorted(sealed)}
        if not sizes:
            return apart(self.grow(names))
        found = self.grow(names, max(sizes, key=lambda one: sizes[one]))
        rest = sorted(set(names).difference(*map(names_in, found)))
        return apart([*found, *(self.grow(rest) if len(rest) >= LEAST else ())])

    def grow(self, names: list[str], start: Path | str = "") -> list[pycolmap.Reconstruction]:
        """Return the components of some photographs, of one of which there is a beginning."""
        import pycolmap

        out = self.scratch / "growing"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        of = len(self.work.plan.photographs)
        num = pycolmap.Reconstruction(start).num_reg_images() if start else of - len(names)

        def another() -> None:
            nonlocal num
            num += 1
            for one in self.snapshots.iterdir():
                (one / SEALED).touch()  # it is whole: the mapper goes on
            self.work.tell("mapping", min(num, of), of)

        found = pycolmap.incremental_mapping(
            self.database,
            self.scratch / "images",
            out,
            self.options(names),
            input_path=start,
            next_image_callback=another,
        )
        return [*found.values()]

    def options(self, names: list[str]) -> pycolmap.IncrementalPipelineOptions:
        """Return how some photographs are mapped; what a rung has relaxed is the beginning alone."""
        import pycolmap

        options, plan = pycolmap.IncrementalPipelineOptions(), self.work.plan
        options.num_threads = options.mapper.num_threads = self.work.threads
        options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = plan.wanted.seed
        options.image_names = names
        options.min_model_size = min(10, max(LEAST, len(names) // 2))
        options.snapshot_path = self.snapshots
        options.snapshot_frames_freq = max(10, len(plan.photographs) // SNAPSHOTS)
        for name, value in RELAXED[min(self.relaxed, len(RELAXED) - 1)].items():
            setattr(options.mapper, name, value)
        return options


def names_in(model: pycolmap.Reconstruction) -> set[str]:
    """Return the photographs that are registered."""
    return {model.image(one).name for one in model.reg_image_ids()}


def apart(models: Iterable[pycolmap.Reconstruction]) -> list[pycolmap.Reconstruction]:
    """Return the models, largest first, that have photographs of their own: those of COLMAP overlap."""
    kept, seen = [], set[str]()
    for one in sorted(models, key=lambda one: -one.num_reg_images()):
        if len(names_in(one) - seen) >= LEAST:
            kept.append(one)
            seen |= names_in(one)
    return kept


def _globally(work: StageAttempt, database: Path, scratch: Path) -> list[pycolmap.Reconstruction]:
    import pycolmap

    options, out = pycolmap.GlobalPipelineOptions(), scratch / "global"
    out.mkdir()
    options.num_threads = options.mapper.num_threads = work.threads
    options.random_seed = options.mapper.random_seed = work.plan.wanted.seed
    work.tell("mapping", 0, len(work.plan.photographs))
    return [*pycolmap.global_mapping(database, scratch / "images", out, options).values()]
