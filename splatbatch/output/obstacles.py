"""What keeps an attempt from being started, or its result from being kept: the diagnosis of an exception."""

from __future__ import annotations

import errno
from pathlib import Path

from splatbatch.errors import NotMadeError, SplatbatchError
from splatbatch.outcome import Diagnosis
from splatbatch.output.folders import PatchFolder

UNWRITABLE = "output_unwritable"
INTERNAL_FAULT = "internal_fault"
HANGS = "read_hangs"
COLLECT = "collect"
"""The phase of a fault over what an attempt has left: it is collected once more, and not trained again."""
NOT_MADE = "not_made"
"""It waits for the product of another task, and follows it by itself."""
RUN_SHORT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What fork(2) and pipe(2) fail with where processes, memory or files run short: it may pass."""


def diagnosis_of(error: Exception, folder: Path, phase: str) -> Diagnosis:
    """Say what stood in the way of an attempt, or of its result."""
    if isinstance(error, OSError) and error.errno in RUN_SHORT:
        advice = "Raise the limit of processes (ulimit -u) or end what uses up memory."
        return Diagnosis("process_limit", "retry", advice, (str(error),), phase)
    if isinstance(error, OSError) and (path := _path_below(error, folder)):
        words = error.strerror or str(error)
        advice = f"{path}: {words}. Mend its permissions or move away what stands there, then run again."
        return Diagnosis(UNWRITABLE, "fail", advice, (str(error),), phase)
    if isinstance(error, NotMadeError):
        return Diagnosis(NOT_MADE, "fail", f"{error}. It follows once that is made.", (str(error),), phase)
    hint = error.hint if isinstance(error, SplatbatchError) else ""
    return Diagnosis("not_started", "fail", f"{error}. {hint}".rstrip(), (str(error),), phase)


def check_destination(folder: PatchFolder) -> None:
    """See before anything is trained that a splat can be put where it belongs.

    Raises:
        OSError: something else stands there.
    """
    for path in (folder.splat, folder.result):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))


def _path_below(error: OSError, folder: Path) -> str:
    """Return which file of a patch an error is about; empty if it is about something else."""
    named = [str(name) for name in (error.filename2, error.filename) if name is not None]
    return next((name for name in named if Path(name) == folder or folder in Path(name).parents), "")
