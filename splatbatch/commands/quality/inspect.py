"""`inspect`: how good accepted splats are beyond PSNR, figure by figure, with a grade and advice."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, open_table, print_json, print_warnings, tell
from splatbatch.commands.scene.evaluate import renew_report
from splatbatch.errors import SplatbatchError
from splatbatch.files import write_json
from splatbatch.night.interruption import Interruption
from splatbatch.plain_text import one_line, plain
from splatbatch.report.quality import drop_in_words
from splatbatch.scene.patches import spell
from splatbatch.scheduler.scene.attempt import Hooks
from splatbatch.scheduler.scene.inspecting import inspect as measure
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store.records.afterwards import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.store.records.quality.certificate import Certificate, read_certificate
from splatbatch.store.records.quality.inspection import GRADES, Inspection, QualityFigure, grade_in_words
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.quality.certificate import certificate_of, certificate_of_scene
from splatbatch.tasks.quality.inspection import SCENE, accepted, known, order, order_scene
from splatbatch.tasks.task import Task

NOT_ALL = 1
COLUMNS = ("patch", "grade", "figure", "value", "limit", "what", "photographs")
MOST_NAMED = 5
Found = Mapping[str, Inspection]


@dataclass(frozen=True)
class Wish:
    """What is to be inspected, and how closely."""

    is_again: bool = False
    """Also what has been inspected as it is."""
    measures_drop: bool = False
    """Train twice, shortly, with and without the photographs that figures name."""
    of_scene: bool = False
    """The merged scene, too."""


def inspect(config: Path | None, names: Sequence[str], wish: Wish, *, as_json: bool) -> None:
    """Inspect accepted splats that nobody has inspected yet; exit with 1 if one cannot be."""
    terminal.never_block()
    wanted = [name for name in names if name != SCENE]
    batch = open_batch(config, wanted)
    if is_of_scene := len(wanted) < len(names) and SCENE not in [task.name for task in batch.every]:
        batch = batch if wanted else batch.only([])
    elif len(wanted) < len(names):  # a patch of that name
        batch = open_batch(config, names)
    print_warnings(batch.config.warnings)
    found, failed = inspected(batch, Interruption(), replace(wish, of_scene=is_of_scene))
    if wanted_by(batch.whole()):  # what a night has left out is made good
        batch.output.note_afterwards("inspect", not_inspected(batch.whole(), "splatbatch inspect was not asked for it"))
    renew_report(batch.whole())
    if as_json:
        print_json({name: one.to_record() for name, one in found.items()})
    else:
        show(found)
    for name, why in failed.items():
        typer.echo(one_line(f"{name}: {why}"), err=True)
    raise typer.Exit(NOT_ALL if failed else 0)


def inspected(batch: Batch, interruption: Interruption, wish: Wish) -> tuple[Found, Mapping[str, str]]:
    """Inspect the splats of a batch, and return what was found, and why others were not; the folder is held.

    Raises:
        SplatbatchError: nothing can be run here.
    """
    batch.output.create()
    with held_alone(batch.output, batch.terms, tell) as beat:
        found, failed = inspect_tasks(batch, Hooks(interruption.reason, beat), wish)
    if interruption.signal:
        raise typer.Exit(interruption.exit_code)
    return found, failed


def inspect_tasks(
    batch: Batch, hooks: Hooks, wish: Wish = Wish(), say: Callable[[str], None] = tell
) -> tuple[Found, Mapping[str, str]]:
    """Inspect splat by splat; the output lock must be held. One that fails does not keep the others from it."""
    found, failed = dict[str, Inspection](), dict[str, str]()
    of_patches = [(task.name, partial(_of_task, batch, task)) for task in batch.tasks if not task.patch.is_backdrop]
    for name, measured in (*of_patches, *([(SCENE, partial(_of_scene, batch))] if wish.of_scene else [])):
        if hooks.stop():
            break
        try:
            found[name], is_new = measured(hooks, wish)
        except SplatbatchError as error:
            failed[name] = f"{error.message} {error.hint}" if error.hint else error.message
            continue
        except Exception as error:  # noqa: BLE001 - a fault of ours over one splat keeps the others from nothing
            failed[name] = f"internal fault: {type(error).__name__}: {error}"
            continue
        if is_new:
            say(one_line(in_words(name, found[name])))
    return found, failed


def inspect_wanted(batch: Batch, hooks: Hooks) -> Afterwards | None:
    """Inspect the splats that are there, where the YAML asks for it; return what came of that: they are trained."""
    wanted = wanted_by(batch)
    trained = [name for name in wanted if batch.output.patch(name).read_result() is not None]
    found, failed = inspect_tasks(batch.only(trained), hooks) if trained else ({}, {})
    for name, why in failed.items():
        tell(plain(f"{name}: not inspected: {why}"))
    skipped = {name: f"interrupted ({hooks.stop()})" for name in trained if name not in {**found, **failed}}
    return came_of(wanted, found, {**failed, **skipped})


def wanted_by(batch: Batch) -> list[str]:
    """Return the patches whose splats the YAML wants inspected."""
    return [task.name for task in batch.tasks if task.recipe.evaluation.inspect and not task.patch.is_backdrop]


def not_inspected(batch: Batch, why: str) -> Afterwards | None:
    """Return that nobody has inspected what is trained, although the YAML asks for it; None: it does not."""
    wanted = wanted_by(batch)
    folders = {name: batch.output.patch(name) for name in wanted}
    known = [name for name, folder in folders.items() if folder.read_inspection() is not None]
    trained = [name for name, folder in folders.items() if folder.read_result() is not None]
    return came_of(wanted, known, {name: why for name in trained if name not in known})


def came_of(wanted: Collection[str], found: Collection[str], failed: Mapping[str, str]) -> Afterwards | None:
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


def _of_task(batch: Batch, task: Task, hooks: Hooks, wish: Wish) -> tuple[Inspection, bool]:
    """Inspect a patch's splat unless that is done, and certify it; return what was found, and whether just now."""
    folder = batch.output.patch(task.name)
    settings = order(batch, task, measures_drop=wish.measures_drop)
    earlier = None if wish.is_again else known(folder, settings)
    found = earlier or measure(batch.config, settings, folder, hooks)
    _certify(folder.certificate, certificate_of(task, accepted(folder), found))
    return found, earlier is None


