"""What is made of accepted splats while nobody trains: inspections, the merged scene, its evaluation, publications."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from splatbatch.errors import Interrupted, SplatbatchError
from splatbatch.files import write_json
from splatbatch.monitor.telling import open_telling, tell
from splatbatch.night.interruption import Interruption
from splatbatch.plain_text import one_line
from splatbatch.publish.publish import Wish
from splatbatch.publish.publish import publish as publish_splats
from splatbatch.publish.source import Published
from splatbatch.report.quality import drop_in_words
from splatbatch.scene.patches import spell
from splatbatch.scheduler import single
from splatbatch.scheduler.rounds import Rounds
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.splats.merge import check_place
from splatbatch.store.folders import MergedFiles
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation
from splatbatch.store.records.publication import Publication
from splatbatch.store.records.quality import Certificate, Inspection, grade_in_words
from splatbatch.store.records.run import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.quality import certificate
from splatbatch.tasks.quality.certificate import certificate_of, certificate_of_scene
from splatbatch.tasks.quality.inspection import SCENE, accepted, inspecting, order, order_scene
from splatbatch.tasks.scene.cleaning import Cleaning
from splatbatch.tasks.scene.evaluation import evaluating
from splatbatch.tasks.scene.merging import Done, gather
from splatbatch.tasks.scene.merging import merge as merge_parts
from splatbatch.tasks.task import Task, of_patches

MOST_NAMED = 5
Found = Mapping[str, Inspection]


@dataclass(frozen=True)
class MergeOptions:
    """What is wanted of a merged scene."""

    out: Path | None = None
    """The splat; None: the output folder's own place for it."""
    allow_missing: bool = False
    clean: bool = False
    keep_uncleaned: bool = False
    """Write it without cleaning, too."""


@dataclass(frozen=True)
class MergedScene:
    """A scene that was merged just now, or found to be as it would be."""

    files: MergedFiles
    done: Done
    uncleaned: MergedFiles | None = None
    """Where it lies as it was before it was cleaned."""


def merge(batch: Batch, options: MergeOptions = MergeOptions()) -> MergedScene:
    """Merge the splats of all patches into one.

    Raises:
        SplatbatchError: they cannot be merged, or somebody trains them; nothing was written.
    """
    files = batch.output.scene.merged
    if options.out is not None:
        check_place(options.out, batch.output.path)
        batch.see_apart("--out", options.out, options.out.parent)
        files = MergedFiles.at(options.out)
    uncleaned = None
    # where nothing was ever trained there is nothing to lock, and nothing to merge
    with held_alone(batch.output, batch.terms, tell) if batch.output.path.is_dir() else nullcontext():
        parts, cleaning = gather(batch, allow_missing=options.allow_missing), None
        if options.clean:
            cleaning = Cleaning(parts.partition, parts.with_cameras(), parts.offset)
            if options.keep_uncleaned:
                uncleaned = MergedFiles.at(files.splat.with_name(f"{files.splat.stem}-uncleaned.ply"))
                merge_parts(parts, uncleaned)
        done = merge_parts(parts, files, cleaning)
    return MergedScene(files, done, uncleaned)


def evaluate(batch: Batch, settings: EvaluationSettings, interruption: Interruption) -> SceneEvaluation:
    """Measure a splat of the scene, and write down how good it is.

    Raises:
        SplatbatchError: it cannot be measured.
        Interrupted: somebody wants it to end.
    """
    batch.output.create()
    try:
        with held_alone(batch.output, batch.terms, tell) as beat:
            rounds = Rounds(interruption.reason, beat)
            single.make(batch.config, evaluating(batch, settings), rounds, "evaluate")
    except SplatbatchError as error:
        if not interruption.signal:
            raise
        tell(error.message)
        raise Interrupted(interruption.exit_code) from error
    return batch.output.scene.read_evaluation(Path(settings.splat)) or SceneEvaluation()


