"""Workers as jobs of Slurm: one array, which Slurm queues, places, ends and restarts; a job is <array>_<index>.

The states are those of squeue(1), "JOB STATE CODES", Slurm 20.11 to 25.05; any other state is reported as "unknown".
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from splatbatch.cluster.job import JOB, NEVER_BEGAN, TERMS, WorkerJob
from splatbatch.errors import ExecutorError
from splatbatch.files import write_text
from splatbatch.output.submissions import Submission
from splatbatch.tasks.batch import Batch
from splatbatch.text import clock

PATIENCE_S = 30.0
"""Time limit of a Slurm command, in seconds; with a controller that is down, the command gives up earlier by itself."""
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NVIDIA_VISIBLE_DEVICES")
MARGIN_S = 20.0
"""Time in seconds that a worker needs, beyond `limits.grace_s`, to write all files before Slurm ends it."""
EARLY_S = 60.0
"""Most seconds by which Slurm may send a signal too early: --signal of sbatch(1)."""
GPU_OPTIONS = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
SCRIPT = """\
#!/bin/bash
# A worker of splatbatch. It may be run again at any time: it takes up what is left.
export {job}="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
{end}
for needed in {needed}; do
  [ -e "$needed" ] || {{
    echo "splatbatch: node $SLURMD_NODENAME cannot see $needed; put it on a disk that all nodes share" >&2
    exit 5
  }}
done
[ -e {cancelled} ] && exit 143
{setup}
export {terms}
exec {command}
"""
END = (
    '[ -n "$SLURM_JOB_END_TIME" ] || export SLURM_JOB_END_TIME=$(( $(date +%s) + {seconds} ))  # told since Slurm 23.02'
)
SETUP = """\
{{ {line}
}} || {{ echo "splatbatch: node $SLURMD_NODENAME: a line of executor.setup failed:" {quoted} >&2; exit 5; }}"""
SQUEUE = "ArrayJobID:|,ArrayTaskID:|,State:|,NodeList:|,Reason:|,exit_code:|"
HELD = "launch failed requeued held"
"""Reason by which Slurm holds a job that a node could not start; the job waits until a user releases it."""
MOST_ELEMENTS = 1000
"""Most jobs of an array; Slurm's default of MaxArraySize is 1001."""
TASK_S = 3600.0 * 1.5
"""Assumed duration of a task, in seconds. Too many jobs cost nothing: the jobs left over are cancelled."""
REMEDIES = {
    "policy": "Lower executor.workers, executor.worker_time, or what executor.sbatch requests; see the limits in"
    " `sacctmgr show qos`.",
    "account": "`sacctmgr show associations user=$USER` lists your accounts; name one: executor.sbatch: [--account=…].",
    "partition": "`sinfo` lists the partitions; name one in executor.sbatch: [--partition=…].",
    "Requested node configuration": "No node has these resources together. Lower executor.gpus_per_worker, or what"
    " executor.sbatch requests; `sinfo -o '%P %D %c %m %G'` shows what nodes have.",
    "node name": "`sinfo -N` lists the nodes.",
    "array": "Lower executor.workers, or set a longer executor.worker_time: MaxArraySize is the site's limit.",
    "time limit": "Lower executor.worker_time; `sinfo -o '%P %l'` shows the limits of the partitions.",
    "contact": "The Slurm controller is down or unreachable. Try again later; `scontrol ping` shows its state.",
}
"""Hint for an error of sbatch, by a word in the error's message; the first match counts."""


