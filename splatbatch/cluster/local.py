"""Workers as processes of this machine, each with GPUs of its own; the workers outlive the `train` that started them.

The name of a job is HOST:BOOT:PID:START, with the boot's id and the start of the process in clock ticks.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence

from splatbatch import processes
from splatbatch.cluster.job import JOB, TERMS, WorkerJob
from splatbatch.errors import ExecutorError
from splatbatch.machine import background_command
from splatbatch.output.submissions import Submission
from splatbatch.tasks.batch import Batch


def start(batch: Batch, submission: Submission, command: Sequence[str]) -> tuple[str, ...]:
    """Start the workers of a submission as processes, and write the submission; return the names of their jobs.

    Args:
        batch: the batch that the workers train.
        submission: number of workers, and the folder for their logs.
        command: command of a worker.

    Raises:
        ExecutorError: there are fewer GPUs than the workers need, a GPU is missing or cannot be used, or a worker
            cannot be started.
        OutputError: the submission cannot be written.
    """
    from splatbatch.machine.gpu import environment_of
    from splatbatch.machine.slots import chosen_cards

    settings, num_workers = batch.config.executor, submission.record.num_workers
    num_gpus = settings.gpus_of_each(batch.config.training.device) if num_workers > 1 else 0
    cards = chosen_cards(settings, "auto") if num_gpus else []
    if num_workers * num_gpus > len(cards):
        raise ExecutorError(
            f"executor.workers: {num_workers} workers need {num_workers * num_gpus} GPUs, and there are {len(cards)}",
            "Lower executor.workers or gpus_per_worker, or train on the CPU: gpus_per_worker: 0, training.device: cpu.",
        )
    submission.write()
    jobs = []
    for index in range(num_workers):
        environment = {**os.environ, TERMS: submission.record.terms, JOB: f"{submission.path.name}/{index}"}
        if num_gpus:
            environment |= environment_of(card.uuid for card in cards[index * num_gpus :][:num_gpus])
        try:
            pid = background_command.start(command, submission.log(index), environment).pid
        except OSError as error:
            raise ExecutorError(f"{command[0]}: the worker cannot be started ({error.strerror})") from error
        jobs.append(f"{socket.gethostname()}:{processes.boot_id()}:{processes.name_of(pid)}")
    return tuple(jobs)


def query_job(job: str) -> WorkerJob:
    """Return the state of a worker, by the name of its job: running or ended.

    The state is "unknown" if another machine started the worker.

    Raises:
        ValueError: the text is not the name of a job.
    """
    host, boot, name = job.split(":", 2)
    if host != socket.gethostname():
        return WorkerJob(
            job, "unknown", why=f"the worker was started on {host}: run `splatbatch status` on that machine"
        )
    if boot == processes.boot_id() and processes.living(name):
        return WorkerJob(job, "running", where=host)
    return WorkerJob(job, "ended", where=host, how="process ended")


def stop(jobs: Sequence[str]) -> None:
    """Send SIGTERM to the running workers among these jobs, and return at once.

    Jobs of other machines are passed over.

    Raises:
        ValueError: a text is not the name of a job.
    """
    processes.send(signal.SIGTERM, [int(job.split(":")[2]) for job in jobs if query_job(job).state == "running"])
