"""Settings and tasks for measuring a splat of the whole scene: on its hold-out, beside the patches' own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from splatbatch.config import NO_OFFSET, Offset, Rung, TaskId
from splatbatch.errors import SceneError
from splatbatch.files import write_json
from splatbatch.hashing import FileFacts
from splatbatch.outcome import Rejected
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import BACKDROP, MergedFiles
from splatbatch.output.records.colors import as_photographed
from splatbatch.output.records.evaluation import EvaluationSettings
from splatbatch.output.records.metrics import MeasurementRecord
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.output.results import why_not_the_splat
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch, list_names
from splatbatch.scene.photos.folders import FolderListings, FoundPhotograph, find_masks, stored_photographs
from splatbatch.splats import check_splat, read_header
from splatbatch.splats.blocks import sample_rows
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.patch_state import PatchState
from splatbatch.tasks.product import compare_product, key_of
from splatbatch.tasks.scene.candidates import offset_of, partition_for
from splatbatch.tasks.scene.merge import check_whole
from splatbatch.tasks.shared_decisions.holdout import held_out
from splatbatch.tasks.task import Task, patches_of, untrained
from splatbatch.text import spell_place

VERSION = 4
"""Version of the figures; raise it when a figure is computed differently, so that scenes are measured again."""
HELD_SHARE = "held_share"
"""Name of the setting that rungs change: the share of memory for Gaussians that wait to be drawn."""
LESS_MEMORY: tuple[Rung, ...] = ({HELD_SHARE: "x0.25"}, {HELD_SHARE: "x0.25"})
"""Rungs after an attempt that ran out of memory: a quarter, then a sixteenth of the memory for waiting Gaussians."""
PLACES = ("splat", "partition", "sparse", "source", "images", "masks", "splats", "backdrop")
"""Settings that are paths, which the hash of the evaluation's inputs (`key_of`) leaves out.

Of the files there, those that the figures depend on are hashed by content instead.
"""
LEAST_INSIDE = 0.01
"""Smallest share of a splat's Gaussians that must lie within the partition for it to be a splat of that scene."""


