"""Starts an attempt at a task: makes its folder and orders, has a reader prepare it, then starts its supervisor.

A slot is a GPU or a share of the CPU. A standby is an attempt that is prepared while all slots are busy. It begins once
go.json lies in its folder.
"""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from splatbatch import isolated
from splatbatch.config import Limits
from splatbatch.files import PRIVATE, Record, is_out_of_space, write_json
from splatbatch.machine.gpu import environment_of
from splatbatch.machine.protocol import Slot
from splatbatch.outcome import Stopped
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.events import AttemptStarted, PatchRejected
from splatbatch.output.records.attempt import Claim, Go, JobSpec, TimeLimits
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.running_attempt import Reading, RunningAttempt
from splatbatch.tasks.input_files import state_of
from splatbatch.tasks.task import Task, with_step_budget

BALLAST_BYTES = 1 << 16
"""Bytes of a file that reserves space, so that the end of the attempt can be recorded on a full disk."""
# with the last one torch finds GPUs by NVML instead of CUDA: CUDA reads only once which GPUs are visible, and an
# unusable GPU then is an error, not a reason to train on the CPU
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def prepare(limits: Limits, audited: str, running: RunningAttempt) -> Record:
    """Write all files that the supervisor and the trainer of an attempt read; return its fingerprint as JSON.

    The fingerprint holds hashes of settings and inputs. This runs in a reader process. If the files of the patch have
    changed since their audit, they are audited again. If they then have errors, the result holds "refused" with the
    first error, and "inputs" with the hash of their state.

    Args:
        limits: limits of the attempt.
        audited: hash of the state of the files when they were audited; empty: they were not audited.
        running: the attempt, not begun.

    Raises:
        NotMadeError: a product that the task needs has not been made.
        SplatbatchError: a model, photographs, or another file that the command needs cannot be read.
        OSError: a file cannot be written, or a mask was removed during the audit.
    """
    task, attempt = running.task, running.attempt
    depends_on = task.depends_on()
    state = state_of(depends_on.files)
    if audited not in ("", state) and (reason := task.why_unfit()):
        return {"refused": reason, "inputs": state}
    running.note_inputs(depends_on)
    write_job(running, task.program.command(task.patch, attempt.folder), limits)
    return {"depends_on": depends_on.to_record()}


def start(loop: LoopState, task: Task, slot: Slot, *, stands_by: bool = False) -> RunningAttempt:
    """Make the folder of an attempt, and have a reader process prepare it.

    `begin` later starts the attempt's own process.

    Args:
        loop: loop that runs the attempt.
        task: task of the attempt.
        slot: slot on which the attempt begins once it is prepared; for a standby, the slot that it is meant for.
        stands_by: whether the attempt waits for go.json once it is prepared.

    Raises:
        SplatbatchError, OSError: the folder cannot be made, or a folder is in the place of splat.ply or result.json.
    """
    deadline = loop.hooks.deadline
    (task,) = with_step_budget([task], deadline.choice.budgets) if deadline else (task,)
    home, name = task.home, task.name
    for path in (home.splat, home.result):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    folder = home.new_attempt()
    try:
        folder.ballast.write_bytes(bytes(BALLAST_BYTES))
    except OSError as error:
        if is_out_of_space(error):  # the attempt then does not count
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    again = f"s{loop.discarded[name]}" if loop.discarded[name] else ""
    job = JobSpec(
        key=f"{loop.batch_name}.{name}.a{folder.number}{again}",
        changes=dict(task.next_settings.all_changes),
        is_retry=loop.is_retry,
        claim=task.claim or Claim(follows=home.newest_accepted()),
    )
    slot = replace(slot, environment=()) if stands_by else slot  # go.json names its final slot
    running = RunningAttempt(task, Attempt(name, folder, job), slot, "standby" if stands_by else "running")
    limits = loop.config.limits.model_copy(update=dict(task.limits))
    running.read_by(isolated.start(partial(prepare, limits, loop.hooks.audited.get(name, "")), [running]))
    if deadline:
        deadline.newest.append(running)
    return running


def begin(loop: LoopState, running: RunningAttempt, reading: Reading) -> Stopped | PatchRejected | Exception | None:
    """Start the process of an attempt once its reader process has prepared it; the loop calls this until then.

    Returns:
        The reason why the attempt will not begin: cancelled, rejected by the audit, or an error. None: it has begun, or
        is not prepared yet.
    """
    if running.stage in ("ending", "withdrawn") or running.attempt.folder.is_cancelled():
        reading.end()
        return Stopped("cancelled before the attempt began")
    try:
        if not (found := reading.look()):
            return None
        record = found[0][1].result("prepare")
        if "refused" in record:  # its files have changed and failed the audit
            return PatchRejected(running.task.name, record["refused"], record["inputs"])
        running.note_inputs(Fingerprint.from_record(record["depends_on"]))
        running.read_by(None)
        if running.stage == "running":
            tell(loop, running)
        running.handle = loop.executor.submit(running.key, running.attempt.folder)
    except Exception as error:  # noqa: BLE001 - an error of one task must not end the batch
        return error
    return None


def discard(loop: LoopState, running: RunningAttempt) -> None:
    """Remove the folder of an attempt that does not count, as of a standby that died; its number is used again.

    Files that cannot be removed raise nothing.
    """
    loop.discarded[running.task.name] += 1
    shutil.rmtree(running.attempt.folder.path, ignore_errors=True)


def tell(loop: LoopState, running: RunningAttempt) -> None:
    """Record in the ledger that an attempt begins on its slot.

    Raises:
        OutputError: the ledger cannot be written.
    """
    task, number, changes = running.task, running.attempt.folder.number, dict(running.attempt.job.changes)
    loop.ledger.write(AttemptStarted(task.name, number, running.key, running.slot.name, changes))


def write_job(running: RunningAttempt, argv: tuple[str, ...], limits: Limits) -> None:
    """Write job.json: orders for the supervisor, and facts by which a later run adopts the attempt.

    The file is readable by its owner only, since it holds the environment. A standby prepares, then waits for
    `write_go`.

    Args:
        running: the attempt, whose process is not started yet.
        argv: command of the training.
        limits: limits of time, in seconds.

    Raises:
        OSError: the file cannot be written.
    """
    attempt, slot, stands_by = running.attempt, running.slot, running.stage == "standby"
    job = replace(
        attempt.job,
        argv=argv,
        env={**_visible_gpus(slot), **ENVIRONMENT, **({"SPLATBATCH_STANDBY": "1"} if stands_by else {})},
        gpu=slot.gpu,
        slot=slot.name,
        standby=stands_by,
        limits=TimeLimits(limits.wall_s, limits.grace_s, limits.stall_s),
    )
    write_json(attempt.folder.job, job.to_record(), PRIVATE)


def write_go(file: Path, slot: Slot) -> None:
    """Order a standby to begin on this slot, or only to open its CUDA context there.

    Args:
        file: path of go.json, to begin; of ahead.json, to open the context.
        slot: slot on which the standby begins.

    Raises:
        OSError: the file cannot be written.
    """
    write_json(file, Go(slot.gpu, slot.name, _visible_gpus(slot), round(time.time(), 3)).to_record(), PRIVATE)


def _visible_gpus(slot: Slot) -> dict[str, str]:
    """Return the environment that shows an attempt exactly one GPU, by UUID, or none on a slot of the CPU."""
    return {**environment_of(filter(None, [slot.gpu])), **dict(slot.environment)}
