"""Claims: who works on which task. The highest generation of a task's claims owns it; none is ever changed or removed.

A claim is one more name, made by link(2), of the file in which its worker shows that it lives: whole and on the disk
before it has that name. Taking over links the next generation. Two who take over at once try to make the same name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.files import names_in
from splatbatch.output import workers as limits
from splatbatch.output.generations import create_once, numbers_in
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import Watcher, WorkerFile, is_released, title
from splatbatch.text import plural

DONE = ".done"
"""Suffix of the name that an owner adds to its claim when it is done with the task."""
PREPARING = ".prepare"
"""Claimed by the worker that makes the shared decisions; no patch can have this name."""
EXCLUSIVE = ".exclusive"
"""What `train` claims, and each command during which no other one trains; see `output.exclusive`."""


@dataclass(frozen=True)
class ClaimedByOther:
    """A task that another worker claims."""

    owner: WorkerRecord
    path: Path
    """The claim itself."""

    @property
    def is_legible(self) -> bool:
        """Return whether its owner is known: the claim was not torn."""
        return bool(self.owner.worker)


class Claims:
    """The claims of a batch, as one worker makes them."""

    def __init__(self, output: OutputFolder, mine: WorkerFile, is_gone: Callable[[WorkerRecord], bool]) -> None:
        self._output, self._mine, self._is_gone = output, mine, is_gone
        self._claims: dict[str, Claim] = {}
        self.heartbeat = mine.heartbeat
        """Shows that we live; to be called every few seconds."""

    def take(self, task: str) -> Claim | ClaimedByOther:
        """Claim a task, or say who has it; a task of ours stays ours until another worker takes it over.

        Raises:
            OSError: the claim cannot be made.
        """
        highest = highest_claim(self._output, task)
        if (ours := self._claims.get(task)) and ours.generation >= highest:
            return ours
        if owner := self._present_owner(task, highest):
            return ClaimedByOther(owner, self._output.claim(task, highest))
        claim = self._output.claim(task, highest + 1)
        if not highest:
            os.makedirs(claim.parent, exist_ok=True)  # noqa: PTH103 - of thousands of tasks
        if not create_once(self._mine.path, claim):
            now = max(highest_claim(self._output, task), highest + 1)  # a listing may lag behind the name that is taken
            return ClaimedByOther(self.owner(task, now), self._output.claim(task, now))
        # the newest accepted record is read only now: what is decided by it follows it
        follows = self._output.patch(task).newest_accepted()
        self._claims[task] = Claim(self._mine.record.worker, highest + 1, follows)
        return self._claims[task]

    def is_elsewhere(self, task: str) -> bool:
        """Return whether another worker, which is not known to be gone, has claimed a task and is not done with it."""
        owner = self._present_owner(task, highest_claim(self._output, task))
        return owner is not None and owner.token != self._mine.record.token

    def renew(self, task: str) -> Claim:
        """Return our claim of a task once more, to follow what was accepted since: what others had left of it, say."""
        self._claims[task] = replace(self._claims[task], follows=self._output.patch(task).newest_accepted())
        return self._claims[task]

    def close(self, task: str) -> None:
        """Mark a task as finished, with any outcome: no worker has to wait for us to end."""
        ours = self._claims.pop(task, None)
        if ours is not None:
            with contextlib.suppress(OSError):  # a full disk: our end says the same
                create_once(self._mine.path, self._output.claim(task, ours.generation).with_suffix(DONE))

    def mine(self) -> list[str]:
        """Return the tasks that we have claimed and are not done with."""
        return list(self._claims)

    def lost(self) -> dict[str, str]:
        """Return the tasks that other workers took over from us, each with its worker; they are ours no more."""
        highest = {task: highest_claim(self._output, task) for task in self._claims}
        lost = {task: now for task, now in highest.items() if now > self._claims[task].generation}
        for task in lost:
            del self._claims[task]
        return {task: self.owner(task, now).worker for task, now in lost.items()}

    def generation(self, task: str) -> int:
        """Return under which generation we write of a task: our own, or the highest there is."""
        ours = self._claims.get(task)
        return ours.generation if ours else highest_claim(self._output, task)

    def owner(self, task: str, generation: int) -> WorkerRecord:
        """Return who made a claim; one without a name, which counts as silent, if it cannot be read."""
        found = WorkerRecord.read(self._output.claim(task, generation)) or WorkerRecord()
        return found if found.worker else WorkerRecord(token=f"{task}/{generation}")

    def _present_owner(self, task: str, generation: int) -> WorkerRecord | None:
        """Return who made a claim; None if there is no such claim, its owner is done with the task, or is gone."""
        if not generation or generation == done_with(self._output, task):
            return None
        owner = self.owner(task, generation)
        is_torn = not owner.worker and is_released(self._output.claim(task, generation))
        return None if is_torn or self._is_gone(owner) else owner


def done_with(output: OutputFolder, task: str) -> int:
    """Return the highest finished generation of a task, with any outcome; 0 if there is none."""
    return max(numbers_in(f"{output.claims}/{task}", suffix=DONE), default=0)


def highest_claim(output: OutputFolder, task: str) -> int:
    """Return the highest generation of a task's claims; 0 if there is none."""
    return max(numbers_in(f"{output.claims}/{task}"), default=0)


