"""What keeps a partition from being one, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatbatch.scene.partition.boxes import Box, box_between, first_meeting, tile

if TYPE_CHECKING:
    from splatbatch.scene.partition.record import Axes, Core, Partition


def mistake_in(partition: Partition) -> str:
    """Return what keeps a partition from being one, in words; empty if nothing does."""
    names = [core.name for core in partition.cores]
    boxes = [core.core for core in partition.cores]
    if wrong := not_a_frame(partition.axes):
        return f"axes: {wrong}"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"patches: {twice[0]}: two patches have this name"
    if wrong := next(filter(None, map(_misfit, partition.cores)), ""):
        return wrong
    if pair := first_meeting(boxes):
        return f"patches: the cores of {names[pair[0]]} and {names[pair[1]]} overlap: a place would belong to both"
    if not tile(boxes):
        return "patches: the cores leave space between them: a place there would belong to no patch"
    if both := sorted(partition.test & partition.train):
        return f"test: {both[0]}: is named under train too; a photograph is test everywhere or nowhere"
    return ""


def not_a_frame(axes: Axes) -> str:
    """Return what keeps three vectors from being axes, in words; empty if nothing does."""
    rows = np.array(axes)
    is_frame = np.allclose(rows @ rows.T, np.eye(3), atol=1e-6)
    return "" if is_frame else f"{rows.tolist()}: should be three unit vectors at right angles"


def _misfit(core: Core) -> str:
    """Return how the boxes of a patch do not fit each other; empty if they do."""
    if not core.core.within(core.grown):
        return f"patches: {core.name}: grown: {core.grown}: should hold the core, {core.core}"
    if not (core.bounds.is_finite() and core.bounds.within(core.core)):
        return f"patches: {core.name}: bounds: {core.bounds}: should be a finite part of the core, {core.core}"
    return ""


def first_mistake(error: Any) -> str:
    """Return the first mistake that pydantic has found: key, value, what it should be."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    value = "" if first["type"] in ("missing", "json_invalid") else f"{str(first['input'])[:80]}: "
    return f"{key}: {value}{first['msg']}" if key else str(first["msg"])


def box_of(form: Any) -> Box:
    """Return a box as a file has it, null for a side that is infinitely far."""
    return box_between(form.lower, form.upper)
