"""The engine Slurm: workers are the elements of one job array, which Slurm queues, places, ends and restarts.

What Slurm says of jobs, in our words; from an unknown state nothing is concluded.

The states are those of squeue(1), "JOB STATE CODES", Slurm 20.11 to 25.05.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from splatbatch.cluster.engine import JOB, Ended, Handle, JobState, Pending, Running, Unknown, WorkerRequest
from splatbatch.config import Executor
from splatbatch.errors import ExecutorError
from splatbatch.files import write_text
from splatbatch.output.submissions import Submission
from splatbatch.text import clock

PATIENCE_S = 30.0
"""A command waits some seconds for a controller that is down, and says so then."""
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NVIDIA_VISIBLE_DEVICES")
MARGIN_S = 20.0
"""Beside grace_s: what a worker needs to write everything down before Slurm ends it."""
EARLY_S = 60.0
"""Slurm sends a signal up to so long before its time: --signal of sbatch(1)."""
GPU_OPTIONS = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
SCRIPT = """\
#!/bin/bash
# A worker of splatbatch. It may be run again at any time: it takes up what is left.
export {job}="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
{end}
for needed in {needed}; do
  [ -e "$needed" ] || {{
    echo "splatbatch: $needed is not to be seen on node $SLURMD_NODENAME" >&2
    exit 5
  }}
done
[ -e {cancelled} ] && exit 143
{setup}
{exports}
exec {command}
"""
END = (
    '[ -n "$SLURM_JOB_END_TIME" ] || export SLURM_JOB_END_TIME=$(( $(date +%s) + {seconds} ))  # told since Slurm 23.02'
)
SETUP = """\
{{ {line}
}} || {{ echo "splatbatch: on node $SLURMD_NODENAME this line of executor.setup failed:" {quoted} >&2; exit 5; }}"""
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
MOST_ELEMENTS = 1000
"""Of an array: Slurm's own default of MaxArraySize is 1001."""
REMEDIES = {
    "partition": "`sinfo` lists the partitions; name one in executor.sbatch: [--partition=…].",
    "Requested node configuration": "No node has all that at once: lower executor.gpus_per_worker, or what"
    " executor.sbatch asks for; `sinfo -o '%P %D %c %m %G'` shows what nodes have.",
    "node name": "`sinfo -N` lists the nodes.",
    "array": "Lower executor.workers, or set a longer executor.worker_time: MaxArraySize is the site's limit.",
    "account": "`sacctmgr show associations user=$USER` lists your accounts; name one: executor.sbatch: [--account=…].",
    "contact": "Its controller is down or out of reach: try later; `scontrol ping` says how it is.",
}
"""By what Slurm's words hold."""


@dataclass(frozen=True)
class SlurmAnswer:
    """What a command said, and how it ended."""

    code: int
    out: str
    words: str
    """What went wrong, in its own words; empty if nothing did."""