def start(batch: Batch, submission: Submission, command: Sequence[str], num_tasks: int) -> tuple[str, ...]:
    """Submit the workers of a submission as one job array; return the ids of its jobs.

    If the time limit of a job is shorter than the expected work, the array has further jobs that follow the first ones.

    Args:
        batch: the batch that the workers train.
        submission: number of workers at a time, and the folder for script and logs.
        command: command of a worker.
        num_tasks: number of tasks to train, by which the number of jobs is chosen.

    Raises:
        ExecutorError: there is no sbatch, it refuses, or `executor.worker_time` exceeds the limit of the queue.
        OutputError: the submission cannot be written.
        OSError: the job script cannot be written.
    """
    settings, num_workers = batch.config.executor, submission.record.num_workers
    if shutil.which("sbatch") is None:
        raise ExecutorError(
            "executor.engine: slurm: sbatch not found on this machine",
            "Run `splatbatch train` where jobs are submitted, or set executor.engine: local to train here.",
        )
    queue_s, asked_s = queue_limit_s(settings.sbatch), settings.worker_time
    if queue_s and asked_s and asked_s > queue_s:
        raise ExecutorError(
            f"executor.worker_time: {clock(asked_s)} is longer than the queue allows ({clock(queue_s)})",
            "Lower executor.worker_time, or remove it: when a worker's time is over, another one goes on.",
        )
    limit_s, work_s = asked_s or queue_s, TASK_S * math.ceil(num_tasks / num_workers)
    num_turns = max(1, min(math.ceil(work_s / (limit_s or math.inf)), MOST_ELEMENTS // num_workers))
    options = options_of(batch, submission, num_turns, limit_s)
    _sbatch("--test-only", *options, "--wrap=:")  # before any file is written
    submission.write()
    script = SCRIPT.format(  # it ends in `exec` of the worker, so that signals reach the worker
        job=JOB,
        end=END.format(seconds=int(limit_s)) if limit_s else "",
        needed=shlex.join([str(submission.path), str(batch.file.parent), command[0]]),
        cancelled=shlex.quote(str(submission.cancelled)),
        setup="\n".join(SETUP.format(line=line, quoted=shlex.quote(line)) for line in settings.setup),
        terms=f"{TERMS}={shlex.quote(submission.record.terms)}",
        command=shlex.join(command),
    )
    write_text(submission.script, script)
    printed = _sbatch("--parsable", *options, str(submission.script))
    job = printed.split()[-1].partition(";")[0]  # a cluster's name follows where there are several
    return tuple(f"{job}_{index}" for index in range(num_workers * num_turns))


def find(submission: Submission) -> tuple[str, ...] | None:
    """Return the ids of the jobs of a submission whose start was cut off, found by its name.

    Empty: Slurm has no such jobs. None: Slurm does not answer.
    """
    answer = _squeue([submission])
    if answer.returncode:
        return None
    found = [one.job.split("_") for one in of_squeue(answer.stdout)]
    last = max((int(index) for _, index in found), default=-1)
    return tuple(f"{found[0][0]}_{index}" for index in range(last + 1))


def query_jobs(known: Sequence[Submission], before: Mapping[str, WorkerJob]) -> Mapping[str, WorkerJob]:
    """Return the state of all jobs of some submissions, by job id, with at most one call of squeue.

    If Slurm does not answer, all are "unknown". A job that squeue does not list has ended.

    Args:
        known: the submissions.
        before: states of the previous query, which say how jobs ended that squeue no longer lists, minutes after their
            end.
    """
    jobs = [job for one in known for job in one.record.handles]
    if not jobs:
        return {}
    answer = _squeue(known)
    if answer.returncode:
        return {job: WorkerJob(job, "unknown", why=answer.stderr) for job in jobs}
    found = {job: one for job, one in before.items() if one.state == "ended"}
    found |= {one.job: one for one in of_squeue(answer.stdout)}
    return {job: found.get(job) or WorkerJob(job, "ended", how="no longer known to Slurm") for job in jobs}


def cancel(known: Sequence[Submission], *, only_pending: bool) -> str:
    """Cancel all jobs of some submissions, or only the pending ones.

    Return the error of scancel, "" if there is none.
    """
    if not known:
        return ""
    names = ",".join(one.path.name for one in known)
    return ask("scancel", f"--name={names}", *(["--state=PENDING"] if only_pending else [])).stderr


def ask(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; never raises.

    In the result stderr is one line with the error, "" if the command succeeded.

    A command without an answer within `PATIENCE_S` seconds, or that cannot be started, counts as failed.
    """
    try:
        answer = subprocess.run(
            [command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=clean_environment(os.environ),
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else f"no answer within {PATIENCE_S:.0f} s"
        return subprocess.CompletedProcess(command, 127, "", f"{command}: {why}")
    said = " ".join(answer.stderr.split()) or " ".join(answer.stdout.split())
    answer.stderr = (said or f"{command} failed with exit code {answer.returncode}") if answer.returncode else ""
    return answer


def clean_environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment that a job may inherit: without GPU variables and those of an enclosing Slurm job.

    Variables of squeue (SQUEUE_…) are left out, too; SLURM_CONF and SLURM_CLUSTERS stay.
    """
    left_out = ("SQUEUE_", "SLURM") if "SLURM_JOB_ID" in environment else ("SQUEUE_",)
    return {
        name: value
        for name, value in environment.items()
        if name in ("SLURM_CONF", "SLURM_CLUSTERS") or not (name in GPU_VARIABLES or name.startswith(left_out))
    }


def options_of(batch: Batch, submission: Submission, num_turns: int, limit_s: float | None) -> list[str]:
    """Return the options of sbatch: our own, then those of `executor.sbatch` in the YAML, which override ours.

    Args:
        batch: the batch that the workers train.
        submission: number of workers at a time, and the folder for their logs.
        num_turns: number of jobs, one after the other, for each worker.
        limit_s: time limit of a job in seconds; None: that of the queue.
    """
    settings, num_workers = batch.config.executor, submission.record.num_workers
    ours = [
        f"--job-name={submission.path.name}",
        f"--comment={submission.path.name}",
        f"--array=0-{num_workers * num_turns - 1}{f'%{num_workers}' if num_turns > 1 else ''}",
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        "--open-mode=append",
        f"--output={str(submission.path).replace('%', '%%')}/%a.log",
        f"--chdir={batch.file.parent}",
    ]
    num_gpus = settings.gpus_of_each(batch.config.training.device)
    if num_gpus and not any(one.partition("=")[0] in GPU_OPTIONS for one in settings.sbatch):
        ours.append(f"--gres=gpu:{num_gpus}")
    if limit_s:
        ours.append(f"--time={max(1, math.floor(limit_s / 60))}")
        notice_s = batch.config.limits.grace_s + MARGIN_S
        if limit_s > 2 * (notice_s + EARLY_S):
            ours.append(f"--signal=B:TERM@{math.ceil(notice_s)}")  # B: the batch script gets the signal
    return [*ours, *settings.sbatch]


def of_squeue(text: str) -> Iterator[WorkerJob]:
    """Yield the state of each job that squeue has listed in the format of `SQUEUE`; other lines are passed over."""
    for job, index, state, where, reason, status, *_ in _rows(text, 6):
        # a status of wait(2): what a signal has ended has no exit code
        code = int(status) >> 8 if status.isdecimal() and not int(status) & 0x7F else None
        yield job_of(f"{job}_{index}", state, where, reason, code)


def _rows(text: str, num_fields: int) -> list[list[str]]:
    """Return the fields of each line with at least `num_fields` fields, separated by |."""
    rows = [[field.strip() for field in line.split("|")] for line in text.splitlines()]
    return [row for row in rows if len(row) >= num_fields]


def job_of(job: str, state: str, where: str, reason: str, code: int | None = None) -> WorkerJob:
    """Return the state of a job from the fields of squeue; "unknown" for a state that is not listed here.

    A job that Slurm holds because of `HELD` counts as ended.

    Args:
        job: id of the job.
        state: its state, as "RUNNING".
        where: its node, or "".
        reason: why it waits, or how it ended; "", "None" and "(null)": squeue gives no reason.
        code: its exit code; None: it has none.
    """
    why = "" if reason in ("", "None", "(null)") else reason
    if why.replace("_", " ") == HELD:
        return WorkerJob(job, "ended", where=where, how=f"{NEVER_BEGAN} ({HELD})")
    match state:
        case (
            "PENDING" | "CONFIGURING" | "EXPEDITING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
            | "SPECIAL_EXIT" | "SUSPENDED" | "POWER_UP_NODE"
        ):  # fmt: skip
            return WorkerJob(job, "pending", why or state)
        case "RUNNING" | "COMPLETING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED" | "UPDATE_DB":
            return WorkerJob(job, "running", where=where)
        case (
            "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "LAUNCH_FAILED" | "NODE_FAIL"
            | "OUT_OF_MEMORY" | "PREEMPTED" | "RECONFIG_FAIL" | "REVOKED" | "TIMEOUT"
        ):  # fmt: skip
            return WorkerJob(job, "ended", where=where, how=f"{state} ({why})" if why else state, code=code)
    return WorkerJob(job, "unknown", why=f"Slurm reports the unknown state {state}")


def queue_limit_s(options: Sequence[str]) -> float | None:
    """Return the shortest time limit in seconds of the partitions named in options of sbatch, else of the default one.

    None: there is no limit, Slurm lists no such partition, or it does not answer.
    """
    from argparse import ArgumentParser

    parser = ArgumentParser(add_help=False)
    parser.add_argument("-p", "--partition", nargs="?", default="", const="")
    wanted = parser.parse_known_args(options)[0].partition
    limits = [
        time_limit_s(spelled)
        for name, spelled in _rows(ask("sinfo", "--noheader", "--format=%P|%l").stdout, 2)
        if (name.rstrip("*") in wanted.split(",") if wanted else name.endswith("*"))
    ]
    return min((one for one in limits if one is not None), default=None)


def time_limit_s(words: str) -> float | None:
    """Return a time limit in Slurm's notation (1-12:00:00) in seconds; None for "infinite", "n/a" and other texts."""
    if not (found := re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", words.strip())):
        return None
    days, hours, minutes, seconds = (int(one or 0) for one in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _sbatch(*arguments: str) -> str:
    """Run sbatch and return its output.

    Raises:
        ExecutorError: sbatch refuses, with its own message and a hint.
    """
    answer = ask("sbatch", *arguments)
    if not answer.returncode:
        return answer.stdout
    remedy = next((remedy for word, remedy in REMEDIES.items() if word in answer.stderr), "")
    raise ExecutorError(f"Slurm: {answer.stderr}", remedy or "See `man sbatch`, and executor.sbatch in the YAML.")


def _squeue(known: Sequence[Submission]) -> subprocess.CompletedProcess[str]:
    names = ",".join(one.path.name for one in known)
    return ask("squeue", "--noheader", "--array", "--all", "--states=all", f"--name={names}", f"--Format={SQUEUE}")
