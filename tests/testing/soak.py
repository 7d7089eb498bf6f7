"""A batch that meets a night's troubles for as long as it is told, and what its parent holds meanwhile.

Six of ten patches fail, each in another way, and one of them always. Now and then a trainer is killed, the disk is
full, or the parent's clock jumps. The folder remembers how far it is: a soak that was cut short goes on. Its output
lies on a disk of its own, which root mounts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median

import late_clock
import light_trainer
from after_kills import events_of, faults_of
from fake_batch import FakeBatch
from full_disk import empty, fill_for, mounted, unmount
from process_family import family, left_of, patch_of_trainer

SLOTS = 4
DISK_MIB = 128
LOOKS = 600
TROUBLES = {"kill": 0.6, "clock": 0.09, "fill": 0.06}
"""How many for each patch; once at least."""
FULL_S = 15.0
USED = 0.75
"""Share of the time that trainings take; the rest is what failures cost."""
JUMP_S = 7200.0
FAILURES = {
    1: ["exit 1 torch.OutOfMemoryError: CUDA out of memory.", "train"],
    2: ["die SIGSEGV", "train"],
    3: ["exit 1 RuntimeError: it is always this patch"],
    5: ["exit 1 RuntimeError: CUDA error: unspecified launch failure", "train"],
    7: ["exit 0", "train"],  # without a splat
    8: ["exit 1 OSError: [Errno 5] Input/output error", "train"],
}
"""What patches do, by the last digit of their number; `train` stands for their time."""
FAILS_ALWAYS = "3"
MORE_MIB, MORE_SHARE = 8.0, 0.1
"""A parent may hold so much more memory at its end than after a fifth of its time: the larger of the two."""


@dataclass(frozen=True)
class Sample:
    """What a parent held at a moment."""

    spent_s: float
    """Of the soak, all its pieces together."""
    pid: int
    mib: float
    threads: int
    descriptors: int


class Soak:
    """One such batch in a folder."""

    def __init__(self, folder: Path, patches: int, seconds: float) -> None:
        self.batch, self.seconds, self.random = FakeBatch(folder), seconds, Random()
        self.patches = [f"p{number}" for number in range(patches)]
        self.samples_file, self.clock, self.disk = folder / "samples.jsonl", folder / "clock", folder / "disk"
        self.not_killed = set(self.patches)
        self.spent_s = max((one.spent_s for one in self.samples()), default=0.0)

    def run(self) -> list[str]:
        """Train to the end; return what is wrong afterwards."""
        if not self.batch.config.exists():
            self._make()
        for pid in left_of(self.batch, patience_s=0):  # a soak that was killed leaves its parent
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent = self._start()
        try:
            self._trouble(parent)
        finally:
            parent.terminate()
            parent.wait()
            empty(self.disk)
        wrong = [*self._lost(parent.returncode), *grown(self.samples())]
        if not wrong:
            unmount(self.disk)
        return wrong

    def samples(self) -> list[Sample]:
        if not self.samples_file.exists():
            return []
        return [Sample(**json.loads(line)) for line in self.samples_file.read_text().splitlines()]

    def _make(self) -> None:
        mounted(self.batch, DISK_MIB)
        self.clock.write_text("0")
        self.batch.make(
            *self.patches,
            executor={"cpu_slots": SLOTS},
            retry={"max_attempts": 20},
            limits={"free_disk_mib": 2, "grace_s": 0.5},
        )
        long = f"train {USED * self.seconds * SLOTS / len(self.patches):.1f}"
        lines = {patch: FAILURES.get(int(patch[-1]), ["train"]) for patch in self.patches}
        self.batch.script(
            **{patch: [long if line == "train" else line for line in said] for patch, said in lines.items()}
        )

    def _start(self) -> subprocess.Popen[bytes]:
        command = self.batch.command("train")
        command[1] = late_clock.__file__
        more = {late_clock.CLOCK: str(self.clock), "FAKE_TRAINER_PROGRAM": light_trainer.__file__}
        with (self.batch.folder / "parent.log").open("ab") as log:
            return subprocess.Popen(
                command, env=self.batch.environment() | more, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _trouble(self, parent: subprocess.Popen[bytes]) -> None:
        acts = {"look": self._look, "kill": self._kill, "clock": self._set_clock, "fill": self._fill}
        numbers = {"look": LOOKS} | {what: max(1, share * len(self.patches)) for what, share in TROUBLES.items()}
        every = {what: self.seconds / (number + 1) for what, number in numbers.items()}
        began, before, due = time.monotonic(), self.spent_s, dict(every)
        while parent.poll() is None and (now := time.monotonic() - began) < 2 * self.seconds + 60:
            self.spent_s = before + now
            for what in [what for what, at in due.items() if at <= now]:
                due[what] = now + every[what]
                acts[what](parent.pid)
            time.sleep(0.1)

    def _kill(self, parent: int) -> None:
        """Kill a trainer, of each patch once: who is killed for host memory again and again is given up."""
        trainers = {patch_of_trainer(pid): pid for pid in family(parent)["trainer"]}
        if left := sorted(set(trainers) & self.not_killed):
            patch = self.random.choice(left)
            self.not_killed.remove(patch)
            os.kill(trainers[patch], signal.SIGKILL)

    def _set_clock(self, parent: int) -> None:
        self.clock.with_suffix(".new").write_text(str(self.random.uniform(-JUMP_S, JUMP_S)))
        self.clock.with_suffix(".new").replace(self.clock)

    def _fill(self, parent: int) -> None:
        fill_for(self.disk, min(FULL_S, self.seconds / 10))

    def _look(self, pid: int) -> None:
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            held = int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), descriptors
        except (OSError, KeyError):  # it ends
            return
        sample = Sample(round(self.spent_s, 1), pid, *held)
        with self.samples_file.open("a") as file:
            file.write(json.dumps(vars(sample)) + "\n")

    def _lost(self, code: int | None) -> Iterator[str]:
        never = {patch for patch in self.patches if patch.endswith(FAILS_ALWAYS)}
        if code != (1 if never else 0):
            yield f"exit {code}"
        given_up = {event["patch"] for event in events_of(self.batch, "gave_up")}
        if given_up != never:
            yield f"given up: {sorted(given_up)}"
        yield from faults_of(self.batch, sorted(set(self.patches) - never), failing=never)


def grown(samples: list[Sample]) -> Iterator[str]:
    """Say of what a parent held more in the last fifth of its life than in the second: the first is its start."""
    for pid, group in groupby(samples, lambda one: one.pid):
        life = list(group)
        fifth = len(life) // 5
        if fifth < 3:
            continue
        early, late = life[fifth : 2 * fifth], life[-fifth:]
        for name, allowed in (("mib", MORE_MIB), ("threads", 0), ("descriptors", 0)):
            before, after = (median(getattr(one, name) for one in part) for part in (early, late))
            if after > before + max(allowed, MORE_SHARE * before * (name == "mib")):
                yield f"parent {pid}: {name} grew from {before:.0f} to {after:.0f}"
