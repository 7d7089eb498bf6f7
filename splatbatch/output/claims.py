"""Claims: which worker works on which task. The claims of a task are numbered; the one with the highest number owns it.

The number is called generation. A claim is a hard link, made by link(2), to the heartbeat file of its worker, or a copy
of it where links are impossible; a claim is never replaced or removed. To take a task over, a worker links the next
number. Of two workers that do so at once only one can make that name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from splatbatch.files import names_in
from splatbatch.output import workers
from splatbatch.output.generations import create_once, numbers_in
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import Watcher, WorkerFile, is_released, title
from splatbatch.text import plural

DONE = ".done"
"""Suffix of the second link to a claim, which its worker makes when it has finished the task."""
PREPARING = ".prepare"
"""Name claimed, like a task, by the worker that makes the shared decisions; no patch can have this name."""
EXCLUSIVE = ".exclusive"
"""Name claimed, like a task, by `train`, and by each command that excludes `train`; see `output.exclusive`."""


class Claims:
    """Makes, renews and closes the claims of one worker, and reads those of the other workers."""

    def __init__(self, output: OutputFolder, mine: WorkerFile, is_gone: Callable[[WorkerRecord], bool]) -> None:
        """Keep the arguments; nothing is claimed yet.

        Args:
            output: the output folder.
            mine: heartbeat file of the worker, to which claims are linked.
            is_gone: returns whether a worker is gone, so that its tasks may be taken over, as `Watcher.is_dead` does.
        """
        self._output, self._mine, self._is_gone = output, mine, is_gone
        self._claims: dict[str, Claim] = {}
        self.heartbeat = mine.heartbeat
        """Writes a heartbeat; to be called every few seconds."""

    def take(self, task: str) -> Claim | WorkerRecord:
        """Claim a task and return our claim; if another worker has the task, return the record of that worker.

        A claim that we have already is returned again, until another worker takes the task over. Of a worker whose
        claim cannot be read the record is blank but for a token, see `owner`.

        Raises:
            OSError: the claim cannot be made.
            LaterFormatError: a later version wrote a heartbeat file.
        """
        highest = highest_claim(self._output, task)
        if (ours := self._claims.get(task)) and ours.generation >= highest:
            return ours
        if owner := self._present_owner(task, highest):
            return owner
        claim = self._output.claim(task, highest + 1)
        if not highest:
            os.makedirs(claim.parent, exist_ok=True)  # noqa: PTH103 - of thousands of tasks
        if not create_once(self._mine.path, claim):
            # a listing may lag behind the name that is taken
            return self.owner(task, max(highest_claim(self._output, task), highest + 1))
        self._claims[task] = Claim(self._mine.record.worker, highest + 1)
        return self.renew(task)  # only after the claim: the splat of this attempt may only become the next record

    def is_elsewhere(self, task: str) -> bool:
        """Return whether another worker, which is not known to be dead, has claimed a task and has not finished it.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        owner = self._present_owner(task, highest_claim(self._output, task))
        return owner is not None and owner.token != self._mine.record.token

    def renew(self, task: str) -> Claim:
        """Return our claim of a task, after setting it to follow the newest accepted splat of now.

        Called again after the attempt of a dead worker was collected, since its splat may have been accepted meanwhile.

        Raises:
            KeyError: we have no claim of this task.
        """
        self._claims[task] = replace(self._claims[task], follows=self._output.patch(task).newest_accepted())
        return self._claims[task]

    def close(self, task: str) -> None:
        """Mark a task of ours as finished, whatever its outcome, so that other workers do not wait for our end.

        Nothing is done for a task that we have not claimed; errors of writing are ignored.
        """
        ours = self._claims.pop(task, None)
        if ours is not None:
            with contextlib.suppress(OSError):  # a full disk: the end of this worker frees the task, too
                create_once(self._mine.path, self._output.claim(task, ours.generation).with_suffix(DONE))

    def mine(self) -> list[str]:
        """Return the names of the tasks that we have claimed and not finished, in the order of the claims."""
        return list(self._claims)

    def lost(self) -> dict[str, str]:
        """Forget the tasks that other workers took over from us; return the name of the new worker of each.

        The name is "" if the claim cannot be read; the result is empty if no task was taken over.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        highest = {task: highest_claim(self._output, task) for task in self._claims}
        lost = {task: now for task, now in highest.items() if now > self._claims[task].generation}
        for task in lost:
            del self._claims[task]
        return {task: self.owner(task, now).worker for task, now in lost.items()}

    def generation(self, task: str) -> int:
        """Return the number that events of a task carry in our ledger: that of our claim, else the highest claim's.

        The number is 0 if the task was never claimed.
        """
        ours = self._claims.get(task)
        return ours.generation if ours else highest_claim(self._output, task)

    def owner(self, task: str, generation: int) -> WorkerRecord:
        """Return the record of the worker that made the claim with this number.

        If the claim cannot be read: a record without a name or heartbeat, whose token is the path below `claims`.

        Raises:
            LaterFormatError: a later version wrote a heartbeat file.
        """
        found = WorkerRecord.read(self._output.claim(task, generation)) or WorkerRecord()
        return found if found.worker else WorkerRecord(token=f"{task}/{generation}")

    def _present_owner(self, task: str, generation: int) -> WorkerRecord | None:
        """Return the worker that made a claim; None if there is no such claim, or its owner has finished or is gone."""
        if not generation or generation == done_with(self._output, task):
            return None
        owner = self.owner(task, generation)
        is_torn = not owner.worker and is_released(self._output.claim(task, generation))
        return None if is_torn or self._is_gone(owner) else owner


def done_with(output: OutputFolder, task: str) -> int:
    """Return the highest number of a task's claims that were finished, with any outcome; 0 if there is none."""
    return max(numbers_in(f"{output.claims}/{task}", suffix=DONE), default=0)