def open_claim(output: OutputFolder, task: str) -> WorkerRecord | None:
    """Return the worker that has claimed a task and not finished it; None: none has, or the claim cannot be read."""
    highest = highest_claim(output, task)
    return WorkerRecord.read(output.claim(task, highest)) if highest > done_with(output, task) else None


def open_claims(output: OutputFolder) -> dict[str, str]:
    """Return the tasks that are claimed and not finished, each with the name of its worker."""
    tasks = [name for name in sorted(names_in(str(output.claims))) if name[0] != "."]
    return {task: owner.worker for task in tasks if (owner := open_claim(output, task))}


MOST_LINES = 8


@dataclass(frozen=True)
class AtWork(WorkerRecord):
    """A worker that has not ended, with the tasks that it has claimed."""

    tasks: tuple[str, ...] = ()
    silent_s: float = 0.0
    """For how long it is known not to have moved."""

    @property
    def is_quiet(self) -> bool:
        """Return whether it has been silent for longer than a worker that is well."""
        return self.silent_s >= limits.QUIET_S

    @property
    def is_frozen(self) -> bool:
        """Return whether it counts as gone, although its process is not."""
        return self.silent_s >= limits.SILENCE_S

    def in_words(self) -> str:
        """Return who works on what; whether one on another host still lives is not to be told by one look."""
        job = f", job {self.job}" if self.job else ""
        known = "" if self.is_quiet or self.is_alive_here else f", if it lives: it has counted to {self.sequence}"
        if self.is_frozen:
            here = f"`kill -CONT {self.pid}` lets it go on, `kill -9 {self.pid}` ends it"
            known += f"; silent for {self.silent_s:.0f} s, its tasks are free for others: {here}"
        elif self.is_quiet:
            known += f"; {describe_silence(self.silent_s)}"
        return f"{title(self)}{job}: {', '.join(self.tasks) or 'nothing at the moment'}{known}"


def describe_silence(silent_s: float) -> str:
    """Return for how long a worker has been silent, and when that ends."""
    return f"silent for {silent_s:.0f} s, its tasks are taken over after {limits.SILENCE_S:.0f} s"


def at_work(watcher: Watcher, but: str = "") -> tuple[AtWork, ...]:
    """Return the workers that are not known to have ended, also those of this host that are frozen; except one."""
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
    """Return a line for each, no more than a screen has room for; of one alone only if it is silent."""
    if len(workers) < 2 and not any(one.is_quiet for one in workers):
        return []
    more = [f"… and {len(workers) - MOST_LINES} more workers"] if len(workers) > MOST_LINES else []
    return [*(one.in_words() for one in workers[:MOST_LINES]), *more]


def in_short(workers: Sequence[AtWork]) -> str:
    """Return how many there are, and on how many nodes: "3 workers on 2 nodes"; empty for one alone."""
    nodes = {one.host for one in workers}
    where = f" on {plural(len(nodes), 'node')}" if len(nodes) > 1 else ""
    quiet = sum(one.is_quiet for one in workers)
    silent = f", {quiet} of them silent" if quiet else ""
    return f"{plural(len(workers), 'worker')}{where}{silent}" if len(workers) > 1 else ""
