"""A split: what each patch is to hold, which patches stay as they are, and all of it written at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.files import ModelError, shown
from splatbatch.scene.colmap.rigs import Rigs, read_rigs
from splatbatch.scene.colmap.sightings import Sightings
from splatbatch.scene.colmap.types import CAMERA_MODELS
from splatbatch.scene.partition.cuts import evenness
from splatbatch.scene.partition.folder import (
    PICTURES,
    Content,
    check_out,
    content_of,
    find_shared,
    find_source,
    finish,
    missing_photographs,
    prepared,
)
from splatbatch.scene.partition.options import Wish
from splatbatch.scene.partition.picture import draw
from splatbatch.scene.partition.place import PARTITION
from splatbatch.scene.partition.plan import Plan, plan_split
from splatbatch.scene.partition.record import Core, write_partition
from splatbatch.scene.patches import natural_key, spell

WRITERS = 2
"""Patches written at once: more would hold more in memory and gain nothing on two cores."""
State = Literal["new", "stays", "changes"]


@dataclass(frozen=True)
class Asked:
    """What is cut, and where the patches go."""

    source: Path
    images: Path | None
    out: Path
    wish: Wish
    trained: frozenset[str] = frozenset()
    """Patches of an earlier split that have a splat: a cut without one of them is refused."""


@dataclass(frozen=True, eq=False)
class Split:
    """A plan with the files that it comes to."""

    plan: Plan
    states: dict[str, State]
    """By the name of the patch: whether it is new, or changes an earlier one."""
    gone: tuple[str, ...]
    """Patches of the earlier split that are no more."""
    notes: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        partition, parts = self.plan.partition, self.plan.parts
        distinct = len(self.plan.sightings.images)
        return {
            "partition": str(partition.path),
            "source": str(partition.source),
            "num_photographs": distinct,
            "num_test": len(partition.test),
            "num_contiguous": len(partition.contiguous),
            "offset": list(partition.offset),
            "evenness": round(evenness([part.cost for part in parts.values()]), 3),
            "patches": [self._row(core) for core in partition.cores],
            "gone": list(self.gone),
            "notes": list(self.notes),
        }

    def _row(self, core: Core) -> dict[str, Any]:
        row = {"name": core.name, "state": self.states[core.name], "num_images": core.num_images}
        row["num_test"] = sum(name in self.plan.partition.test for name in self.photographs(core.name))
        row |= {"num_points": core.num_points, "num_core_points": core.num_core_points, "cost": core.cost}
        return row | {"bounds": {"lower": list(core.bounds.lower), "upper": list(core.bounds.upper)}}

    def photographs(self, patch: str) -> tuple[str, ...]:
        """Return the names of a patch's photographs, sorted."""
        images, chosen = self.plan.sightings.images, self.plan.parts[patch].photos
        return tuple(images[index].name for index in np.flatnonzero(chosen))


def split(asked: Asked, *, dry_run: bool = False) -> Split:
    """Cut a scene into patches; write nothing if only asked how it would be.

    Raises:
        ConfigError: the wish cannot be met; the nearest that can is named.
        SceneError: the source cannot be read, or something else lies where the patches should go.
        OSError: a file cannot be written.
    """
    check_out(asked.out)
    if not dry_run:
        finish(asked.out)
    source = find_source(asked.source)
    shared = find_shared(source, asked.images)
    plan = plan_split(source, asked.out, asked.wish)
    if not dry_run:
        _see_none_lost(asked, plan)
    _check_cameras(plan.sightings)
    rigs, why_not = _rigs(plan.sightings)
    notes = tuple(filter(None, (*plan.notes, why_not, missing_photographs(shared, plan.sightings))))
    subsets = {name: Subset(plan.sightings, part.photos, part.points, rigs) for name, part in plan.parts.items()}
    contents = {name: content_of(plan.partition, name, one, shared) for name, one in subsets.items()}
    if dry_run:
        return _described(plan, {name: _state(plan, name, content) for name, content in contents.items()}, notes)
    return _written(plan, contents, notes)


def _see_none_lost(asked: Asked, plan: Plan) -> None:
    """See that no patch is lost that is trained.

    Raises:
        SceneError: some would be.
    """
    if lost := sorted(asked.trained - {core.name for core in plan.partition.cores}, key=natural_key):
        message = f"--out {asked.out}: {spell(lost, 5)}: trained, and no patch of the new cut"
        hint = "`splatbatch split --drop` removes it all the same; or cut into a new folder, with another --out."
        raise SceneError(message, hint)


def _written(plan: Plan, contents: dict[str, Content], notes: tuple[str, ...]) -> Split:
    out = plan.partition.path.parent

    def put(core: Core) -> tuple[Core, State]:
        content, state = contents[core.name], _state(plan, core.name, contents[core.name])
        cut_from = _cut_from(plan, core.name) if state == "stays" else content.write(aside / core.name)
        return replace(core, cut_from=cut_from or ""), state

    # hashing and writing leave the other core free
    with prepared(out) as aside, ThreadPoolExecutor(WRITERS) as pool:
        done = list(pool.map(put, plan.partition.cores))
        cores, states = [core for core, _ in done], {core.name: state for core, state in done}
        partition = replace(plan.partition, cores=tuple(cores))
        found = _described(replace(plan, partition=partition), states, notes)
        for name in PICTURES:
            draw(found.plan, aside / name)
        write_partition(replace(partition, path=aside / PARTITION), home=out)
    return found


def _described(plan: Plan, states: dict[str, State], notes: tuple[str, ...]) -> Split:
    known = {core.name for core in plan.before.cores} if plan.before else set()
    return Split(plan, states, tuple(sorted(known - states.keys())), notes)


def _state(plan: Plan, name: str, content: Content) -> State:
    before = _cut_from(plan, name)
    if before is None:
        return "new"
    is_same = content.hash() == before and content.is_in(plan.partition.path.parent / name, before)
    return "stays" if is_same else "changes"


def _cut_from(plan: Plan, name: str) -> str | None:
    core = plan.before.core(name) if plan.before else None
    return core.cut_from if core else None


def _check_cameras(sightings: Sightings) -> None:
    for camera in sightings.cameras.values():
        if camera.model not in CAMERA_MODELS:
            message = f"{sightings.folder}: camera {camera.id} is of the unknown camera model {shown(camera.model)}"
            raise SceneError(message, "Undistort the reconstruction to PINHOLE cameras: colmap image_undistorter.")


def _rigs(sightings: Sightings) -> tuple[Rigs | None, str]:
    """Return rigs and frames of the source; why there are none that can be used, in words."""
    try:
        rigs = read_rigs(sightings.folder)
    except ModelError as error:
        return None, f"{shown(error.message)}: the patches have no rigs and frames; COLMAP makes trivial ones"
    if rigs is None:
        return None, ""
    images = [(image.id, image.camera_id) for image in sightings.images]
    misfit = rigs.misfit(images, sightings.cameras)
    if misfit:
        return None, f"rigs and frames of the source: {misfit}: left out; COLMAP makes trivial ones"
    return rigs, ""