def ask(command: str, *arguments: str) -> SlurmAnswer:
    """Run a command of Slurm."""
    try:
        ended = subprocess.run(
            [command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=cleaned(os.environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return SlurmAnswer(124, "", f"{command} has not answered for {PATIENCE_S:.0f} s")
    except OSError as error:
        return SlurmAnswer(127, "", f"{command}: {error.strerror}")
    said = (
        " ".join(ended.stderr.split()) or " ".join(ended.stdout.split()) or f"{command} ended with {ended.returncode}"
    )
    return SlurmAnswer(ended.returncode, ended.stdout, said if ended.returncode else "")


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that a job may inherit: not the GPUs of this shell, nor the job that we may be part of."""
    is_in_job = "SLURM_JOB_ID" in environment
    return {
        name: value
        for name, value in environment.items()
        if not (name in GPU_VARIABLES or name.startswith("SQUEUE_") or (is_in_job and _is_of_job(name)))
    }


def _is_of_job(name: str) -> bool:
    return name.startswith("SLURM") and name not in ("SLURM_CONF", "SLURM_CLUSTERS")


def script_of(wanted: WorkerRequest, submission: Submission, limit_s: float | None) -> str:
    """Return what runs on the node; it is replaced by the worker, so that signals reach that."""
    python, *_ = wanted.command
    needed = [str(submission.path), str(wanted.folder), python]
    return SCRIPT.format(
        job=JOB,
        end=END.format(seconds=int(limit_s)) if limit_s else "",
        needed=shlex.join(needed),
        cancelled=shlex.quote(str(submission.cancelled)),
        setup="\n".join(SETUP.format(line=line, quoted=shlex.quote(line)) for line in wanted.setup),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in wanted.environment.items()),
        command=shlex.join(wanted.command),
    )


def options_of(wanted: WorkerRequest, submission: Submission, limit_s: float | None, own: Sequence[str]) -> list[str]:
    """Return the options of sbatch: ours, then those of the YAML, which win."""
    last = wanted.num_workers * wanted.num_turns - 1
    at_once = f"%{wanted.num_workers}" if wanted.num_turns > 1 else ""
    ours = [
        f"--job-name={submission.name}",
        f"--comment={submission.name}",
        f"--array=0-{last}{at_once}",
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        "--open-mode=append",
        f"--output={str(submission.path).replace('%', '%%')}/%a.log",
        f"--chdir={wanted.folder}",
    ]
    if wanted.gpus and not any(one.partition("=")[0] in GPU_OPTIONS for one in own):
        ours.append(f"--gres=gpu:{wanted.gpus}")
    if limit_s:
        ours.append(f"--time={max(1, math.floor(limit_s / 60))}")
        notice_s = wanted.grace_s + MARGIN_S
        # B: or a batch script never hears it
        ours += [f"--signal=B:TERM@{math.ceil(notice_s)}"] if limit_s > 2 * (notice_s + EARLY_S) else []
    return [*ours, *own]


def of_squeue(text: str) -> Iterator[tuple[Handle, JobState]]:
    """Yield each array element that squeue has listed in the format of `SQUEUE`."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) >= 6:
            job, index, state, where, reason, status = (field.strip() for field in fields[:6])
            # a status of wait(2): what a signal has ended has no exit code
            code = int(status) >> 8 if status.isdecimal() and not int(status) & 0x7F else None
            yield f"{job}_{index}", seen(state, where, reason, code)


def of_sacct(text: str) -> Iterator[tuple[Handle, JobState]]:
    """Yield each array element that sacct has listed in the format of `SACCT`."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) >= 4:
            handle, state, where, code = fields[:4]
            exited, _, signal = code.partition(":")
            is_exit = exited.isdecimal() and signal == "0"
            yield handle, seen(state.partition(" ")[0], where, "", int(exited) if is_exit else None)


def seen(state: str, where: str, reason: str, code: int | None = None) -> JobState:
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


class SlurmEngine:
    """Workers as jobs of Slurm; a handle is <array>_<index>."""

    def __init__(self, settings: Executor) -> None:
        self._settings = settings
        self._last: dict[Handle, JobState] = {}
        """How those have ended that squeue knows no more."""
        self._has_sacct = True

    def check(self, wanted: WorkerRequest) -> None:
        """See that sbatch would take such workers.

        Raises:
            ExecutorError: there is no sbatch, or it would refuse them.
        """
        if shutil.which("sbatch") is None:
            raise ExecutorError(
                "executor.engine: slurm: there is no sbatch on this machine",
                "Run it where jobs are submitted, or set executor.engine: local to train on this machine.",
            )
        limit, asked = self._queue_limit_s, self._settings.worker_time
        if limit and asked and asked > limit:
            raise ExecutorError(
                f"executor.worker_time: {clock(asked)}: the queue ends a job after {clock(limit)}",
                "Lower it, or leave it out: workers that end are followed by others.",
            )
        # a folder that only looks like one: nothing is written where nothing may be submitted
        options = options_of(wanted, Submission(wanted.folder), self._limit_s, self._settings.sbatch)
        _accepted(ask("sbatch", "--test-only", *options, "--wrap=:"))

    def num_turns(self, wanted: WorkerRequest, seconds: float | None) -> int:
        """Return how many jobs one after another it takes to work for so long."""
        if not self._limit_s or not seconds:
            return 1
        return max(1, min(math.ceil(seconds / self._limit_s), MOST_ELEMENTS // wanted.num_workers))

    def start(self, wanted: WorkerRequest, submission: Submission) -> tuple[Handle, ...]:
        """Submit one array.

        Raises:
            ExecutorError: sbatch refuses.
        """
        write_text(submission.script, script_of(wanted, submission, self._limit_s))
        options = options_of(wanted, submission, self._limit_s, self._settings.sbatch)
        answer = _accepted(ask("sbatch", "--parsable", *options, str(submission.script)))
        job = answer.out.strip().splitlines()[-1].partition(";")[0]  # a cluster's name follows where there are several
        return tuple(f"{job}_{index}" for index in range(wanted.num_workers * wanted.num_turns))

    def find(self, submission: Submission) -> tuple[Handle, ...] | None:
        """Return its jobs by their name."""
        answer = self._squeue([submission])
        if answer.code:
            return None
        return tuple(sorted((handle for handle, _ in of_squeue(answer.out)), key=lambda one: int(one.split("_")[1])))

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, JobState]:
        """Ask squeue once about all; about those that it has forgotten sacct, where there is one."""
        handles = [handle for one in known for handle in one.handles]
        if not handles:
            return {}
        answer = self._squeue(known)
        if answer.code:
            return dict.fromkeys(handles, Unknown(answer.words))
        found = dict(of_squeue(answer.out))
        self._recall([handle for handle in handles if handle not in found and handle not in self._last])
        return {handle: found.get(handle) or self._last[handle] for handle in handles}

    def stop(self, known: Sequence[Submission]) -> str:
        """Cancel all jobs of those names."""
        return ask("scancel", f"--name={','.join(one.name for one in known)}").words if known else ""

    def drop(self, submission: Submission) -> None:
        """Cancel those that wait."""
        ask("scancel", "--state=PENDING", f"--name={submission.name}")

    def _squeue(self, known: Sequence[Submission]) -> SlurmAnswer:
        names = ",".join(one.name for one in known)
        return ask("squeue", "--noheader", "--array", "--all", "--states=all", f"--name={names}", f"--Format={SQUEUE}")

    def _recall(self, forgotten: Sequence[Handle]) -> None:
        """Learn how jobs have ended that squeue has forgotten: it does so minutes after their end."""
        if forgotten and self._has_sacct:
            jobs = ",".join(sorted({handle.partition("_")[0] for handle in forgotten}))
            answer = ask("sacct", "-X", "--noheader", "--parsable2", f"--format={SACCT}", f"--jobs={jobs}")
            self._has_sacct = answer.code == 0
            self._last |= dict(of_sacct(answer.out))
        self._last |= {handle: GONE for handle in forgotten if handle not in self._last}

    @cached_property
    def _queue_limit_s(self) -> float | None:
        answer = ask("sinfo", "--noheader", "--format=%P|%l")
        return None if answer.code else limit_of(answer.out, self._partition())

    @property
    def _limit_s(self) -> float | None:
        """The time that each worker has; None: no end."""
        return self._settings.worker_time or self._queue_limit_s

    def _partition(self) -> str:
        words = iter(self._settings.sbatch)
        for word in words:
            name, _, value = word.partition("=")
            if name in ("--partition", "-p"):
                return value or next(words, "")
            if word.startswith("-p") and not word.startswith("--"):
                return word[2:]
        return ""


def _accepted(answer: SlurmAnswer) -> SlurmAnswer:
    """Return what sbatch has answered.

    Raises:
        ExecutorError: it refuses.
    """
    if not answer.code:
        return answer
    remedy = next((remedy for word, remedy in REMEDIES.items() if word in answer.words), "")
    raise ExecutorError(f"Slurm: {answer.words}", remedy or "See sbatch(1), and executor.sbatch in the YAML.")
