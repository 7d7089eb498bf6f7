"""Inspection of accepted splats beyond PSNR: each is inspected and certified, by command or at the end of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from splatbatch import isolated
from splatbatch.errors import Interrupted, SplatbatchError, in_full
from splatbatch.isolated import StopRequested, TaskFault, WaitHooks, answers
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import SplatFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.quality import Inspection, grade_in_words
from splatbatch.output.records.run import DONE, LEFT_OUT, PARTLY, FollowUpResult
from splatbatch.run.follow_ups import by_hand, follow_up_result
from splatbatch.run.progress import ProgressPrinter
from splatbatch.scene.patches import list_names
from splatbatch.scheduler import single
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.inspection import SCENE, inspection_task, order, order_scene
from splatbatch.tasks.task import Task, of_patches
from splatbatch.text import list_some

MOST_NAMED = 5
Found = Mapping[str, Inspection]


@dataclass(frozen=True)
class InspectOptions:
    """Options of an inspection by command."""

    of_scene: bool = False
    """Inspect the merged scene, too, not only the patches."""


def inspect(batch: Batch, how: InspectOptions) -> tuple[Found, Mapping[str, str]]:
    """Inspect the splats of a batch while no training runs.

    Splats with an up-to-date inspection are not inspected again.

    Returns:
        The inspection of each splat, by name; and for each splat that could not be inspected the reason.

    Raises:
        OutputError: a training runs, the output folder cannot be made, or a later version wrote an inspection.
        Interrupted: a signal ended the inspection.
        OSError: the claim of the output folder cannot be made.
    """
    with by_hand(batch, alone=True) as finished:
        found, failed = inspect_tasks(batch, RunHooks(finished.tick, finished.interruption.reason), how)
        if finished.interruption.signal:
            raise Interrupted(finished.interruption.exit_code)
    if patches_to_inspect(batch.whole()):  # replaces the result of the run's follow-up
        batch.output.note_afterwards("inspect", not_inspected(batch.whole(), "`inspect` was run for other patches"))
    return found, failed


def inspect_tasks(
    batch: Batch, rounds: RunHooks, how: InspectOptions = InspectOptions(), ledger: Ledger = single.UNWRITTEN
) -> tuple[Found, Mapping[str, str]]:
    """Inspect splats, then certify them; the caller must hold the output lock.

    Splats with an up-to-date inspection are not inspected again. A splat that fails does not stop the others. Progress
    and grades are printed on stderr. While a splat is inspected on a GPU, the process for the next one starts, reads
    and decodes.

    Args:
        batch: the patches to inspect.
        rounds: called while processes run; may ask to stop, and then the remaining splats are left out.
        how: whether the merged scene is inspected, too.
        ledger: takes the events of the attempts.

    Returns:
        The inspection of each splat, by name; and for each splat that failed the reason.

    Raises:
        LaterFormatError: a later version of splatbatch wrote an inspection.
    """
    subjects: dict[str, Task | None] = {task.name: task for task in of_patches(batch.tasks)}
    subjects |= {SCENE: None} if how.of_scene else {}
    failed, made = dict[str, str](), dict[str, Task]()
    for name, task in subjects.items():
        if rounds.stop():
            break
        rounds.tick()
        try:
            made[name] = inspection_task(batch, order(task) if task else order_scene(batch), _folder(batch, task))
        except Exception as error:  # noqa: BLE001 - an internal fault with one splat must not stop the others
            failed[name] = _why(name, error)
    stale = {name: one for name, one in made.items() if not one.is_fresh()}
    for name, outcome in _made(batch, stale, rounds, ledger).items():
        if isinstance(outcome, Exception):
            del made[name]
            failed |= {} if rounds.stop() else {name: _why(name, outcome)}
    failed |= _certify(batch, {name: subjects[name] for name in made}, rounds)
    inspected = [name for name in made if name not in failed]
    return {name: _folder(batch, subjects[name]).read_inspection() or Inspection() for name in inspected}, failed


def _folder(batch: Batch, subject: Task | None) -> SplatFolder:
    return batch.output.patch(subject.name) if subject else batch.output.scene


def _why(name: str, error: Exception) -> str:
    """Return why a splat was not inspected, without its name, which stands before it."""
    if isinstance(error, SplatbatchError):
        return in_full(error).removeprefix(f"{name}: ")
    if isinstance(error, TaskFault):
        return "; ".join(error.diagnosis.evidence)
    return f"error in splatbatch itself: {type(error).__name__}: {error}"


def _made(
    batch: Batch, stale: Mapping[str, Task], rounds: RunHooks, ledger: Ledger
) -> Mapping[str, AttemptFolder | Exception]:
    """Inspect splats; return for each the attempt that did it, or the exception that prevented it."""
    watched = {name: ProgressPrinter(f"inspect {name}", task.home, PipeWriter()) for name, task in stale.items()}

    def beat() -> None:
        rounds.tick()
        for name, one in tuple(watched.items()):
            if (folder := one.look()) and folder.has_exited():
                _tell(name, folder, watched)

    verbs = {task.name: f"inspect {name}" for name, task in stale.items()}
    try:
        found = single.make_all(batch.config, [*stale.values()], replace(rounds, tick=beat), verbs, ledger)
    except Exception as error:  # noqa: BLE001 - no slot here, or an internal fault
        return dict.fromkeys(stale, error)
    made = {name: found[task.name] for name, task in stale.items()}
    for name, one in made.items():
        if isinstance(one, AttemptFolder) and name in watched:
            _tell(name, one, watched)
    return made


def _tell(name: str, folder: AttemptFolder, watched: dict[str, ProgressPrinter]) -> None:
    """Print the grade and findings of a splat once its inspection has ended, and stop watching it."""
    if found := folder.read(folder.metrics, Inspection):
        over = ", ".join(figure.name for figure in found.found)
        print_err(f"{name}: {grade_in_words(found.grade)}" + (f" ({over})" if over else ""))
        del watched[name]


def _certify(batch: Batch, subjects: Mapping[str, Task | None], rounds: RunHooks) -> Mapping[str, str]:
    """Certify inspected splats that lack a valid certificate; return for each that failed the reason.

    Readers do this, since it hashes files of the scene.
    """
    from splatbatch.publish import certificate  # loaded only if splats are inspected

    failed = dict[str, str]()
    stale = [name for name, one in subjects.items() if not certificate.is_certified(batch, one)]

    def certify(name: str) -> None:
        """Write the certificate of a splat; runs in a reader process."""
        certificate.certify(batch, subjects[name])

    with suppress(StopRequested):
        for name, found in answers(isolated.start(certify, stale), WaitHooks(rounds.tick, rounds.stop, print_err)):
            try:
                found.result("certify")
            except OSError as error:
                failed[name] = str(error)
            except (SplatbatchError, TaskFault) as error:
                failed[name] = _why(name, error)
    return failed


def inspect_as_configured(batch: Batch, rounds: RunHooks, ledger: Ledger) -> FollowUpResult | None:
    """Inspect the splats of trained patches, where the YAML asks for it; return the result.

    None: the YAML asks for no inspection. A patch that could not be inspected is named on stderr.

    Raises:
        LaterFormatError: a later version of splatbatch wrote an inspection or the record of a splat.
    """
    wanted = patches_to_inspect(batch)
    trained = [name for name in wanted if batch.output.patch(name).read_result() is not None]
    found, failed = inspect_tasks(batch.only(trained), rounds, ledger=ledger) if trained else ({}, {})
    for name, why in failed.items():
        print_err(f"{name}: not inspected: {why}")
    skipped = {name: f"interrupted ({rounds.stop()})" for name in trained if name not in {**found, **failed}}
    return _result(wanted, found, {**failed, **skipped})


def patches_to_inspect(batch: Batch) -> list[str]:
    """Return the patches whose splats the YAML wants inspected (`evaluation.inspect`)."""
    return [task.name for task in of_patches(batch.tasks) if task.recipe.evaluation.inspect]


def not_inspected(batch: Batch, why: str) -> FollowUpResult | None:
    """Return a result that lists the trained patches not inspected, although the YAML asks for it, because of `why`.

    Used where this run does not inspect. None: the YAML asks for no inspection.

    Raises:
        LaterFormatError: a later version of splatbatch wrote an inspection or the record of a splat.
    """
    wanted = patches_to_inspect(batch)
    folders = {name: batch.output.patch(name) for name in wanted}
    inspected = [name for name, folder in folders.items() if folder.read_inspection() is not None]
    trained = [name for name, folder in folders.items() if folder.read_result() is not None]
    return _result(wanted, inspected, {name: why for name in trained if name not in inspected})


def _result(wanted: Collection[str], found: Collection[str], failed: Mapping[str, str]) -> FollowUpResult | None:
    """Return the result of an inspection that the YAML asks for; None where it asks for none.

    A patch without a splat is listed as such, not as a failure: it must be trained first.
    """
    if not wanted:
        return None
    state = PARTLY if found and failed else LEFT_OUT if failed or not found else DONE
    lacking = [name for name in wanted if name not in found and name not in failed]
    parts = [f"inspected: {list_names([*found], MOST_NAMED)}"] if found else []
    why = list_some((f"not inspected: {name}: {why}" for name, why in failed.items()), MOST_NAMED, "; ")
    parts += [why] if why else []
    parts += [f"not inspected, no splat yet: {list_names(lacking, MOST_NAMED)}"] if lacking else []
    command = "splatbatch inspect" if failed else "splatbatch train" if state == LEFT_OUT else ""
    return follow_up_result("inspect", state, "; ".join(parts), command)
