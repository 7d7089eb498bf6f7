"""What Slurm says of jobs, in our words; of a state that nobody here knows nothing is concluded.

The states are those of squeue(1), "JOB STATE CODES", Slurm 20.11 to 25.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatbatch.engines.engine import Ended, Handle, Pending, Running, Seen, Unknown

PENDING = frozenset(
    {"PENDING", "CONFIGURING", "EXPEDITING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
     "SPECIAL_EXIT", "SUSPENDED", "POWER_UP_NODE"}
)  # fmt: skip
RUNNING = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "UPDATE_DB"})
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
     "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"}
)  # fmt: skip
SQUEUE = "ArrayJobID:|,ArrayTaskID:|,State:|,NodeList:|,Reason:|,exit_code:|"
SACCT = "JobID,State,NodeList,ExitCode"
GONE = Ended("Slurm knows it no more")
NEVER_BEGAN = "JobLaunchFailure"
"""Of a job whose log could not be opened, or whose node could not be reached."""
HELD = "launch failed requeued held"
"""Why Slurm lets a job wait that a node could not start: it waits until somebody releases it."""
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def of_squeue(text: str) -> Iterator[tuple[Handle, Seen]]:
    """Yield each array element that squeue has listed in the format of `SQUEUE`."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) >= 6:
            job, index, state, where, reason, status = (field.strip() for field in fields[:6])
            # a status of wait(2): what a signal has ended has no exit code
            code = int(status) >> 8 if status.isdecimal() and not int(status) & 0x7F else None
            yield f"{job}_{index}", seen(state, where, reason, code)


def of_sacct(text: str) -> Iterator[tuple[Handle, Seen]]:
    """Yield each array element that sacct has listed in the format of `SACCT`."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) >= 4:
            handle, state, where, code = fields[:4]
            exited, _, signal = code.partition(":")
            is_exit = exited.isdecimal() and signal == "0"
            yield handle, seen(state.partition(" ")[0], where, "", int(exited) if is_exit else None)


def seen(state: str, where: str, reason: str, code: int | None = None) -> Seen:
    """Return a state of Slurm in our words."""
    why = "" if reason in ("", "None", "(null)") else reason
    if why.replace("_", " ") == HELD:
        return Ended(f"{NEVER_BEGAN} ({HELD})", where)
    if state in PENDING:
        return Pending(why or state)
    if state in RUNNING:
        return Running(where)
    if state in ENDED:
        return Ended(f"{state} ({why})" if why else state, where, code)
    return Unknown(f"its state is {state}")


def limit_of(partitions: str, wanted: str) -> float | None:
    """Return the longest time in seconds that some partitions, or else the default one, give a job; None: no limit.

    Args:
        partitions: what sinfo has listed as "%P|%l".
        wanted: names, separated by commas; empty for the default.
    """
    limits = {}
    for line in partitions.splitlines():
        name, _, spelled = line.strip().partition("|")
        if name.endswith("*") and not wanted:
            wanted = name.rstrip("*")
        limits[name.rstrip("*")] = seconds_of(spelled)
    known = [limits.get(name) for name in wanted.split(",")]
    return min((one for one in known if one is not None), default=None)


def seconds_of(words: str) -> float | None:
    """Return a time limit as Slurm spells it, 1-12:00:00, in seconds; None of "infinite" and "n/a"."""
    if not (found := _DURATION.fullmatch(words.strip())):
        return None
    days, hours, minutes, seconds = (int(one or 0) for one in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
