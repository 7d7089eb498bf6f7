"""Why a process about a scene or a splat came to nothing, where nothing has to be diagnosed."""

from __future__ import annotations

from splatbatch.errors import SceneError, SplatbatchError, TrainerError
from splatbatch.files import read_tail
from splatbatch.outcome import Cancelled, Exit, Exited
from splatbatch.store.attempt_folder import AttemptFolder

SAYS = "splatbatch: "
"""What a process of ours that knows why it ends says before the reason."""


def known(verb: str, folder: AttemptFolder, end: Exit) -> SplatbatchError | None:
    """Return why a verb came to nothing: it was stopped, left no record, or its process knew; None: to be diagnosed."""
    if isinstance(end, Cancelled):
        return SplatbatchError(f"{verb}: stopped ({end.by}); nothing was measured", "Run it again.")
    if end == Exited(0):
        return SplatbatchError(f"{verb}: its process ended normally but left no valid record", place_of_log(folder))
    said = [line for line in read_tail(folder.log).splitlines() if line.startswith(SAYS)]
    kinds = {kind.exit_code: kind for kind in (SceneError, TrainerError)}
    if isinstance(end, Exited) and end.code in kinds and said:
        return kinds[end.code](f"{verb}: {said[-1].removeprefix(SAYS)}", place_of_log(folder))
    return None


def place_of_log(folder: AttemptFolder) -> str:
    """Return where whoever wants to know more should look."""
    return f"The log of its process: {folder.log}"