def _of_scene(batch: Batch, hooks: Hooks, wish: Wish) -> tuple[Inspection, bool]:
    """Inspect the merged scene unless that is done, and certify it; return what was found, and whether just now."""
    folder, settings = batch.output.scene, order_scene(batch)
    earlier = None if wish.is_again else known(folder, settings)
    found = earlier or measure(batch.config, settings, folder, hooks)
    _certify(folder.certificate, certificate_of_scene(folder, settings, found))
    return found, earlier is None


def _certify(file: Path, made: Certificate) -> None:
    """Write a certificate unless it lies there."""
    if read_certificate(file) != made.to_record():
        write_json(file, made.to_record())


def in_words(name: str, found: Inspection) -> str:
    """Return what was found in a line."""
    over = ", ".join(figure.name for figure in found.found)
    words = f"{name}: {grade_in_words(found.grade)}" + (f" ({over})" if over else "")
    return words + (f"; {told}" if (told := drop_in_words(found.dropped)) else "")


def show(found: Found) -> None:
    """Print what exceeds its limit, and what to do about it."""
    console, table = open_console(), open_table(COLUMNS, ("patch", "grade", "figure", "what", "photographs"))
    for name, one in found.items():
        for figure in one.found or (QualityFigure("all within their limits"),):
            table.add_row(one_line(name), one.grade, *_row(figure))
    console.print(table)
    for letter in sorted({one.grade for one in found.values()} & GRADES.keys()):
        typer.echo(one_line(grade_in_words(letter)))
    for name, one in found.items():
        if told := drop_in_words(one.dropped):
            typer.echo(one_line(f"{name}: {told}"))
    advice = {figure.name: figure.advice for one in found.values() for figure in one.found}
    for figure_name, words in advice.items():
        typer.echo(one_line(f"{figure_name}: {words}"))


def _row(figure: QualityFigure) -> list[str]:
    named = ", ".join(figure.subjects[:MOST_NAMED]) + (", …" if len(figure.subjects) > MOST_NAMED else "")
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure.value, figure.limit))
    return [figure.name, value, limit, f"{figure.unit} {figure.meaning}".strip(), one_line(named)]
