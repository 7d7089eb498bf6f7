"""Chooses the offset of a batch: that of the YAML, else the offset used before, else one that its patches need.

A frame is the record of that offset; a list of scenes has one for each scene.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import SceneError
from splatbatch.output.records.frame import Frame
from splatbatch.scene.patches import Patch, list_names
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.text import spell_place

if TYPE_CHECKING:
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.scene.frame import ModelExtent


REMEDY = "Bring all models into one coordinate system, or train these patches by a YAML with another output.folder."
"""Hint for errors and findings on patches too far apart."""


def choose_frame(batch: Batch, todo: PendingTasks) -> Frame:
    """Return the frame (an offset, or one for each scene) for training the patches whose extents `todo.spans` returns.

    That of the YAML or the partition is kept; another one while it is needed and loses no detail, so that added patches
    change nothing. Otherwise an offset is chosen for all patches of the batch together, or for each scene of a list.

    Raises:
        SceneError: patches are too far apart to share an offset.
    """
    known = batch.shared.frame
    if known is not None and _is_fixed(batch):
        return known
    kept, spans = known or Frame(), todo.spans()
    if batch.config.scene.scenes:
        of_scenes = {name: _choose_offset(kept.of(name), [one]) for name, one in spans.items()}
        return replace(kept, scenes=kept.scenes | of_scenes)
    offset = _choose_offset(kept.offset, list(spans.values()))
    if offset not in (kept.offset, NO_OFFSET):
        from splatbatch.scene.frame import shared_offset

        offset, apart = shared_offset(_with_others(batch, spans), known.offset if known else None)
        if lost := [name for name in apart if name in spans]:
            message = f"{list_names(lost)}: too far from the other patches to share the offset {spell_place(offset)}"
            raise SceneError(f"{message}: float32 cannot hold millimetres there", REMEDY)
    return Frame(offset)


def far_apart(batch: Batch, spans: Mapping[str, ModelExtent]) -> dict[str, str]:
    """Return the patches too far away for the offset of the batch, each with its distance in words; for the audit.

    Their float32 coordinates would have steps above a millimetre. Empty with `scene.offset: none`, for a list of
    scenes, and if no patch is too far away.

    Args:
        batch: the batch.
        spans: extents of models by patch name; models of other patches of the batch are read here.
    """
    scene, known = batch.config.scene, batch.shared.frame
    kept = known.offset if known else NO_OFFSET
    coarse = [name for name, span in spans.items() if span.is_coarse(kept)]
    if not coarse or scene.scenes or scene.offset == "none":
        return {}
    if _is_fixed(batch):
        return {name: _far_from(spans[name], {}, kept) for name in coarse}
    from splatbatch.scene.frame import shared_offset

    every = _with_others(batch, spans)
    offset, apart = shared_offset(every, known.offset if known else None)
    near = {name: span for name, span in every.items() if name not in apart}
    return {name: _far_from(spans[name], near, offset) for name in apart if name in spans}


def _far_from(span: ModelExtent, near: Mapping[str, ModelExtent], offset: Offset) -> str:
    """Return in words how far a patch is from the nearest other one, else from the offset, and the precision left."""
    places = {name: other.middle() for name, other in near.items()} or {f"the offset {spell_place(offset)}": offset}
    distance, name = min((math.dist(span.middle(), place), name) for name, place in places.items())
    step = f"{span.step(offset):.2g}"
    return f"lies {distance:,.0f} units from {name}: with the same offset its coordinates would have steps of {step}"


def _is_fixed(batch: Batch) -> bool:
    """Return whether the offset is given, by the YAML or by a partition, and must not be chosen."""
    return batch.config.scene.offset is not None or any(task.patch.partition for task in batch.every)


def _with_others(batch: Batch, spans: Mapping[str, ModelExtent]) -> dict[str, ModelExtent]:
    """Return the extents of all patches of a batch: the given ones first, then those read here."""
    others = {task.patch.name: task.patch for task in batch.every if task.patch.name not in spans}
    return {**spans, **read_spans(others.values())}


def _choose_offset(kept: Offset, spans: list[ModelExtent]) -> Offset:
    """Return an offset for models of these extents: the kept one, unless it loses detail or is no longer needed."""
    from splatbatch.scene.frame import offset_for

    needed = offset_for(spans)
    serves = not any(span.loses(kept) for span in spans) and (kept == NO_OFFSET or needed != NO_OFFSET)
    return kept if serves or not spans else needed


def spans_of(audits: Iterable[Audit]) -> dict[str, ModelExtent]:
    """Return the extents of the patches that audits do not reject, by name."""
    return {
        name: span
        for audit in audits
        for bad in [set(audit.bad_patches())]
        for name, span in audit.spans.items()
        if name not in bad
    }


def read_spans(patches: Iterable[Patch]) -> Mapping[str, ModelExtent]:
    """Return the extents of patches, by name; a patch whose model is empty or cannot be read is left out."""
    from splatbatch.scene.colmap.reconstruction import read_reconstruction
    from splatbatch.scene.frame import span_of

    found = {}
    for patch in patches:
        with suppress(SceneError):
            if (span := span_of(read_reconstruction(patch.sparse))) is not None:
                found[patch.name] = span
    return found


def note(frame: Frame | None, names: Iterable[str] = ()) -> str:
    """Return a note on the offset to add to the coordinates of splats; empty if there is none.

    Args:
        frame: frame of the batch; None: not decided.
        names: patches whose own offsets are named, in a list of scenes.
    """
    if frame is None:
        return ""
    offsets = {name: one for name, one in frame.scenes.items() if any(one) and name in set(names)}
    parts = [f"add {spell_place(one)} for {name}" for name, one in offsets.items()]
    parts += [f"add {spell_place(frame.offset)}"] if any(frame.offset) else []
    return f"to convert coordinates of the splats to those of the models, {'; '.join(parts)}" if parts else ""
