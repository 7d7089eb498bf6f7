"""Decides the colour correction of a batch: the tone of each photograph, solved once and kept while inputs stay.

A tone is the gain of each colour channel and the light across a photograph.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from splatbatch.hashing import FileFacts
from splatbatch.output.records.colors import Colors, Outlier, SceneColors
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.scene.photos.folders import find_masks, stored_photographs
from splatbatch.tasks.batch import Batch, PendingTasks
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions, wants_tones
from splatbatch.tasks.task import Task, patches_of
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.scene.colors.scene_corrections import SceneCorrections

ToneKind = TypeVar("ToneKind")
VERSION = 2
"""Version of recorded tones; raise it when these cannot be applied any more, so that batches solve theirs again.

Tones that are only solved better serve the next batch: a version makes no splat stale.
"""
MOST_NAMED = 3
"""Most photographs named in the lines for the user; others are counted."""


def decide_colors(batch: Batch, todo: PendingTasks) -> SharedDecisions:
    """Return the decisions with the tones of the photographs, if a recipe uses them; report those solved in this call.

    With `colors: auto` and no tones yet, nothing is corrected if patches that are not due were trained without
    correction. If no model can be read, or the tones cannot be solved, that is reported, not raised.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    wanting = [task for task in todo.tasks if wants_tones(task.requested_settings.recipe)]
    if not wanting:
        return batch.shared
    before = batch.shared.colors
    if before is None and _has_uncorrected_splats(batch, todo.tasks):
        todo.say("colours: not corrected, since other patches were trained without correction (training.colors)")
        return batch.shared
    colors, solved = solve(batch, wanting, before)
    for name, one in solved.items():
        for line in in_words(one):
            todo.say(f"colours{f' of {name}' if name else ''}: {line}")
    return replace(batch.shared, colors=colors) if solved else batch.shared


def _has_uncorrected_splats(batch: Batch, tasks: Sequence[Task]) -> bool:
    """Return whether other splats were trained without correction, so that `colors: auto` must not make them stale."""
    if any(task.requested_settings.recipe.training.colors != "auto" for task in tasks):
        return False
    names = {task.name for task in tasks}
    others = (batch.output.patch(task.name).read_result() for task in batch.every if task.name not in names)
    return any(result is not None and not result.trained_from.tones for result in others)


def solve(batch: Batch, todo: Iterable[Task], kept: Colors | None) -> tuple[Colors, Mapping[str, SceneColors]]:
    """Return the tones of a batch, and those solved in this call, by scene; "" is the scene of all patches together.

    In a list of scenes only those of the tasks are solved. Kept tones are reused while models, photographs and masks
    have the same size and time.

    Args:
        batch: the batch.
        todo: tasks whose recipes use tones.
        kept: tones solved before; None: none.
    """
    known = kept or Colors()
    groups = {"": patches_of(batch.every)}
    if batch.config.scene.scenes:
        groups = {patch.name: (patch,) for patch in patches_of(todo)}
    found = {name: _keep_or_solve(batch, group, known.of(name)) for name, group in groups.items()}
    solved = {name: one for name, one in found.items() if one is not known.of(name)}
    together = found.pop("", known.together)
    return Colors(together, {**known.scenes, **found}), solved


def _keep_or_solve(batch: Batch, patches: tuple[Patch, ...], kept: SceneColors) -> SceneColors:
    """Return the tones of patches of one scene: kept if inputs are the same, else solved from its source or patches."""
    whole = _source(batch, patches)
    if kept.inputs and kept.inputs == _inputs([*whole, *patches], _names(kept)):
        return kept
    from splatbatch.scene.colors.scene_corrections import solve_tones

    cache = batch.output.color_cache if batch.output.path.is_dir() else None
    found = solve_tones(whole, cache) if whole else None
    if found is None or found.problem:
        found = solve_tones(patches, cache)
    solved = in_gauge_of(kept.tones, to_record(found))
    if any(patch.partition for patch in patches):
        folder, stats = stored_photographs(patches[0].images)[0], FileFacts()  # which all patches share
        sizes = {name: stats.of(f"{folder}/{name}").num_bytes for name in sorted(_names(solved))}
        solved = keep_earlier_tones(kept, replace(solved, asked="all", bytes=sizes))
    return replace(solved, inputs=_inputs([*whole, *patches], _names(solved)))


def _names(solved: SceneColors) -> set[str]:
    """Return the names of all photographs of a solution, with and without a tone."""
    return solved.tones.keys() | solved.left_alone.keys()


def in_gauge_of(kept: Mapping[str, ColorCorrection], found: SceneColors) -> SceneColors:
    """Return new tones scaled to agree with the kept ones, by the median ratio of gains in each channel.

    Added photographs change the mean over all; with this scaling they leave trained splats up to date. If fewer than
    half of the kept photographs still exist, or none, the new tones are returned unchanged.
    """
    common = [name for name in kept if name in found.tones]
    if not common or 2 * len(common) < len(kept):
        return found
    ratios = [[kept[name].gain[one] / found.tones[name].gain[one] for name in common] for one in range(3)]
    red, green, blue = (median(one) for one in ratios)

    def moved(tone: ColorCorrection) -> ColorCorrection:
        return replace(tone, gain=(tone.gain[0] * red, tone.gain[1] * green, tone.gain[2] * blue))

    return replace(found, tones={name: moved(tone) for name, tone in found.tones.items()})


