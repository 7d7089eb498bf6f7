"""How good accepted splats are beyond PSNR: inspected one by one, and certified; also at the end of a night."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from splatbatch.errors import Interrupted, SplatbatchError
from splatbatch.monitor.telling import Lines, tell
from splatbatch.night.interruption import Interruption
from splatbatch.night.making import Steps, certifying
from splatbatch.plain_text import one_line, spell_some
from splatbatch.report.quality import drop_in_words
from splatbatch.scene.patches import spell
from splatbatch.scheduler import single
from splatbatch.scheduler.rounds import Rounds
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store.ledger import Ledger
from splatbatch.store.records.quality import Inspection, grade_in_words
from splatbatch.store.records.run import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.quality.inspection import SCENE, inspecting, order, order_scene
from splatbatch.tasks.task import Task, of_patches

MOST_NAMED = 5
Found = Mapping[str, Inspection]


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


def inspect_tasks(
    batch: Batch, rounds: Rounds, how: Closely = Closely(), ledger: Ledger = single.UNWRITTEN
) -> tuple[Found, Mapping[str, str]]:
    """Inspect splat by splat; the output lock must be held. One that fails does not keep the others from it."""
    found, failed = dict[str, Inspection](), dict[str, str]()
    for task in (*of_patches(batch.tasks), *([None] if how.of_scene else [])):
        name = task.name if task else SCENE
        if rounds.stop():
            break
        try:
            found[name], is_new = _inspected(batch, task, rounds, how, ledger)
        except SplatbatchError as error:
            failed[name] = f"{error.message} {error.hint}" if error.hint else error.message
            continue
        except Exception as error:  # noqa: BLE001 - a fault of ours over one splat keeps the others from nothing
            failed[name] = f"internal fault: {type(error).__name__}: {error}"
            continue
        if is_new:
            tell(_in_words(name, found[name]))
    return found, failed


def inspect_wanted(batch: Batch, rounds: Rounds, ledger: Ledger) -> Afterwards | None:
    """Inspect the splats that are there, where the YAML asks for it; return what came of that: they are trained."""
    wanted = wanted_by(batch)
    trained = [name for name in wanted if batch.output.patch(name).read_result() is not None]
    found, failed = inspect_tasks(batch.only(trained), rounds, ledger=ledger) if trained else ({}, {})
    for name, why in failed.items():
        tell(f"{name}: not inspected: {why}")
    skipped = {name: f"interrupted ({rounds.stop()})" for name in trained if name not in {**found, **failed}}
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
    why = spell_some((f"not inspected: {name}: {why}" for name, why in failed.items()), MOST_NAMED, "; ")
    parts += [why] if why else []
    parts += [f"not inspected, for want of a splat: {spell(lacking, MOST_NAMED)}"] if lacking else []
    command = "splatbatch inspect" if failed else "splatbatch train" if state == LEFT_OUT else ""
    return Afterwards("inspect", state, one_line("; ".join(parts)), command, time.time())


def _inspected(
    batch: Batch, task: Task | None, rounds: Rounds, how: Closely, ledger: Ledger
) -> tuple[Inspection, bool]:
    """Inspect the splat of a task, or of the merged scene, unless that is done, and certify it.

    Returns:
        what was found, and whether just now.
    """
    folder = batch.output.patch(task.name) if task else batch.output.scene
    told = order(batch, task, measures_drop=how.measures_drop) if task else order_scene(batch)
    made = inspecting(batch, told, folder)
    if is_new := how.is_again or not made.is_fresh(batch.output):
        steps = Steps(f"inspect {told.patch}", made.home(batch.output), Lines(tell))

        def beat() -> None:
            rounds.beat()
            steps.look()

        single.make(batch.config, made, replace(rounds, beat=beat), f"inspect {told.patch}", ledger)
    if not (certificate := certifying(batch, task)).is_fresh(batch.output):
        single.make(batch.config, certificate, rounds, f"certify {told.patch}", ledger)
    return folder.read_inspection() or Inspection(), is_new


def _in_words(name: str, found: Inspection) -> str:
    over = ", ".join(figure.name for figure in found.found)
    words = f"{name}: {grade_in_words(found.grade)}" + (f" ({over})" if over else "")
    return words + (f"; {told}" if (told := drop_in_words(found.dropped)) else "")
