"""Merges the splats of a batch's patches into one, and records parts, holes and warnings in merge.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from splatbatch import __version__
from splatbatch.config import Offset
from splatbatch.errors import OutputError, SceneError
from splatbatch.files import abandoned_files, write_json
from splatbatch.hashing import file_fact, sha256_of
from splatbatch.output.folders import MergedFiles
from splatbatch.output.records.merge import VERSION, CleaningRecord, Hole, Merge, MergedPart, MergeOutput
from splatbatch.output.records.result import Result
from splatbatch.output.results import recording_damage
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.partition.border import reach_of
from splatbatch.scene.partition.boxes import open_sides
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import Patch
from splatbatch.splats.clean import IN_WORDS
from splatbatch.splats.merge import MergePart, MergeSource, inside, merge_splats, out_of_bounds
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.product import key_of
from splatbatch.tasks.scene.candidates import MergeCandidate, check_scene, merge_candidates, offset_of, partition_for
from splatbatch.tasks.scene.clean import CleaningRules
from splatbatch.tasks.shared_decisions.holdout import never_trained_on
from splatbatch.tasks.task import patches_of
from splatbatch.terminal import Advance, unheard
from splatbatch.text import list_some

MOST_REASONS = 20
"""Most patches that cannot be merged in a message, each with its reason; others are counted."""


@dataclass(frozen=True)
class SceneParts:
    """The patches of a scene that can be merged, with the backdrop, and the patches that cannot.

    `warnings` are about the scene as a whole; empty: none.
    """

    batch: Batch
    partition: Partition
    usable: tuple[MergeCandidate, ...]
    """Parts to merge, in the order of the partition, with the backdrop last."""
    lacking: tuple[MergeCandidate, ...]
    """Parts that cannot be merged, each with the reason; empty: none."""
    warnings: tuple[str, ...]
    offset: Offset
    """Offset of all usable parts; a splat with another offset is stale."""

    def with_cameras(self) -> tuple[Patch, ...]:
        """Return all patches, merged or not, whose cameras cleaning needs.

        A patch that is missing and whose model cannot be read is left out.
        """
        lacking, found = {one.name for one in self.lacking}, []
        for patch in patches_of(self.batch.every):
            with suppress(SceneError):
                if patch.name in lacking:
                    read_reconstruction(patch.sparse)
                found.append(patch)
        return tuple(found)

    def holes(self) -> tuple[Hole, ...]:
        """Return a hole for each missing part, with the box of its core; unbounded sides are None.

        A part without a core has a hole with empty corners.
        """
        return tuple(
            Hole(one.name, one.lacking, *((open_sides(box.lower), open_sides(box.upper)) if box else ((), ())))
            for one in self.lacking
            for box in [one.core.core if one.core else None]
        )


def gather(batch: Batch, *, allow_missing: bool) -> SceneParts:
    """Return the parts from which the scene of a batch can be merged.

    Args:
        batch: the batch.
        allow_missing: merge even if patches are missing, which leaves holes.

    Raises:
        ConfigError: the batch is a sweep or a list of scenes, and makes no single scene.
        SceneError: there is no valid partition, or its scene has changed.
        OutputError: patches are missing without `allow_missing`, or all are.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    partition = partition_for(batch)
    check_scene(partition)
    candidates, warnings = merge_candidates(batch, partition)
    usable = tuple(one for one in candidates if not one.lacking)
    lacking = tuple(one for one in candidates if one.lacking)
    if lacking and not (allow_missing and any(one.core for one in usable)):
        reasons = list_some((f"{one.name}: {one.lacking}" for one in lacking), MOST_REASONS, "; ")
        hint = "Train the missing patches: `splatbatch train`. Or merge with --allow-missing, which leaves holes."
        raise OutputError(f"{len(lacking)} of {len(candidates)} patches cannot be merged: {reasons}", hint)
    return SceneParts(batch, partition, usable, lacking, warnings, offset_of(batch, partition))


