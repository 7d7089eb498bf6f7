"""Whether a splat whose name tells no step is from the last one: by what the program said, how it ended, and when."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from splatbatch.files import names_in
from splatbatch.hashing import file_fact, sha256_of
from splatbatch.outcome import Cancelled, Exit, Exited, Killed, TimedOut
from splatbatch.output.folders import SPLAT, PatchFolder
from splatbatch.output.records.attempt import ProgressLine
from splatbatch.supervisor.external import LoggedSteps

CLOCK_S = 2.0
"""A step is written down up to so much later than it was said, and a share of the run on top."""
CLOCK_SHARE = 1 / 100
CLOCKS_APART_S = 60.0
"""A file that was made on another file system has the time of its clock."""
SILENT = "the program said nothing of its steps: that its splat is from the last is not known"


@dataclass(frozen=True)
class StepTime:
    """When a program had come no farther than a step, as its words were written down."""

    step: int
    at: float
    """Seconds since 1970."""
    slack_s: float
    """It may have been there so much earlier."""


@dataclass(frozen=True)
class StepPatterns:
    """What a program said of its steps over a whole attempt."""

    heard: LoggedSteps
    moments: tuple[StepTime, ...] = ()


def words_of(lines: Iterable[ProgressLine]) -> StepPatterns:
    """Return what the supervisor heard of steps in the log of a program."""
    heard, moments = LoggedSteps(), []
    for line in lines:
        now = LoggedSteps.of(line)
        if now.highest is None or (heard.highest is not None and now.highest < heard.highest):
            continue
        heard = now
        if line.t is not None:
            moments.append(StepTime(now.highest, line.t, CLOCK_S + CLOCK_SHARE * (line.seconds or 0.0)))
    return StepPatterns(heard, tuple(moments))


def why_not_last(words: StepPatterns, end: Exit, max_steps: int, *, is_trusted: bool) -> str:
    """Return why a splat of no named step is not, or not surely, from the last step; empty if it is taken for that.

    A trusted program may have crashed where nothing is known of its steps.
    """
    heard = words.heard
    if heard.falls_short_of(max_steps):
        return f"from step {heard.highest}, not from the last step {max_steps}"
    ended_well = end == Exited(0) or (isinstance(end, TimedOut) and end.limit == "finished")
    if ended_well or heard.reaches(max_steps):
        return ""
    if is_trusted and heard.highest is None and isinstance(end, Exited | Killed):
        return ""
    said = "nothing of its steps" if heard.highest is None else f"no step after {heard.highest} of {max_steps}"
    return f"from a step that nobody knows: the program {_in_words(end)} and had said {said}"


def why_too_old(words: StepPatterns, written_at: float, max_steps: int) -> str:
    """Return why a splat written at a time cannot be from the last step: the program was not there yet; or nothing."""
    before = [one for one in words.moments if LoggedSteps(one.step, words.heard.gap).falls_short_of(max_steps)]
    if before and written_at < before[-1].at - before[-1].slack_s:
        return f"from step {before[-1].step} or before, not from the last step {max_steps}: the file is older"
    return ""


def why_from_before(splat: Path, start: Path) -> str:
    """Return why a splat is not of an attempt: it was written before the supervisor wrote start.json; or nothing.

    The time of the content decides, of the file behind a link: it stays when a file is moved or copied with its times,
    and a program may have made it elsewhere, by another clock.
    """
    began = file_fact(start)
    if began.num_bytes < 0:  # nobody supervised it
        return ""
    seconds = (began.mtime_ns - splat.stat().st_mtime_ns) / 1e9
    return f"older than the attempt, by {seconds:,.0f} s: {splat.name}" if seconds > CLOCKS_APART_S else ""


def written_at(splat: Path, progress: Path, words: StepPatterns) -> float:
    """Return when a file was written, by the clock of the supervisor; a file server's may be behind it."""
    lag_s = 0.0
    with suppress(OSError, IndexError):
        lag_s = min(0.0, progress.stat().st_mtime - words.moments[-1].at)
    return splat.stat().st_mtime - lag_s


def _in_words(end: Exit) -> str:
    match end:
        case Killed(signal=number):
            return f"was ended by {signal.Signals(number).name if number in set(signal.Signals) else number}"
        case Exited(code=code):
            return f"ended with exit code {code}"
        case TimedOut(limit=limit):
            return f"was ended by its {limit} limit"
        case Cancelled():
            return "was cancelled"
        case _:
            return "ended in a way that nobody knows"


def whose_splat(patches: Path, splat: Path, task: str, inputs: str) -> str:
    """Return which other task's accepted splat a file is, if that was trained from other inputs; empty if none.

    The same hash has the same size: of hundreds of tasks, the record of hardly one is read.

    Args:
        patches: the folder of all tasks.
        splat: the file.
        task: whose it is to become.
        inputs: the hash of what it was trained from.
    """
    size, sha256 = splat.stat().st_size, ""
    for name in sorted(names_in(str(patches))):
        if name == task or file_fact(f"{patches}/{name}/{SPLAT}").num_bytes != size:
            continue
        accepted = PatchFolder(patches / name).read_result()
        if accepted is None or not accepted.sha256 or accepted.trained_from.inputs == inputs:
            continue
        sha256 = sha256 or sha256_of(splat)
        if accepted.sha256 == sha256:
            return name
    return ""
