"""The engine Slurm: workers are the elements of one job array, which Slurm queues, places, ends and restarts."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property

from splatbatch.config import Executor
from splatbatch.engines.engine import Handle, Seen, Unknown, Wanted
from splatbatch.engines.slurm.commands import Answer, ask
from splatbatch.engines.slurm.job import options_of, script_of
from splatbatch.engines.slurm.states import GONE, SACCT, SQUEUE, limit_of, of_sacct, of_squeue
from splatbatch.errors import ExecutorError
from splatbatch.files import write_text
from splatbatch.plain_text import clock
from splatbatch.store.submissions import Submission

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


class Slurm:
    """Workers as jobs of Slurm; a handle is <array>_<index>."""

    def __init__(self, settings: Executor) -> None:
        self._settings = settings
        self._last: dict[Handle, Seen] = {}
        """How those have ended that squeue knows no more."""
        self._has_sacct = True

    def check(self, wanted: Wanted) -> None:
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

    def num_turns(self, wanted: Wanted, seconds: float | None) -> int:
        """Return how many jobs one after another it takes to work for so long."""
        if not self._limit_s or not seconds:
            return 1
        return max(1, min(math.ceil(seconds / self._limit_s), MOST_ELEMENTS // wanted.num_workers))

    def start(self, wanted: Wanted, submission: Submission) -> tuple[Handle, ...]:
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

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, Seen]:
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

    def _squeue(self, known: Sequence[Submission]) -> Answer:
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


def _accepted(answer: Answer) -> Answer:
    """Return what sbatch has answered.

    Raises:
        ExecutorError: it refuses.
    """
    if not answer.code:
        return answer
    remedy = next((remedy for word, remedy in REMEDIES.items() if word in answer.words), "")
    raise ExecutorError(f"Slurm: {answer.words}", remedy or "See sbatch(1), and executor.sbatch in the YAML.")
