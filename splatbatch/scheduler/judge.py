"""Judges the outcome of an attempt from its files once it has ended.

A standby is an attempt that is prepared while all slots are busy. It begins once go.json lies in its folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from splatbatch.failures.advice import PatchContext
from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.exits import in_words
from splatbatch.failures.signatures import Signature
from splatbatch.files import SHARED_MEMORY, sweep
from splatbatch.outcome import (
    Cancelled,
    Diagnosis,
    Exit,
    Exited,
    Failed,
    Made,
    Outcome,
    Rejected,
    Splat,
    Stopped,
    TimedOut,
    Trained,
)
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.log_ends import read_ends
from splatbatch.output.records.attempt import AttemptFacts, ExitFacts
from splatbatch.tasks.task import Task
from splatbatch.trainers import Trainer

FULL_MIB = 2
"""Free space in MiB below which a disk counts as having run full during an attempt."""
STANDING_BY, TRAINING = "standby", "train"
PREPARING = ("", "start", "load", STANDING_BY)
"""Phases of a standby before go.json; empty: no progress is written yet."""
NO_RECORD = "the process ended without an error, but left no valid record of its result (metrics.json)"
"""Message on an attempt that ended well but made no product."""


def died_on_standby(folder: AttemptFolder) -> bool:
    """Return whether an ended attempt died while it stood by, even if go.json was written.

    Such an attempt does not count. False without a readable exit.json.
    """
    told = folder.read_exit()
    return told is not None and told.stood_by and folder.last_progress().phase in PREPARING


def judge(
    folder: AttemptFolder,
    program: Trainer | Task,
    end: Exit,
    background: Callable[[], PatchContext] = PatchContext,
    own: Sequence[Signature] = (),
) -> Outcome:
    """Return the outcome of an ended attempt.

    An attempt with a valid product counts as trained or made, even if its process failed afterwards. Only without a
    product is the failure diagnosed, or the attempt counted as stopped if it was cancelled.

    Args:
        folder: folder of the attempt.
        program: trainer, or task, whose product is looked for.
        end: how the process ended.
        background: returns facts for the diagnosis; called only if the attempt has failed.
        own: signatures of failures from the site's own file; empty: none.

    Raises:
        LaterFormatError: a later version of splatbatch wrote metrics.json of a task without a splat.
    """
    product = program.collect(folder)
    health = tuple(line.warning for line in folder.read_progress() if line.warning)
    match product, end:
        case Made() as made, _:
            return made
        case Splat() as splat, Exited(code=0):
            return Trained(splat, (*splat.warnings, *health))
        case Splat() as splat, TimedOut(limit="finished", limit_s=limit_s):
            warning = f"the program did not end by itself; it was ended {limit_s:g} s after its splat was complete"
            return Trained(splat, (warning, *splat.warnings, *health))
        case Splat() as splat, _:
            warning = f"the process failed after its splat was complete: {in_words(end)}"
            return Trained(splat, (warning, *splat.warnings, *health))
        case Rejected(), Cancelled(by=by):
            return Stopped(by)
        case Rejected(reason=""), _:  # of a task without a splat; a retry after a normal end would end the same
            no_record = Diagnosis("no_record", "fail", NO_RECORD)
            return Failed(no_record if end == Exited(0) else diagnose(_evidence(folder, end, None)))
        case Rejected(reason=reason), _:
            return Failed(diagnose(replace(_evidence(folder, end, reason), own=own, background=background())))


def remove_leftovers(folder: AttemptFolder) -> None:
    """Remove files that an ended attempt no longer needs: reserved space, copied photographs, and half-written files.

    Files that are absent already, or photographs that cannot be removed, raise nothing.

    Raises:
        OSError: the reserved space cannot be freed.
    """
    folder.ballast.unlink(missing_ok=True)
    copies = folder.staging / "images"
    if copies.is_dir() and not copies.is_symlink():  # colour-corrected copies, as large as the photographs
        shutil.rmtree(copies, ignore_errors=True)
    sweep(folder.path)


def facts(folder: AttemptFolder) -> AttemptFacts:
    """Return duration (s), last step and phase, and peak GPU memory (MiB) of an ended attempt.

    Ledger and manifest (result.json) record these facts. A fact that the files of the attempt do not hold is None.
    """
    last, told = folder.last_progress(), folder.read_exit() or ExitFacts()
    return AttemptFacts(
        seconds=told.seconds,
        step=last.step,
        phase=last.phase or None,
        gpu_peak_mib=most(sample.used_mib for sample in folder.read_gpu_samples()),
        own_gpu_peak_mib=told.own_gpu_peak_mib,
    )


def most(figures: Iterable[float | None]) -> float | None:
    """Return the largest of some figures, ignoring None; None if there is no figure."""
    return max((figure for figure in figures if figure is not None), default=None)


def _evidence(folder: AttemptFolder, end: Exit, artifact: str | None) -> Evidence:
    last, told = folder.last_progress(), folder.read_exit() or ExitFacts()
    return Evidence(
        end,
        *read_ends(folder.log),
        phase=last.phase,
        step=last.step,
        artifact=artifact,
        oom_killed=told.out_of_memory,
        health=last.health,
        kernel_lines=(*told.kernel_lines, *_short_of_room(told)),
    )


def _short_of_room(told: ExitFacts) -> Iterator[str]:
    """Yield a line like the kernel's for each disk that ran full, as evidence for the diagnosis.

    A program whose writes fail often dies without naming the cause.
    """
    places = (told.shm_free_mib, str(SHARED_MEMORY)), (told.disk_free_mib, "the disk of the output folder")
    for free, where in places:
        if free is not None and free < FULL_MIB:
            yield f"No space left on device: {free} MiB were free on {where}"
