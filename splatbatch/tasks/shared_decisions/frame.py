"""Where the splats of a batch lie: as its YAML says, else as they always did, else as its patches need it."""

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


REMEDY = "Bring all models into one coordinate system, or train these by a YAML with an output.folder of its own."


def choose_frame(batch: Batch, todo: PendingTasks) -> Frame:
    """Return the frame to train patches in that lie as `todo.spans` says.

    The batch's own is kept as long as it serves: patches that are added change nothing. Otherwise it is chosen for all
    patches of the batch together, or for each of its scenes.

    Raises:
        SceneError: patches that no audit has looked at together are too far apart to share it.
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
    """Return the patches whose splats would lose the millimetre with the offset of the batch, and how far off each is.

    Patches that share the offset are trained. `scene.offset: none`, and scenes with an offset each, are left alone.
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
    """Return how far a patch lies from the nearest of others, else from an offset, and what that costs."""
    places = {name: other.middle() for name, other in near.items()} or {f"the offset {spell_place(offset)}": offset}
    distance, name = min((math.dist(span.middle(), place), name) for name, place in places.items())
    step = f"{span.step(offset):.2g}"
    return f"lies {distance:,.0f} units from {name}: with the same offset its coordinates would have steps of {step}"


def _is_fixed(batch: Batch) -> bool:
    """Return whether the offset is that of the YAML, or of the partition, which froze it with its cores."""
    return batch.config.scene.offset is not None or any(task.patch.partition for task in batch.every)


def _with_others(batch: Batch, spans: Mapping[str, ModelExtent]) -> dict[str, ModelExtent]:
    """Return where all patches of a batch lie, the given ones first; the others are read."""
    others = {task.patch.name: task.patch for task in batch.every if task.patch.name not in spans}
    return {**spans, **read_spans(others.values())}


def _choose_offset(kept: Offset, spans: list[ModelExtent]) -> Offset:
    """Return the offset of what lies so: the kept one, unless it loses detail, or nothing needs one any more."""
    from splatbatch.scene.frame import offset_for

    needed = offset_for(spans)
    serves = not any(span.loses(kept) for span in spans) and (kept == NO_OFFSET or needed != NO_OFFSET)
    return kept if serves or not spans else needed


def spans_of(audits: Iterable[Audit]) -> dict[str, ModelExtent]:
    """Return where the patches lie that audits do not refuse."""
    return {
        name: span
        for audit in audits
        for bad in [set(audit.bad_patches())]
        for name, span in audit.spans.items()
        if name not in bad
    }


def read_spans(patches: Iterable[Patch]) -> Mapping[str, ModelExtent]:
    """Return where patches lie, by name, as far as their models can be read."""
    from splatbatch.scene.colmap.reconstruction import read_reconstruction
    from splatbatch.scene.frame import span_of

    found = {}
    for patch in patches:
        with suppress(SceneError):
            if (span := span_of(read_reconstruction(patch.sparse))) is not None:
                found[patch.name] = span
    return found


def note(frame: Frame | None, names: Iterable[str] = ()) -> str:
    """Say what to add to the coordinates of the splats, of named patches where scenes differ; empty for nothing."""
    if frame is None:
        return ""
    offsets = {name: one for name, one in frame.scenes.items() if any(one) and name in set(names)}
    parts = [f"add {spell_place(one)} for {name}" for name, one in offsets.items()]
    parts += [f"add {spell_place(frame.offset)}"] if any(frame.offset) else []
    return f"to convert coordinates of the splats to those of the models, {'; '.join(parts)}" if parts else ""
