"""Settings and tasks for inspecting splats: of a patch, by its manifest (result.json), or of the merged scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.config import TaskId
from splatbatch.errors import SceneError
from splatbatch.files import MIB
from splatbatch.hashing import FileFacts
from splatbatch.output.folders import SplatFolder
from splatbatch.output.records.quality import Inspection, InspectionSettings, health_rules
from splatbatch.output.results import why_not_the_splat
from splatbatch.scene.colmap.reconstruction import read_cameras
from splatbatch.scene.holdout import in_one_piece
from splatbatch.scene.memory_estimate import GPU_CONTEXT_MIB, MemoryEstimate
from splatbatch.scene.partition.record import read_partition
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.splats import read_header
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.patch_state import PatchState
from splatbatch.tasks.product import compare_product, key_of
from splatbatch.tasks.scene import evaluation
from splatbatch.tasks.scene.evaluation import MeasureTask
from splatbatch.tasks.shared_decisions.holdout import photographs_of, recipe_of
from splatbatch.tasks.task import Task, untrained
from splatbatch.trainers.builtin import settings_for

SCENE = "scene"
"""Name of the merged scene in a list of patches."""
MOST_PHOTOS = 400
"""Most photographs of the merged scene that an inspection decodes."""
ROOM_MIB, HOST_MIB = 512, 4000
"""Memory of an inspection in MiB: on the GPU for renderings and torch; on the host for torch, model and photographs."""
GAUSSIAN_BYTES, PIXEL_BYTES = 1000, 100
"""GPU memory in bytes: per Gaussian, for four copies of its values; per pixel, for sixteen copies of each channel."""
VERSION = 7
"""Version of the figures; raise it when a figure is computed differently, so that splats are inspected again."""


def open_named(config: Path | None, names: Sequence[str]) -> tuple[Batch, bool]:
    """Return a batch with the named patches, and whether the merged scene is named, too.

    If a patch has the name "scene", this patch is meant. If only the scene is named, no task of the batch is selected.

    Args:
        config: path of the YAML; None: the default one.
        names: names of patches, and "scene" for the merged scene; empty: all patches.

    Raises:
        ConfigError: there is no such patch, or the YAML is wrong.
        SceneError: there are no patches, or the partition is broken.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    wanted = [name for name in names if name != SCENE]
    batch = open_batch(config, wanted)
    if len(wanted) == len(names):
        return batch, False
    if SCENE in [task.name for task in batch.every]:
        return open_batch(config, names), False
    return batch if wanted else batch.only([]), True


def order(task: Task) -> InspectionSettings:
    """Return the settings for inspecting the accepted splat of a patch.

    Raises:
        SceneError: there is no accepted splat, the splat is damaged, or model or hold-out list cannot be read.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    result = task.home.read_result()
    why = "not trained yet" if result is None else why_not_the_splat(task.home, result, "content")
    if why or result is None:
        raise SceneError(f"{task.name}: {why}: there is no splat to inspect", "Train the patch: `splatbatch train`.")
    recipe, photographs = recipe_of(task, result), photographs_of(task, result)
    patch = replace(task.patch, offset=result.trained_from.offset)
    orders = replace(settings_for(recipe, patch, task.name), holdout=photographs.held_out)
    piece = tuple(sorted(in_one_piece(patch, recipe.evaluation).intersection(photographs.held_out)))
    settings = orders.to_record() | dict.fromkeys(evaluation.PLACES)
    depends = [result.sha256, result.trained_from.inputs, settings, [*piece]]
    depends += [rules] if (rules := health_rules(result.warnings)) else []
    return InspectionSettings(
        **{**vars(orders), "recipe": recipe.model_dump(mode="json", exclude={"program"})},
        splat=str(task.home.splat_of(result)),
        sha256=result.sha256,
        inputs=key_of(VERSION, *depends),
        warnings=result.warnings,
        piece=piece,
    )


def order_scene(batch: Batch) -> InspectionSettings:
    """Return the settings for inspecting the merged scene, with at most `MOST_PHOTOS` photographs.

    Raises:
        SceneError: the merged splat, the partition or a photograph is missing, or they do not fit together.
        ConfigError: the batch is a sweep or a list of scenes, and makes no single scene.
        OutputError: the merged splat was damaged.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    orders = evaluation.order(batch, batch.output.scene.splat)
    source = read_partition(Path(orders.partition)).source
    merged = batch.output.scene.merged.read()
    warnings = tuple(words for part in (merged.parts if merged else ()) for words in part.warnings)
    rules = health_rules(warnings)
    facts, sha256 = FileFacts(), orders.splat_sha256
    models = [facts.sha256(f"{source}/{name}") for name in MODEL_FILE_NAMES]
    return InspectionSettings(
        patch=SCENE,
        recipe=orders.recipe,
        sparse=str(source),
        offset=orders.offset,
        **orders.photographs,
        splat=orders.splat,
        sha256=sha256,
        warnings=warnings,
        inputs=key_of(
            VERSION, sha256, models, orders.recipe.get("training"), orders.holdout, orders.photographs["tones"], *rules
        ),
        most_photos=MOST_PHOTOS,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectTask(MeasureTask):
    """A task that inspects a splat; its product is the record of the inspection, beside the splat."""

    orders: InspectionSettings
    module = "splatbatch.training.inspection"
    tries = 2
    stands_by = True

    def product(self) -> PatchState:
        """Return the state of the present inspection: up to date if it is complete and has the inputs ordered.

        An inspection without a grade counts as missing.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        found = Inspection.read(self.record)
        return compare_product(self.inputs, found.inputs if found and found.grade else None)


def inspection_task(batch: Batch, orders: InspectionSettings, folder: SplatFolder) -> Task:
    """Return the task that inspects a splat, with a memory estimate for rendering it beside a full-size photograph.

    Args:
        batch: the batch.
        orders: settings of the inspection.
        folder: folder of the splat, where attempts and record lie.

    Raises:
        ValueError: the splat has no valid header.
        SceneError: the cameras cannot be read.
        OSError: the splat cannot be read.
    """
    num = read_header(Path(orders.splat)).num_gaussians
    largest = max((one.width * one.height for one in read_cameras(Path(orders.sparse)).values()), default=0)
    gpu_mib = GPU_CONTEXT_MIB + ROOM_MIB + (num * GAUSSIAN_BYTES + largest * PIXEL_BYTES) // MIB
    return InspectTask(
        TaskId(f"{orders.patch}/inspection"),
        Patch(orders.patch, Path(orders.sparse), Path(orders.images)),
        *untrained(batch.config),
        MemoryEstimate(gpu_mib, HOST_MIB, num, "host", 0),
        orders=orders,
        attempts=folder.inspecting,
        record=folder.inspection,
    )