def highest_claim(output: OutputFolder, task: str) -> int:
    """Return the highest number of a task's claims; 0 if there is none."""
    return max(numbers_in(f"{output.claims}/{task}"), default=0)


def open_claim(output: OutputFolder, task: str) -> WorkerRecord | None:
    """Return the worker that has claimed a task and not finished it.

    None: there is none, or the claim cannot be read.

    Raises:
        LaterFormatError: a later version wrote a heartbeat file.
    """
    highest = highest_claim(output, task)
    return WorkerRecord.read(output.claim(task, highest)) if highest > done_with(output, task) else None


def open_claims(output: OutputFolder) -> dict[str, str]:
    """Return the name of the worker of each task that is claimed and not finished, by task in alphabetical order.

    Claims that cannot be read are left out.

    Raises:
        LaterFormatError: a later version wrote a heartbeat file.
    """
    tasks = [name for name in sorted(names_in(str(output.claims))) if name[0] != "."]
    return {task: owner.worker for task in tasks if (owner := open_claim(output, task))}


MOST_LINES = 8


@dataclass(frozen=True)
class AtWork(WorkerRecord):
    """A worker that has not ended, with the names of the tasks that it has claimed; `status` prints it."""

    tasks: tuple[str, ...] = ()
    silent_s: float = 0.0
    """Seconds since the worker's last known heartbeat."""

    @property
    def is_quiet(self) -> bool:
        """Whether the worker has written no heartbeat for 30 s, so that it is reported as silent."""
        return self.silent_s >= workers.QUIET_S

    @property
    def is_frozen(self) -> bool:
        """Whether the worker has written no heartbeat for 180 s: its tasks are free for others.

        Its process may still exist.
        """
        return self.silent_s >= workers.SILENCE_S

    def in_words(self) -> str:
        """Return a line: the worker, its tasks, doubts whether it lives and, if frozen, commands to end it or go on."""
        job = f", job {self.job}" if self.job else ""
        known = (
            ""
            if self.is_quiet or self.is_alive_here
            else f"; alive if its heartbeat, {self.sequence}, is higher at the next `splatbatch status`"
        )
        if self.is_frozen:
            here = f"`kill -CONT {self.pid}` lets this worker go on, `kill -9 {self.pid}` ends it"
            known += f"; silent for {self.silent_s:.0f} s, other workers may take over its tasks: {here}"
        elif self.is_quiet:
            known += f"; {describe_silence(self.silent_s)}"
        return f"{title(self)}{job}: {', '.join(self.tasks) or 'nothing at the moment'}{known}"


def describe_silence(silent_s: float) -> str:
    """Return in words for how many seconds a worker has been silent, and when its tasks are taken over."""
    return f"silent for {silent_s:.0f} s, its tasks are taken over after {workers.SILENCE_S:.0f} s"


def at_work(watcher: Watcher, but: str = "") -> tuple[AtWork, ...]:
    """Return the workers that may still write, also frozen ones of this host, except the one named `but`.

    Empty if there are none; the order is that of their names.

    Raises:
        LaterFormatError: a later version wrote a heartbeat file.
    """
    found = watcher.present(but)
    held = open_claims(watcher.output) if found else {}
    return tuple(
        AtWork(
            **vars(one),
            tasks=tuple(task for task, name in held.items() if name == one.worker),
            silent_s=watcher.silent_s(one),
        )
        for one in found
    )


def lines_of(workers: Sequence[AtWork]) -> list[str]:
    """Return one line for each worker, at most 8, and then a line with the number of the others.

    Empty without workers, and for a single worker that is not silent.
    """
    if len(workers) < 2 and not any(one.is_quiet for one in workers):
        return []
    more = [f"… and {plural(len(workers) - MOST_LINES, 'more worker')}"] if len(workers) > MOST_LINES else []
    return [*(one.in_words() for one in workers[:MOST_LINES]), *more]


def in_short(workers: Sequence[AtWork]) -> str:
    """Return the number of workers and nodes as text: "3 workers on 2 nodes, 1 of them silent".

    A single node, and silence of none, are not named. "" for fewer than two workers.
    """
    nodes = {one.host for one in workers}
    where = f" on {plural(len(nodes), 'node')}" if len(nodes) > 1 else ""
    quiet = sum(one.is_quiet for one in workers)
    silent = f", {quiet} of them silent" if quiet else ""
    return f"{plural(len(workers), 'worker')}{where}{silent}" if len(workers) > 1 else ""