def publish(batch: Batch, splats: list[Published], wish: Wish) -> Publication:
    """Publish splats.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    for warning in (warning for splat in splats for warning in splat.warnings):
        tell(f"warning: {warning}")
    with open_telling() as telling:
        return publish_splats(splats, wish, batch.output.path, telling)


@dataclass(frozen=True)
class Closely:
    """What is to be inspected, and how closely."""

    is_again: bool = False
    """Also what has been inspected as it is."""
    measures_drop: bool = False
    """Train twice, shortly, with and without the photographs that figures name."""
    of_scene: bool = False
    """The merged scene, too."""


def inspect(batch: Batch, interruption: Interruption, how: Closely) -> tuple[Found, Mapping[str, str]]:
    """Inspect the splats of a batch, and return what was found, and why others were not.

    Raises:
        SplatbatchError: nothing can be run here.
        Interrupted: somebody wants it to end.
    """
    batch.output.create()
    with held_alone(batch.output, batch.terms, tell) as beat:
        found, failed = inspect_tasks(batch, Rounds(interruption.reason, beat), how)
    if interruption.signal:
        raise Interrupted(interruption.exit_code)
    if wanted_by(batch.whole()):  # what a night has left out is made good
        batch.output.note_afterwards("inspect", not_inspected(batch.whole(), "splatbatch inspect was not asked for it"))
    return found, failed


def inspect_tasks(batch: Batch, rounds: Rounds, how: Closely = Closely()) -> tuple[Found, Mapping[str, str]]:
    """Inspect splat by splat; the output lock must be held. One that fails does not keep the others from it."""
    found, failed = dict[str, Inspection](), dict[str, str]()
    each = [(task.name, partial(_of_task, batch, task)) for task in of_patches(batch.tasks)]
    for name, measured in (*each, *([(SCENE, partial(_of_scene, batch))] if how.of_scene else [])):
        if rounds.stop():
            break
        try:
            found[name], is_new = measured(rounds, how)
        except SplatbatchError as error:
            failed[name] = f"{error.message} {error.hint}" if error.hint else error.message
            continue
        except Exception as error:  # noqa: BLE001 - a fault of ours over one splat keeps the others from nothing
            failed[name] = f"internal fault: {type(error).__name__}: {error}"
            continue
        if is_new:
            tell(_in_words(name, found[name]))
    return found, failed


def inspect_wanted(batch: Batch, stop: Callable[[], str], beat: Callable[[], None]) -> Afterwards | None:
    """Inspect the splats that are there, where the YAML asks for it; return what came of that: they are trained."""
    wanted = wanted_by(batch)
    trained = [name for name in wanted if batch.output.patch(name).read_result() is not None]
    found, failed = inspect_tasks(batch.only(trained), Rounds(stop, beat)) if trained else ({}, {})
    for name, why in failed.items():
        tell(f"{name}: not inspected: {why}")
    skipped = {name: f"interrupted ({stop()})" for name in trained if name not in {**found, **failed}}
    return _came_of(wanted, found, {**failed, **skipped})


def wanted_by(batch: Batch) -> list[str]:
    """Return the patches whose splats the YAML wants inspected."""
    return [task.name for task in of_patches(batch.tasks) if task.recipe.evaluation.inspect]


def not_inspected(batch: Batch, why: str) -> Afterwards | None:
    """Return that nobody has inspected what is trained, although the YAML asks for it; None: it does not."""
    wanted = wanted_by(batch)
    folders = {name: batch.output.patch(name) for name in wanted}
    inspected = [name for name, folder in folders.items() if folder.read_inspection() is not None]
    trained = [name for name, folder in folders.items() if folder.read_result() is not None]
    return _came_of(wanted, inspected, {name: why for name in trained if name not in inspected})


def _came_of(wanted: Collection[str], found: Collection[str], failed: Mapping[str, str]) -> Afterwards | None:
    """Return what came of an inspection that the YAML asks for; None where it asks for none.

    What has no splat is missing, and no more than that: training it comes first.
    """
    if not wanted:
        return None
    state = PARTLY if found and failed else LEFT_OUT if failed or not found else DONE
    lacking = [name for name in wanted if name not in found and name not in failed]
    parts = [f"inspected: {spell([*found], MOST_NAMED)}"] if found else []
    parts += [f"not inspected: {name}: {why}" for name, why in [*failed.items()][:MOST_NAMED]]
    parts += [f"and {len(failed) - MOST_NAMED} more"] if len(failed) > MOST_NAMED else []
    parts += [f"not inspected, for want of a splat: {spell(lacking, MOST_NAMED)}"] if lacking else []
    command = "splatbatch inspect" if failed else "splatbatch train" if state == LEFT_OUT else ""
    return Afterwards("inspect", state, one_line("; ".join(parts)), command, time.time())


def _of_task(batch: Batch, task: Task, rounds: Rounds, how: Closely) -> tuple[Inspection, bool]:
    """Inspect a patch's splat unless that is done, and certify it; return what was found, and whether just now."""
    folder = batch.output.patch(task.name)
    told = order(batch, task, measures_drop=how.measures_drop)
    is_new = _inspect(batch, inspecting(batch, told, folder), rounds, how)
    found = folder.read_inspection() or Inspection()
    _certify(folder.certificate, certificate_of(task, accepted(folder), found))
    return found, is_new


def _of_scene(batch: Batch, rounds: Rounds, how: Closely) -> tuple[Inspection, bool]:
    """Inspect the merged scene unless that is done, and certify it; return what was found, and whether just now."""
    folder, told = batch.output.scene, order_scene(batch)
    is_new = _inspect(batch, inspecting(batch, told, folder), rounds, how)
    found = folder.read_inspection() or Inspection()
    _certify(folder.certificate, certificate_of_scene(folder, told, found))
    return found, is_new


def _inspect(batch: Batch, task: Task, rounds: Rounds, how: Closely) -> bool:
    """Inspect a splat unless that is done; return whether it was just now."""
    if is_new := how.is_again or not task.is_fresh(batch.output):
        single.make(batch.config, task, rounds, f"inspect {task.patch.name}")
    return is_new


def _certify(file: Path, made: Certificate) -> None:
    """Write a certificate unless it lies there."""
    if not certificate.product(file, made).is_fresh:
        write_json(file, made.to_record())


def _in_words(name: str, found: Inspection) -> str:
    over = ", ".join(figure.name for figure in found.found)
    words = f"{name}: {grade_in_words(found.grade)}" + (f" ({over})" if over else "")
    return words + (f"; {told}" if (told := drop_in_words(found.dropped)) else "")
