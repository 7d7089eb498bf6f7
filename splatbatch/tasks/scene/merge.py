"""Merging a batch's patches into one splat: what goes in, what is missing, and merge.json, which says so."""

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
from splatbatch.splats.export import ExportSource
from splatbatch.splats.merge import MergePart, inside, merge_splats, out_of_bounds
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.product import key_of
from splatbatch.tasks.scene.candidates import MergeCandidate, check_scene, merge_candidates, offset_of, partition_for
from splatbatch.tasks.scene.clean import CleaningRules
from splatbatch.tasks.shared_decisions.holdout import never_trained_on
from splatbatch.tasks.task import patches_of
from splatbatch.terminal import Advance, unheard
from splatbatch.text import list_some

MOST_REASONS = 20
"""That a message holds."""


@dataclass(frozen=True)
class SceneParts:
    """What a scene is merged from."""

    batch: Batch
    partition: Partition
    usable: tuple[MergeCandidate, ...]
    """In the order of the partition, the whole scene behind them last."""
    lacking: tuple[MergeCandidate, ...]
    warnings: tuple[str, ...]
    offset: Offset
    """That was taken off the coordinates of all of them: one in another frame is stale."""

    def with_cameras(self) -> tuple[Patch, ...]:
        """Return all patches, merged or not, but for those that are missing and whose model cannot be read."""
        lacking, found = {one.name for one in self.lacking}, []
        for patch in patches_of(self.batch.every):
            with suppress(SceneError):
                if patch.name in lacking:
                    read_reconstruction(patch.sparse)
                found.append(patch)
        return tuple(found)

    def holes(self) -> tuple[Hole, ...]:
        """Return the boxes of what is missing, infinite sides as None."""
        return tuple(
            Hole(one.name, one.lacking, *((open_sides(box.lower), open_sides(box.upper)) if box else ((), ())))
            for one in self.lacking
            for box in [one.core.core if one.core else None]
        )


def gather(batch: Batch, *, allow_missing: bool) -> SceneParts:
    """Return what a batch's scene can be merged from.

    Raises:
        ConfigError: the batch is none that makes one scene.
        SceneError: the partition is none, or no longer that of its scene.
        OutputError: some patches are missing and may not be, or all are.
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
    """Return what a merged splat was made of, each byte seen to be as it was merged; None without a record of it.

    Raises:
        OutputError: it was damaged since.
    """
    merged = files.read()
    if merged is not None and (damage := files.damage(merged)):
        raise OutputError(damage, "Merge again: `splatbatch merge`.")
    return merged


def merge(
    parts: SceneParts, files: MergedFiles, cleaning: CleaningRules | None = None, advance: Advance = unheard
) -> tuple[MergeOutput, str]:
    """Merge to some files, unless they hold the very same already, whole; return also how the splat there was damaged.

    What stands there is as it was before until the splat is whole; merge.json follows, and counts for no other splat.
    `advance` hears how many Gaussians of how many were read.

    Raises:
        OutputError: a splat is not what was accepted, not sound, or the scene cannot be written.
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
        cleaned = CleaningRecord(dict(IN_WORDS), dict(totals)) if cleaning else None
        merged = replace(merged, key=key, cleaned=cleaned)
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
    """Write the splat; return what is known of it."""
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
    """Return a splat with where it counts: each place is drawn by one patch, or from behind."""
    result = one.result or Result()
    if one.core is None:
        boxes = tuple(other.core.core.clipped(reach_of(other.core)) for other in parts.usable if other.core)
        region = out_of_bounds(parts.partition, parts.offset, boxes)
    else:
        boxes, region = (one.core.core,), inside(parts.partition, parts.offset, one.core.core)
    corners = [[open_sides(box.lower), open_sides(box.upper)] for box in boxes]
    removed = partial(cleaning.removed, one.name) if cleaning else None
    key = key_of(VERSION, result.sha256, parts.offset, parts.partition.axes, corners, cleaning.key if cleaning else "")
    source = ExportSource(parts.batch.output.patch(one.name).splat_of(result), one.name, result.sha256)
    return MergePart(source, region, key, removed, may_be_empty=one.core is None)
