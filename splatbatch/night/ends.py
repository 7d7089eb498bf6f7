"""Why workers have ended, in the words of their engine and their own."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.engines.crew import Crew
from splatbatch.engines.engine import Ended
from splatbatch.engines.slurm.states import NEVER_BEGAN
from splatbatch.errors import ConfigError, ExecutorError, OutputError, SceneError, TrainerError
from splatbatch.files import read_tail
from splatbatch.plain_text import one_line

AGAIN = 75
"""Exit code of a worker that was told to stop, or whose time is up, and that may be started again."""
REFUSING = {error.exit_code for error in (ConfigError, SceneError, TrainerError, ExecutorError, OutputError)}
"""Exit codes of a worker that cannot work where it is, by what it was given."""
LOG_BYTES = 2000


@dataclass(frozen=True)
class Why:
    """Why workers have ended."""

    words: str
    hint: str = ""
    is_for_good: bool = False
    """Others would end so, too."""


def why_ended(crew: Crew) -> Why:
    """Return why the workers of a crew have ended: of one that tells most."""
    ends = sorted(crew.ended(), key=lambda one: _weight(one[2]), reverse=True)
    if not ends:
        return Why("nobody says why")
    submission, handle, seen = ends[0]
    said = one_line(read_tail(submission.log_of(handle), LOG_BYTES).strip())
    where = f" on {seen.where}" if seen.where else ""
    code = f" with exit code {seen.code}" if seen.code is not None else ""
    words = f"worker {handle}{where}: {seen.how}{code}; it {f'says: {said}' if said else 'has said nothing'}"
    if seen.code == AGAIN:
        return Why(words, "If its time is too short for a task, set a longer executor.worker_time.")
    if NEVER_BEGAN in seen.how:
        return Why(words, f"Is {submission.path} to be seen on that node, and may you write there?", is_for_good=True)
    return Why(words, f"See {submission.path}.", seen.code in REFUSING)


def _weight(seen: Ended) -> tuple[int, bool]:
    """Return how much an end tells: a refusal most, a clean end least; of two alike that of which the node is known."""
    if seen.code in REFUSING or NEVER_BEGAN in seen.how:
        return 3, bool(seen.where)
    return {0: 0, AGAIN: 1}.get(seen.code if seen.code is not None else -1, 2), bool(seen.where)