def keep_earlier_tones(kept: SceneColors, found: SceneColors) -> SceneColors:
    """Return the tones of a cut scene: photographs known before keep theirs, added photographs get the new ones.

    So added photographs leave trained splats up to date. A photograph whose size in bytes has changed counts as added.
    Without kept tones, or if these were solved in another mode, all are new. If the new solution failed, the kept tones
    stay, with a note.
    """
    if not kept.inputs or kept.asked not in ("", found.asked):
        return found
    if found.problem and kept.tones:
        return replace(kept, notes=(*kept.notes, f"the exposure of added photographs is unknown: {found.problem}"))
    same = {name for name, size in found.bytes.items() if kept.bytes.get(name, size) == size}
    before = _names(kept) & same

    def joined(old: Mapping[str, ToneKind], new: Mapping[str, ToneKind]) -> dict[str, ToneKind]:
        added = {name: one for name, one in new.items() if name not in before}
        return {name: one for name, one in old.items() if name in before} | added

    tones, alone = joined(kept.tones, found.tones), joined(kept.left_alone, found.left_alone)
    return replace(found, tones=tones, left_alone=alone, is_even=kept.is_even)


def _source(batch: Batch, patches: tuple[Patch, ...]) -> tuple[Patch, ...]:
    """Return the source scene as a patch; empty if neither the config nor a partition names one."""
    if whole := tuple(patch for patch in patches if patch.is_whole):
        return whole
    source = batch.config.scene.source
    if source is None or batch.config.scene.scenes:
        return ()
    from splatbatch.scene.audit.audit import source_patch

    masks = {patch.masks for patch in patches}
    return (replace(source_patch(source, patches), masks=masks.pop() if len(masks) == 1 else None),)


def _inputs(patches: Iterable[Patch], names: Collection[str]) -> str:
    """Return a hash of size and time of the inputs of tones: models, and photographs of these names with their masks.

    The names come from the solution, so that an unchanged model is not read for them.
    """
    stats, patches = FileFacts(), tuple(patches)
    digest = hashlib.sha256(f"{VERSION} []".encode())
    for sparse in dict.fromkeys(patch.sparse for patch in patches):
        facts = [f"{name} {stats.of(f'{sparse}/{name}')[:2]}" for name in MODEL_FILE_NAMES]
        digest.update("\0".join(facts).encode(errors="surrogateescape"))
    ordered = sorted(names)
    for images, masks in dict.fromkeys((patch.images, patch.masks) for patch in patches):
        paths = [f"{stored_photographs(images)[0]}/{name}" for name in ordered]
        paths += map(str, find_masks(masks, ordered).values())
        facts = [f"{Path(path).name} {stats.of(path)[:2]}" for path in paths]
        digest.update("\0".join(facts).encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def to_record(found: SceneCorrections) -> SceneColors:
    """Return a solution as colors.json holds it; residuals are in percent, None without tones."""
    return SceneColors(
        tones=dict(found.tones),
        vignetting={str(camera): list(one) for camera, one in found.vignetting.items()},
        residual_before=100 * found.before if found.tones else None,
        residual_after=100 * found.after if found.tones else None,
        is_even=found.is_even,
        outliers=tuple(Outlier(name, times) for name, times in found.outliers.items()),
        left_alone=dict(found.left_alone),
        notes=found.notes,
        problem=found.problem,
    )


def in_words(solved: SceneColors) -> list[str]:
    """Return lines on a solution for the user: figures first, then vignetting and outliers.

    Uncorrected photographs and notes follow. A failed solution gives a single line with the reason.
    """
    if solved.problem:
        return [f"photographs are not corrected: {solved.problem}"]
    spread = [[tone.gain[channel] for tone in solved.tones.values()] for channel in range(3)]
    ranges = ", ".join(f"{name} {min(one):.2f} to {max(one):.2f}" for name, one in zip("RGB", spread, strict=True))
    before, after = solved.residual_before or 0, solved.residual_after or 0
    told = f"photographs differ in colour by {before:.1f} %, by {after:.1f} % once corrected"
    verdict = "the correction is used" if solved.is_even else "no correction is needed"
    lines = [f"{plural(len(solved.tones), 'photograph')}, gains {ranges}; {told}: {verdict}"]
    lines += [
        f"camera {name}: its photographs are {100 * (1 - math.exp(min(sum(one), 1))):.0f} % darker in the corners"
        for name, one in solved.vignetting.items()
    ]
    lines += _some([one.in_words() for one in solved.outliers], "photographs that differ as much")
    alone = [f"{name} is not corrected: {reason}" for name, reason in solved.left_alone.items()]
    return [*lines, *_some(alone, "photographs not corrected"), *solved.notes]


def _some(lines: Sequence[str], what: str) -> list[str]:
    more = [f"and {len(lines) - MOST_NAMED} more {what}"] if len(lines) > MOST_NAMED else []
    return [*lines[:MOST_NAMED], *more]
