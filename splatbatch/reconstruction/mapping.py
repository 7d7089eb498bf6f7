"""The stage "mapping": computes camera poses from all matches; an interrupted mapping resumes from its snapshot."""

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
NO_MOTION = "no initial pair: the camera has hardly moved between the photographs"
"""Message of the error if the photographs show too little motion.

NO_START, NO_MATCH and NO_MOTION are matched by the file signatures.toml, which names the cause of a failure.
"""
LEAST = 3
"""Fewest photographs that a component, a group of photographs that were mapped together, adds to larger ones.

COLMAP is asked to keep components from half of the photographs or 10 on, whichever is less, and never fewer.
"""
SNAPSHOTS = 8
"""About the number of snapshots of a model, at least 10 photographs apart; a kill costs about an eighth of the work."""
SEALED = "sealed"
"""Name of the file in a snapshot's folder that marks the snapshot as complete."""
STILL = 0.01
"""Median move of matches between two photographs, as a share of the longer side, below which they count as still."""
RELAXED: tuple[dict[str, float], ...] = (
    {},
    {"init_min_num_inliers": 50, "init_min_tri_angle": 8.0},
    {"init_min_num_inliers": 25, "init_min_tri_angle": 3.0},
)
"""COLMAP's conditions for the initial pair of photographs, for the first attempt and each rung after it, ever weaker.

The first attempt has COLMAP's defaults: 100 matches and 16 degrees between the views.
"""


def make(work: StageAttempt) -> dict[str, Any]:
    """Compute the poses of the photographs and write the resulting models to the folder of the product.

    Each component, a group of photographs that were mapped together, becomes a folder: 0 for the largest, then 1, 2, …

    Returns:
        For metrics.json: "components", the number of photographs in each, and "relaxed", the index into RELAXED.

    Raises:
        SceneError: no photographs match, the camera has hardly moved, no initial pair is found, or the plan cannot be
            read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of an earlier stage cannot be read, or a file cannot be written.
    """
    relaxed = int(work.told.changes.get("relaxed", 0))
    with work.scratch() as scratch:
        database = merged(work, scratch)
        work.linked(scratch)
        if not any(made.facts.get("verified") for _, made in work.made("matching")):
            raise SceneError(
                NO_MATCH,
                "Check that the photographs show one place and overlap by half. If they are few, add --pairs all.",
            )
        is_global = work.plan.mapper == "global"
        models = (
            _globally(work, database, scratch) if is_global else ComponentGrowth(work, database, scratch, relaxed).all()
        )
        if not models:
            if hardly_moved(work, database):
                raise SceneError(
                    NO_MOTION, "Take the photographs from places well apart: step sideways between two of them."
                )
            raise SceneError(NO_START, "Take more photographs that overlap, or name a camera model with --camera.")
        models.sort(key=lambda one: -one.num_reg_images())
        work.product.mkdir()
        for number, one in enumerate(models):
            place = work.product / str(number)
            place.mkdir()
            one.write(place)
    return {"components": [one.num_reg_images() for one in models], "relaxed": relaxed}


def merged(work: StageAttempt, scratch: Path) -> Path:
    """Write one COLMAP database of all photographs, with keypoints and two-view geometries; return its path.

    Args:
        work: the attempt, for the products of the stages "features" and "matching".
        scratch: existing folder on a local disk that the database is written to.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: the product of an earlier stage cannot be read.
    """
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
    """Return whether the camera has hardly moved: the matches of most pairs move less than STILL of the longer side.

    Used for the message of a mapping that finds no start. False if no pair has verified matches.

    Args:
        work: the attempt, for the sizes of photographs.
        database: path of the database that `merged` wrote.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan.
    """
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
    """Incremental mapping by COLMAP, with snapshots from which a later attempt resumes.

    `database` is that of `merged`; `scratch` has a folder "images" with links to the photographs.
    """

    work: StageAttempt
    database: Path
    scratch: Path
    relaxed: int
    """Index into RELAXED of the conditions for the initial pair; beyond its end the last ones hold."""

    @cached_property
    def snapshots(self) -> Path:
        """Return the folder of the snapshots, beside the attempts' folders, so that later attempts find it.

        The folder may be absent. Other inputs or other conditions for the initial pair have another folder.
        """
        return self.work.folder.path.parent / f"snapshots-{self.work.told.inputs[:16]}-{self.relaxed}"

    def all(self) -> list[pycolmap.Reconstruction]:
        """Map all photographs; return the model of each component, largest first, empty if no initial pair is found.

        Models that add fewer than LEAST photographs to larger ones are left out.

        If an earlier attempt left complete snapshots, mapping resumes from the largest one. It then maps the remaining
        photographs, too, if there are at least LEAST. Incomplete snapshots are deleted.

        Raises:
            SceneError: the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan.
            OSError: a folder cannot be created or deleted, or progress or the mark of a snapshot cannot be written.
        """
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
        """Map photographs; return the model of each component, in no order, empty if no initial pair is found.

        Args:
            names: photographs to map, named as in `ReconstructionPlan.numbers`.
            start: folder of the snapshot to resume from; empty: mapping starts anew.

        Raises:
            SceneError: the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan.
            OSError: a folder cannot be created, or progress or the mark of a snapshot cannot be written.
        """
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
                (one / SEALED).touch()  # it is complete, since the mapper has continued
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
        """Return COLMAP's options for mapping photographs, with the conditions for the initial pair from RELAXED.

        Args:
            names: photographs to map, named as in `ReconstructionPlan.numbers`.

        Raises:
            SceneError: the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan.
        """
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
    """Return the names of a model's registered photographs; empty if there are none."""
    return {model.image(one).name for one in model.reg_image_ids()}


def apart(models: Iterable[pycolmap.Reconstruction]) -> list[pycolmap.Reconstruction]:
    """Return models, largest first, without those that add fewer than LEAST photographs to the larger ones.

    COLMAP's models may share photographs.
    """
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
