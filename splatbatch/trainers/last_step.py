"""Decides whether a splat without a step in its name is from the last step: by log, exit and time of the file."""

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
CLOCK_SHARE = 1 / 100
"""Share of the run's time that, with `CLOCK_S` seconds, is the longest delay between a step in the log and its
record."""
CLOCKS_APART_S = 60.0
"""Seconds by which the clock of another file system may differ from that of this machine."""
SILENT = "the program logged no steps: its splat may not be from the last step"


@dataclass(frozen=True)
class StepHistory:
    """Steps that a program logged during an attempt, as the supervisor recorded them in progress.jsonl."""

    heard: LoggedSteps
    """The highest step named in the log, and the largest gap between two logged steps."""
    lines: tuple[ProgressLine, ...] = ()
    """Lines with a time and a step, in which the step never falls."""

    @staticmethod
    def of(lines: Iterable[ProgressLine]) -> StepHistory:
        """Return the history of the lines of progress.jsonl; blank if the program logged no steps."""
        heard, dated = LoggedSteps(), []
        for line in lines:
            now = LoggedSteps.of(line)
            if now.highest is not None and now.highest >= (heard.highest or 0):
                heard = now
                dated += [line] if line.t is not None else []
        return StepHistory(heard, tuple(dated))

    def why_not_last(self, end: Exit, max_steps: int, *, is_trusted: bool) -> str:
        """Return why a splat may not be from the last step, by log and exit; "" if it counts as from the last step.

        Args:
            end: how the process ended.
            max_steps: number of steps of the training.
            is_trusted: a program that logged no steps may also have exited with an error or by a signal.
        """
        heard = self.heard
        if heard.falls_short_of(max_steps):
            return f"from step {heard.highest}, not from the last step {max_steps}"
        ended_well = end == Exited(0) or (isinstance(end, TimedOut) and end.limit == "finished")
        if ended_well or heard.reaches(max_steps):
            return ""
        if is_trusted and heard.highest is None and isinstance(end, Exited | Killed):
            return ""
        said = "no steps" if heard.highest is None else f"no step after {heard.highest} of {max_steps}"
        return f"from an unknown step: the program {_in_words(end)} and had logged {said}"

    def why_too_old(self, splat: Path, progress: Path, max_steps: int) -> str:
        """Return why a splat is too old for the last step: an earlier step was logged after it.

        "" if it is not too old.

        The time of the file is corrected by the lag of the file server's clock, which the time of `progress` shows.

        Args:
            splat: the splat file.
            progress: path of progress.jsonl.
            max_steps: number of steps of the training.

        Raises:
            OSError: the splat does not exist.
        """
        gap = self.heard.gap
        before = [line for line in self.lines if LoggedSteps(line.highest_step, gap).falls_short_of(max_steps)]
        if not before:
            return ""
        lag_s = 0.0
        with suppress(OSError):
            lag_s = min(0.0, progress.stat().st_mtime - (self.lines[-1].t or 0.0))
        last = before[-1]
        if splat.stat().st_mtime - lag_s < (last.t or 0.0) - CLOCK_S - CLOCK_SHARE * (last.seconds or 0.0):
            return f"from step {last.highest_step} or before, not from the last step {max_steps}: the file is older"
        return ""


def why_from_before(splat: Path, start: Path) -> str:
    """Return why a splat is older than its attempt, which began when start.json was written; "" if it is not older.

    The modification time of the file behind a link decides; it survives moves and copies that keep times. Differences
    up to `CLOCKS_APART_S` seconds are ignored, since the program may have written the file elsewhere, by another clock.

    Args:
        splat: the splat file.
        start: path of start.json; without that file the answer is "".

    Raises:
        OSError: the splat does not exist.
    """
    began = file_fact(start)
    if began.num_bytes < 0:  # no start.json: the attempt had no supervisor
        return ""
    seconds = (began.mtime_ns - splat.stat().st_mtime_ns) / 1e9
    return f"older than the attempt, by {seconds:,.0f} s: {splat.name}" if seconds > CLOCKS_APART_S else ""


def _in_words(end: Exit) -> str:
    match end:
        case Killed(signal=number):
            return f"was ended by {signal.Signals(number).name if number in set(signal.Signals) else number}"
        case Exited(code=code):
            return f"ended with exit code {code}"
        case TimedOut(limit=limit):
            return f"was ended at the time limit limits.{limit}_s"
        case Cancelled():
            return "was cancelled"
        case _:
            return "ended in an unknown way"


def whose_splat(patches: Path, splat: Path, task: str, inputs: str) -> str:
    """Return the task whose accepted splat is the same file content, but was trained from other inputs; "": none.

    Only splats of the same size are compared, by hash, so that few records are read. The task `task` is left out.

    Args:
        patches: folder of all tasks.
        splat: the splat file.
        task: name of the task that the attempt belongs to.
        inputs: hash of the attempt's inputs.

    Raises:
        OSError: the splat does not exist.
        LaterFormatError: a later version wrote the manifest of another task.
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
