"""Selects the splats to publish or view: accepted splats of patches, or the merged scene with its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatbatch.config import Offset
from splatbatch.errors import ConfigError, OutputError, SplatbatchError
from splatbatch.hashing import sha256_of
from splatbatch.outcome import Rejected
from splatbatch.output.records.colors import as_photographed
from splatbatch.output.records.metrics import QualityFigures, TrainingSettings
from splatbatch.output.records.result import Result
from splatbatch.output.results import recording_damage
from splatbatch.splats import check_splat, read_header
from splatbatch.splats.export import ChangedOnDisk
from splatbatch.splats.ply import SplatHeader
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.inspection import SCENE
from splatbatch.tasks.scene.candidates import MergeCandidate, merge_candidates, offset_of, partition_for
from splatbatch.tasks.scene.merge import check_whole
from splatbatch.tasks.shared_decisions.holdout import held_out, photographs_of, recipe_of
from splatbatch.tasks.status import read_status
from splatbatch.tasks.task import Task, of_patches, patches_of, select

MERGE_FIRST = "Merge the patches: splatbatch merge."


@dataclass(frozen=True)
class SourcePart:
    """A range of consecutive Gaussians in a splat file: those of one patch, of the backdrop, or all."""

    name: str
    path: Path
    start: int
    """Index of the part's first Gaussian in the file, from 0."""
    num_gaussians: int
    key: str
    """Hash that changes if the Gaussians of the part change.

    Empty: unknown, for files that are not kept, and for parts of a scene that an earlier version merged.
    """


@dataclass(frozen=True)
class PublishedSplat:
    """A splat to publish or view, whose file was checked to be whole and renderable.

    `parts` are one for each patch of the merged scene and for its backdrop; of a patch there is one, the whole.
    """

    name: str
    path: Path
    header: SplatHeader
    sha256: str
    parts: tuple[SourcePart, ...]
    offset: Offset
    """Offset that was subtracted from the coordinates of the reconstruction, x y z in its units."""
    views: TrainingSettings
    """Settings for rendering the splat and comparing it with its held-out photographs."""
    figures: Mapping[str, float]
    """Known figures of quality, any of "psnr_covered" and "psnr" in dB, "ssim", "num_photos".

    A patch always has "num_photos", which is 0 if no figures by photograph are recorded. Empty: a scene that was not
    measured as it is now, or several splats shown as one.
    """
    warnings: tuple[str, ...] = ()
    """Warnings on the merged scene, as on its holes; empty: none, or the splat of a patch."""

    @property
    def num_gaussians(self) -> int:
        """Return the number of Gaussians in the splat's file."""
        return self.header.num_gaussians

    def parts_with_any(self) -> tuple[SourcePart, ...]:
        """Return the parts that have Gaussians, in the order of `parts`; empty if no part has any."""
        return tuple(part for part in self.parts if part.num_gaussians)

    def whole(self) -> SourcePart:
        """Return all Gaussians of the splat as one part, with the name of the splat."""
        return SourcePart(self.name, self.path, 0, self.num_gaussians, self.sha256)

    def in_parts(self, most: int) -> Iterator[SourcePart]:
        """Yield the parts to write as one file each.

        A splat of at most `most` Gaussians, or with one part, is yielded whole. Of a larger splat every part that has
        Gaussians is yielded, named SPLAT-PART.
        """
        if self.num_gaussians <= most or len(self.parts) == 1:
            yield self.whole()
        else:
            yield from (
                SourcePart(f"{self.name}-{one.name}", one.path, one.start, one.num_gaussians, one.key)
                for one in self.parts_with_any()
            )


def published(batch: Batch, names: Sequence[str]) -> list[PublishedSplat]:
    """Return the splats to publish, patches first, after checking their files by content.

    An accepted splat that has changed on disk is recorded as damaged in the output folder.

    Args:
        batch: the batch.
        names: names of patches, and "scene" for the merged scene; empty: the merged scene, or all patches if it does
            not exist.

    Raises:
        OutputError: a patch is not trained or is stale, its file is not the accepted splat, or the scene is outdated,
            damaged or not merged.
        LaterFormatError: a later version of splatbatch wrote a record that is needed.
        ConfigError: a named patch does not exist, or the scene of a sweep or of a list of scenes is asked for.
        SceneError: the scene is asked for, but partition.json is missing, unreadable, or lacks some of the patches; or
            no photograph is held out by all patches, or a model cannot be read.
    """
    if not names:
        names = [SCENE] if batch.output.scene.splat.exists() else [task.name for task in of_patches(batch.tasks)]
    every = [task.name for task in batch.every]
    of_scene = SCENE in names and SCENE not in every  # a patch may have that name
    wanted = [name for name in names if name != SCENE or not of_scene]
    tasks = select(batch.every, wanted) if wanted else ()
    statuses = {one.patch: one for one in read_status(batch.output, every, None, batch.standing("content"))}
    for task in tasks:
        if statuses[task.name].state != "trained":
            message = f"{task.name}: {statuses[task.name].why}: not published"
            raise OutputError(message, "Train the patch first: splatbatch train.")
    found = [_patch(batch, task) for task in tasks]
    return [*found, _scene(batch)] if of_scene else found


def publishable(batch: Batch) -> tuple[list[PublishedSplat], dict[str, str]]:
    """Return the splats of all patches that can be published, and by name the reason why each other patch cannot.

    A splat that is damaged is such a reason, too, and raises no error. For publishing after a batch.

    An accepted splat that has changed on disk is recorded as damaged in the output folder.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record that the status of a patch needs.
    """
    found, lacking = list[PublishedSplat](), dict[str, str]()
    statuses = {one.patch: one for one in read_status(batch.output, batch.names, None, batch.standing("content"))}
    for task in of_patches(batch.tasks):
        status = statuses[task.name]
        if status.state != "trained":
            lacking[task.name] = status.why
            continue
        try:
            found.append(_patch(batch, task))
        except SplatbatchError as error:
            lacking[task.name] = error.message.removeprefix(f"{task.name}: ")
    return found, lacking