def check_whole(files: MergedFiles) -> Merge | None:
    """Return the record of a merged splat after checking its content; None without a readable record of this splat.

    A splat that is missing, or has another size than the record, has none.

    Raises:
        OutputError: the splat has been damaged since the merge, or cannot be read.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    merged = files.read()
    if merged is not None and (damage := files.damage(merged)):
        raise OutputError(damage, "Merge again: `splatbatch merge`.")
    return merged


def merge(
    parts: SceneParts, files: MergedFiles, cleaning: CleaningRules | None = None, advance: Advance = unheard
) -> tuple[MergeOutput, str]:
    """Merge parts into a splat and its record, unless the same splat exists already, undamaged.

    The old splat stays until the new one is whole; then merge.json is written. Return the record, and the damage of the
    old splat in words (empty: none).

    Args:
        parts: parts to merge.
        files: places of the splat and its record.
        cleaning: rules by which Gaussians are removed; None: all are kept.
        advance: called with the number of Gaussians read, and of all.

    Raises:
        OutputError: a splat is not the accepted one, is invalid, or the scene cannot be written.
        SceneError: a model that cleaning needs cannot be read.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
        OSError: merge.json cannot be written, or a file of a killed merge cannot be removed.
    """
    for left in abandoned_files(files.splat):  # by merges that were killed: each as large as a scene
        left.unlink(missing_ok=True)
    wanted = [_part(parts, one, cleaning) for one in parts.usable]
    key = key_of(VERSION, *(part.key for part in wanted))
    before = files.read()
    damage = files.damage(before) if before else ""
    if before is not None and before.sha256 and before.key == key and not damage:
        merged, num_new = before, 0
    else:
        with recording_damage(parts.batch.output):
            merged, num_new = _write(wanted, files, parts.offset, advance), len(wanted)
        totals = sum((Counter(one.removed) for one in merged.parts), Counter[str]())
        merged = replace(merged, key=key, cleaned=CleaningRecord(dict(IN_WORDS), dict(totals)) if cleaning else None)
    merged = replace(
        merged,
        partition=sha256_of(parts.partition.path),
        parts=tuple(  # with the attempts that they come from, and what is odd about these
            replace(part, attempt=one.result.attempt if one.result else "", warnings=one.warnings)
            for part, one in zip(merged.parts, parts.usable, strict=True)
        ),
        holes=parts.holes(),
        warnings=parts.warnings,
        held_out=never_trained_on(one.photographs for one in parts.usable if one.photographs),
    )
    if merged != before:
        write_json(files.record, merged.to_record())
    return MergeOutput(**vars(merged), splat=str(files.splat), parts_written=num_new), damage


def _write(wanted: Sequence[MergePart], files: MergedFiles, offset: Offset, advance: Advance) -> Merge:
    """Write the merged splat; return its record, without the fields that `merge` adds."""
    found = merge_splats(files.splat, wanted, offset, advance)
    fact = file_fact(files.splat)
    return Merge(
        bytes=fact.num_bytes,
        mtime_ns=fact.mtime_ns,
        sha256=sha256_of(files.splat),
        num_gaussians=found.num_gaussians,
        sh_degree=found.sh_degree,
        offset=offset,
        parts=tuple(
            MergedPart(
                patch=one.name,
                sha256=part.source.sha256,
                start=one.start,
                num_gaussians=one.num_gaussians,
                num_read=one.num_read,
                num_outside=one.num_read - one.num_gaussians - sum(one.removed.values()),
                removed=dict(one.removed),
                key=part.key,
                rows_sha256=one.sha256,
            )
            for part, one in zip(wanted, found.parts, strict=True)
        ),
        version=__version__,
    )


def _part(parts: SceneParts, one: MergeCandidate, cleaning: CleaningRules | None) -> MergePart:
    """Return a part with its region: its own core or, for the backdrop, the space outside all patches."""
    result = one.result or Result()
    if one.core is None:
        boxes = tuple(other.core.core.clipped(reach_of(other.core)) for other in parts.usable if other.core)
        region = out_of_bounds(parts.partition, parts.offset, boxes)
    else:
        boxes, region = (one.core.core,), inside(parts.partition, parts.offset, one.core.core)
    corners = [[open_sides(box.lower), open_sides(box.upper)] for box in boxes]
    removed = partial(cleaning.removed, one.name) if cleaning else None
    key = key_of(VERSION, result.sha256, parts.offset, parts.partition.axes, corners, cleaning.key if cleaning else "")
    source = MergeSource(parts.batch.output.patch(one.name).splat_of(result), one.name, result.sha256)
    return MergePart(source, region, key, removed, may_be_empty=one.core is None)
