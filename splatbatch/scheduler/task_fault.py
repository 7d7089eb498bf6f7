"""The wall around a task: what happens for it outside its own process is its own failure, and the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splatbatch.errors import SplatbatchError
from splatbatch.isolated import Answer, Crashed, ExpectedError, Hung, Returned, fault_of
from splatbatch.outcome import Diagnosis
from splatbatch.output import obstacles
from splatbatch.output.obstacles import COLLECT, HANGS, INTERNAL_FAULT

_COLLECTING = "splatbatch failed while it read the files of the attempt; `splatbatch train` reads them again."
_PREPARING = "splatbatch failed before the training; `splatbatch train` tries again."
_REPORT = "Please report this with the traceback from `splatbatch explain PATCH`."


class TaskFault(Exception):
    """Something done for one task outside its own process has failed in a way that nobody expected, or hangs."""

    def __init__(self, diagnosis: Diagnosis, traceback: str = "") -> None:
        super().__init__(diagnosis.advice)
        self.diagnosis, self.traceback = diagnosis, traceback


def value_of(answer: Answer, phase: str) -> Any:
    """Return what a call for a task returned.

    Raises:
        SplatbatchError, OSError: what the call may raise.
        Behind: what it may not.
    """
    match answer:
        case Returned(value=value):
            return value
        case ExpectedError(error=error):
            raise error
        case Crashed() as fault:
            raise _internal(fault, phase)
        case Hung() as hang:
            raise _hanging(hang, phase)


def diagnose_exception(answer: Answer, phase: str) -> TaskFault:
    """Return what a call for a task came to, as its failure.

    Raises:
        SplatbatchError: the call raised it: it is about more than one task.
    """
    try:
        value_of(answer, phase)
    except SplatbatchError:
        raise
    except Exception as error:  # noqa: BLE001 - that is what is asked for
        return task_fault(error, phase)
    raise ValueError("the call has returned")


def of_traceback(words: str, traceback: str, phase: str) -> TaskFault:
    """Return a fault that was caught elsewhere."""
    return _internal(Crashed(words, traceback), phase)


def task_fault(error: BaseException, phase: str) -> TaskFault:
    """Return an exception that nobody expected as the failure of one task."""
    return error if isinstance(error, TaskFault) else _internal(fault_of(error), phase)


def diagnosis_of(error: BaseException, folder: Path, phase: str = "start") -> tuple[Diagnosis, str]:
    """Return the diagnosis of whatever was raised while something was done for a task, and its traceback.

    The traceback is empty where the error itself says all.
    """
    if isinstance(error, SplatbatchError | OSError):
        return obstacles.diagnosis_of(error, folder, phase), ""
    found = task_fault(error, phase)
    return found.diagnosis, found.traceback


def _internal(fault: Crashed, phase: str) -> TaskFault:
    what = _COLLECTING if phase == COLLECT else _PREPARING
    advice = f"{what} {_REPORT}"
    return TaskFault(
        Diagnosis(INTERNAL_FAULT, "fail", advice, (fault.words, *_place(fault.traceback)), phase), fault.traceback
    )


def _place(traceback: str) -> tuple[str, ...]:
    """Return the innermost place that a traceback names: the same place on several patches is one fault."""
    places = [line.strip() for line in traceback.splitlines() if line.startswith('  File "')]
    return (places[-1].rpartition("/")[2],) if places else ()


def _hanging(hang: Hung, phase: str) -> TaskFault:
    what = hang.path or "a file of the patch"
    advice = f"{what}: has not answered for {hang.seconds:.0f} s. Check that its disk or mount is available."
    return TaskFault(Diagnosis(HANGS, "retry", advice, (f"{what}: no answer for {hang.seconds:.0f} s",), phase))