def viewed(batch: Batch, names: Sequence[str]) -> list[PublishedSplat]:
    """Return the splats that `splatbatch view` shows: of each named patch the accepted splat, even if it is stale.

    An accepted splat that has changed on disk is recorded as damaged in the output folder.

    Args:
        batch: the batch.
        names: names of patches. If empty, or if "scene" is among them, the splats are those that `published` returns.

    Raises:
        OutputError: a splat is damaged; or, with names empty or "scene", a splat cannot be published.
        LaterFormatError: a later version of splatbatch wrote a record that is needed.
        ConfigError: a named patch does not exist or has no splat; or the scene of a sweep or of a list of scenes is
            asked for.
        SceneError: the scene is asked for, but partition.json is missing, unreadable, or lacks some of the patches; or
            no photograph is held out by all patches, or a model cannot be read.
    """
    if not names or SCENE in names:
        return published(batch, names)
    return [_patch(batch, task) for task in select(batch.every, names)]


def _patch(batch: Batch, task: Task) -> PublishedSplat:
    """Return the accepted splat of a patch.

    Raises:
        ConfigError: the patch has no splat.
        OutputError: the splat is damaged, or is not the accepted one.
    """
    folder = batch.output.patch(task.name)
    result = folder.read_result() or Result()
    path = folder.splat_of(result)
    if not path.exists():
        raise ConfigError(
            f"{task.name}: has no splat yet", "Train the patch first; `splatbatch status` shows its progress."
        )
    with recording_damage(batch.output):
        header, digest = _checked(path, task.name, result.sha256)
    offset = result.trained_from.offset
    setup = TrainingSettings(
        recipe=recipe_of(task, result).model_dump(mode="json", exclude={"program"}),
        sparse=str(task.patch.sparse),
        offset=offset,
        holdout=photographs_of(task, result).held_out,
        **as_photographed([task.patch]),
    )
    part = SourcePart(task.name, path, 0, header.num_gaussians, digest)
    figures = _known(result.metrics.final, len(result.metrics.photos()))
    return PublishedSplat(task.name, path, header, digest, (part,), offset, setup, figures)


def _known(figures: QualityFigures, num_photos: int) -> dict[str, float]:
    """Return the known figures of quality, and their number of photographs, for people."""
    found = {name: getattr(figures, name) for name in ("psnr_covered", "psnr", "ssim")}
    return {name: float(value) for name, value in (found | {"num_photos": num_photos}).items() if value is not None}


def _scene(batch: Batch) -> PublishedSplat:
    """Return the merged scene.

    Raises:
        OutputError: the scene is not merged, or was merged from other splats than those accepted now.
        SceneError: the batch has no partition.
    """
    partition = partition_for(batch)
    files, offset = batch.output.scene.merged, offset_of(batch, partition)
    merged = check_whole(files)
    if merged is None:
        raise OutputError(
            f"{files.splat}: there is no merged scene, or another one than merge.json describes", MERGE_FIRST
        )
    candidates, warnings = merge_candidates(batch, partition)
    _see_fresh(candidates, {part.patch: part.sha256 for part in merged.parts})
    header, digest = _checked(files.splat, SCENE, "")
    holdout, notes = held_out(batch, files.splat)
    setup = TrainingSettings(
        recipe=batch.config.recipe("").model_dump(mode="json", exclude={"program"}),
        sparse=str(partition.source),
        offset=offset,
        holdout=holdout,
        **as_photographed(patches_of(of_patches(batch.every))),
    )
    parts = tuple(SourcePart(one.patch, files.splat, one.start, one.num_gaussians, one.key) for one in merged.parts)
    holes = tuple(f"{hole.patch}: {hole.reason}: a hole in the scene" for hole in merged.holes)
    found = batch.output.scene.read_evaluation()
    is_current = found is not None and found.num_gaussians == header.num_gaussians
    figures = _known(found.total, found.total.num_photos) if found and is_current else {}
    return PublishedSplat(
        SCENE,
        files.splat,
        header,
        digest,
        parts,
        offset,
        setup,
        figures,
        (*dict.fromkeys((*warnings, *notes, *holes)),),
    )


def _see_fresh(candidates: Sequence[MergeCandidate], merged: Mapping[str, str]) -> None:
    """Check that the merged scene holds the splats that are accepted now.

    Raises:
        OutputError: a merged patch is stale, or has another splat now.
    """
    for one in candidates:
        if one.name in merged and one.lacking:
            raise OutputError(
                f"{one.name}: {one.lacking}: the merged scene still has the earlier splat of this patch",
                "Run splatbatch train, then splatbatch merge.",
            )
        if one.name in merged and one.result and one.result.sha256 != merged[one.name]:
            raise OutputError(f"{one.name}: its splat has changed since the scene was merged", MERGE_FIRST)


def _checked(path: Path, name: str, sha256: str) -> tuple[SplatHeader, str]:
    """Return the header and the SHA-256 of a splat file, after checking the file.

    Raises:
        OutputError: the file is no whole splat, or its hash is not `sha256` (unless that is empty).
    """
    found, digest = check_splat(path), sha256_of(path)
    if isinstance(found, Rejected):
        raise ChangedOnDisk(name, found.reason)
    if sha256 and digest != sha256:
        raise ChangedOnDisk(name, "it is not the splat that was accepted")
    return read_header(path), digest