def order(batch: Batch, splat: Path) -> EvaluationSettings:
    """Return the settings for measuring a splat of the scene.

    Args:
        batch: the batch whose patches were cut from the scene.
        splat: path of the splat, absolute or relative to the working folder.

    Raises:
        SceneError: the partition, the splat or a photograph is missing, or they do not fit together; photographs, or
            their masks, lie in several folders.
        ConfigError: the batch is a sweep or a list of scenes, and makes no single scene.
        OutputError: the merged splat was damaged.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    partition = partition_for(batch)
    offset = offset_of(batch, partition)
    scene = batch.output.scene
    check_whole(scene.merged if splat.resolve() == scene.splat.resolve() else MergedFiles.at(splat))
    check_place(splat, partition, offset)
    splat = splat.absolute()  # its process works in another folder
    holdout, notes = held_out(batch, splat)
    patches = patches_of(batch.every)
    places = {(patch.images, patch.masks) for patch in patches}
    if len(places) > 1:
        names = list_names(sorted(str(images) for images, _ in places), 3)
        message = f"scene.images: each patch has photographs of its own ({names})"
        raise SceneError(message, "Set scene.images to one folder that holds all photographs.")
    folder, folders = stored_photographs(patches[0].images)[0], FolderListings()
    missing = [name for name in holdout if not isinstance(folders.locate(folder, name), FoundPhotograph)]
    if missing:
        lacking = f"{len(missing)} of {len(holdout)} held-out photographs are missing: {list_names(missing, 3)}"
        raise SceneError(f"{folder}: {lacking}", "Put these photographs back, or set scene.images to their folder.")
    found, hashes = _splats(batch, partition, offset)
    settings = replace(
        found,
        splat=str(splat),
        splat_sha256=FileFacts().sha256(str(splat)),
        partition=str(partition.path),
        offset=offset,
        **as_photographed(patches),
        recipe=batch.config.recipe("").model_dump(mode="json", exclude={"program"}),
        holdout=holdout,
        notes=notes,
    )
    facts = FileFacts()
    models = [facts.sha256(f"{partition.source}/{name}") for name in MODEL_FILE_NAMES]
    decisive = settings.to_record() | {"recipe": settings.recipe.get("training")} | dict.fromkeys(PLACES)
    contents = [facts.sha256(str(path)) for path in (partition.path, *(f"{folder}/{name}" for name in holdout))]
    masks = find_masks(Path(settings.masks) if settings.masks else None, holdout)
    of_masks = [facts.sha256(str(mask)) for mask in masks.values()]
    return replace(settings, inputs=key_of(VERSION, contents, of_masks, models, dict(hashes), decisive))


def check_place(splat: Path, partition: Partition, offset: Offset) -> None:
    """Check that a splat is whole, has the offset of the batch, and lies within the scene of the partition.

    A splat without an offset passes, since other programs write none. Of a sample of Gaussians, the share
    `LEAST_INSIDE` must lie within the scene.

    Raises:
        SceneError: the splat is not whole, has another offset, or lies elsewhere.
    """
    found = check_splat(splat)
    if isinstance(found, Rejected):
        hint = "Merge the patches first: `splatbatch merge`." if found.reason == "missing" else "Write the splat again."
        raise SceneError(f"{splat}: {found.reason}", hint)
    there = read_header(splat).offset
    if there not in (NO_OFFSET, offset):  # other programs write no offset, whatever frame they were given
        message = f"{splat}: its coordinates have the offset {spell_place(there)}, the patches {spell_place(offset)}"
        raise SceneError(message, "Name a splat whose header has the same offset as the patches.")
    low = np.min([core.bounds.lower for core in partition.cores], axis=0)
    high = np.max([core.bounds.upper for core in partition.cores], axis=0)
    places = partition.in_axes(sample_rows(splat).astype(np.float64), offset)
    inside = ((places >= low) & (places <= high)).all(axis=1).mean()
    if inside < LEAST_INSIDE:
        said = f"only {100 * inside:.2g} % of its Gaussians lie inside the scene of {partition.path}"
        raise SceneError(f"{splat}: lies elsewhere: {said}", "Name a splat of this scene, in its coordinates.")


def _splats(batch: Batch, partition: Partition, offset: Offset) -> tuple[EvaluationSettings, Mapping[str, str]]:
    """Return settings with the patches' splats, figures and reasons for missing ones; and the SHA-256 of each splat."""
    found, hashes, before = EvaluationSettings(), dict[str, str](), []
    place, backdrop = batch.output.patch(BACKDROP).accepted_splat()
    for core in partition.cores:
        folder = batch.output.patch(core.name)
        result = folder.read_result()
        why = "not trained yet" if result is None else why_not_the_splat(folder, result, "time")
        splat = folder.splat_of(result) if result else folder.splat
        if not why and read_header(splat).offset not in (NO_OFFSET, offset):
            why = "its splat has another offset than the scene"
        if why or result is None:
            found.lacking[core.name] = why
            continue
        found.splats[core.name], hashes[core.name] = str(splat), result.sha256
        found.own[core.name] = dict(result.metrics.photos())
        before += [core.name] if backdrop and result.trained_from.backdrop == backdrop else []
    return replace(found, backdrop=str(place), before_backdrop=tuple(before)), hashes


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasureTask(Task):
    """Base of tasks that measure a splat as settings.json orders; the product is a record beside the splat."""

    orders: InspectionSettings | EvaluationSettings
    record: Path
    """Path of the record, such as evaluation.json beside the splat; the file may be absent."""

    def product(self) -> PatchState:
        """Return the state of the record: up to date if its inputs are those ordered, missing if it cannot be read.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        found = MeasurementRecord.read(self.record)
        return compare_product(self.inputs, found.inputs if found else None)

    def keep(self, folder: AttemptFolder) -> None:
        """Copy metrics.json of the attempt to the record beside the splat, replacing the record.

        Nothing happens if metrics.json cannot be read.

        Raises:
            OSError: the record cannot be written.
            LaterFormatError: a later version of splatbatch wrote metrics.json.
        """
        if found := MeasurementRecord.read(folder.metrics):
            write_json(self.record, found.to_record())


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluateTask(MeasureTask):
    """A task that measures a splat of the whole scene; its product is the evaluation."""

    orders: EvaluationSettings
    module = "splatbatch.training.scene"
    tries = 3

    @property
    def ladders(self) -> Mapping[str, tuple[Rung, ...]]:
        """Ladders for attempts that ran out of memory: less memory for Gaussians that wait to be drawn."""
        return {"gpu_memory": LESS_MEMORY, "host_memory": LESS_MEMORY}

    def settings(self) -> Mapping[str, Any]:
        """Return the setting that rungs change: the share of memory for Gaussians that wait to be drawn, 0 to 1."""
        return {HELD_SHARE: self.orders.held_share}

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the task with another share of memory for waiting Gaussians; other changes are ignored."""
        return replace(self, orders=replace(self.orders, held_share=changes.get(HELD_SHARE, self.orders.held_share)))


def evaluation_task(batch: Batch, orders: EvaluationSettings) -> Task:
    """Return the task that measures a splat of the scene; its record lies beside the splat."""
    scene, subject = batch.output.scene, Patch(orders.patch, Path(orders.sparse), Path(orders.images))
    return EvaluateTask(
        TaskId("scene/evaluation"),
        subject,
        *untrained(batch.config),
        orders=orders,
        attempts=scene.evaluating,
        record=scene.evaluation_of(Path(orders.splat)),
    )
