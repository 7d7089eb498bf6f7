"""SIGKILL and SIGSTOP at random moments over a batch, and what must hold afterwards.

Half of the trainers leave a child in a session of its own, the other half one that has emptied its environment as well.
Who is stopped: a supervisor is woken or ended by its parent, a trainer falls to the stall limit or is woken by us, and
so is a parent, since nobody else would.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import accepted_pairs
import light_trainer
from after_kills import events_of, faults_of
from fake_batch import FakeBatch
from process_family import PATIENCE_S, family, patch_of_trainer

from splatbatch import processes
from splatbatch.files import read_json

PATCHES = tuple(f"p{number}" for number in range(6))
SLOTS = 2
MOMENT_S = 1.0
START_S = 15.0
QUICK = {
    "splatbatch.machine.local.SILENCE_S": 2.0,
    "splatbatch.machine.local.WAKING_S": 4.0,
    "splatbatch.failures.retry.LONGEST_WAIT_S": 0.2,
}
STALL_S = 4.0
KIN = ("train-with-kin", "train-with-fugitive")
STOPS = 0.25
"""Share of the kills that are a SIGSTOP."""
REAPING_S = 0.5
"""So long a parent outlives a supervisor that we killed where there are no control groups: see `leftovers`."""
# what appears when something of consequence has just happened
TRACES = (
    "patches/*/attempt-*",
    "patches/*/attempt-*/job.json",
    "patches/*/attempt-*/start.json",
    "patches/*/attempt-*/heartbeat.json",
    "patches/*/attempt-*/splat.ply",
    "patches/*/attempt-*/.exit.json.*",
    "patches/*/attempt-*/exit.json",
    "patches/*/splat.ply",
    "patches/*/.result.json.*",
    "patches/*/result.json",
    "workers/local.json",
    "claims/.exclusive/1",
)


@dataclass
class Figures:
    """What a kill test counted."""

    kills: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    restarts: int = 0
    attempts: int = 0
    trained: int = 0
    adopted: int = 0
    allowed_extra: int = 0
    reads: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def extra(self) -> int:
        return self.attempts - self.trained

    def in_words(self) -> str:
        kills = ", ".join(f"{number} {target}" for target, number in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills and stops ({kills}) in {self.rounds} batches of {len(PATCHES)} patches, "
            f"{self.restarts} restarts: {self.trained} trained by {self.attempts} attempts ({self.adopted} adopted), "
            f"{self.extra} extra of at most {self.allowed_extra}; "
            f"{self.reads} looks at accepted pairs; {len(self.faults)} faults; {self.seconds:.0f} s"
        )


class Round:
    """One batch that is killed again and again until all its patches are trained."""

    def __init__(self, folder: Path, seed: int, figures: Figures) -> None:
        self.random = random.Random(seed)
        self.figures = figures
        self.batch = FakeBatch(folder).make(
            *PATCHES,
            executor={"cpu_slots": SLOTS},
            retry={"max_attempts": 20},
            limits={"grace_s": 0.5, "free_disk_mib": 0, "stall_s": STALL_S},
        )
        self.batch.script(
            **{patch: [f"{KIN[i % 2]} {self.random.uniform(0, 0.6):.2f}"] for i, patch in enumerate(PATCHES)}
        )
        self.log = (folder / "parents.log").open("ab")
        self.hung: set[str] = set()

    def run(self, kills: int) -> None:
        """Kill `kills` times, or until the batch is done; then let it end, and check everything."""
        stop = self.batch.folder / "stop-reading"
        command = [sys.executable, accepted_pairs.__file__, str(self.batch.output), str(stop)]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        code = self._until_done(kills)
        stop.touch()
        said = json.loads(reader.communicate(timeout=PATIENCE_S)[0])
        self.figures.rounds += 1
        self.figures.reads += said["reads"]
        self.figures.faults += [*said["faults"], *self._check(code)]

    def _until_done(self, kills: int) -> int:
        give_up_at = time.monotonic() + PATIENCE_S + 10 * kills
        parent = self._start()
        while time.monotonic() < give_up_at:
            if kills and parent.poll() is None:
                kills -= self._kill(parent)
            elif (code := parent.wait(PATIENCE_S)) == 0:
                return code
            else:
                self.figures.restarts += 1
                parent = self._start()
        parent.kill()
        return -1

    def _start(self) -> subprocess.Popen[bytes]:
        command, streams = self.batch.command("train"), {"stdout": self.log, "stderr": self.log}
        more = {"FAKE_TRAINER_PROGRAM": light_trainer.__file__, "FAKE_TRAINER_CONSTANTS": json.dumps(QUICK)}
        environment = {**self.batch.environment(), **more}
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **streams)

    def _kill(self, parent: subprocess.Popen[bytes]) -> bool:
        """Kill or stop somebody at some moment; return whether anybody was left for that."""
        target = self.random.choice(("parent", "supervisor", "trainer"))
        stops = self.random.random() < STOPS
        self._wait_for_a_moment(parent)
        pids = [parent.pid] if target == "parent" else self._wait_for_some(target, parent)
        if not pids or parent.poll() is not None:
            return False
        pid = self.random.choice(pids)
        if stops:
            self._stop(target, pid)
        else:
            self.figures.allowed_extra += self._num_running() if target == "parent" else 1
            os.kill(pid, signal.SIGKILL)
            self._after(target, parent)
        self.figures.kills[f"{target} stopped" if stops else target] += 1
        return True

    def _after(self, target: str, parent: subprocess.Popen[bytes]) -> None:
        if target == "parent":
            parent.wait()
        elif target == "supervisor" and not self._has_groups():
            time.sleep(REAPING_S)

    def _has_groups(self) -> bool:
        starts = self.batch.output.glob("patches/*/attempt-*/start.json")
        return any((read_json(start) or {}).get("group") for start in starts)

    def _stop(self, target: str, pid: int) -> None:
        """Freeze somebody: for a while, or for good if somebody else has to find out; at most one hang per patch."""
        patch = patch_of_trainer(pid) if target == "trainer" else ""
        self.figures.allowed_extra += target != "parent"
        is_for_good = target == "supervisor" or (bool(patch) and patch not in self.hung and self.random.random() < 0.5)
        processes.send(signal.SIGSTOP, [pid])
        if is_for_good:
            self.hung |= {patch}
        else:
            time.sleep(self.random.uniform(0.0, 2.0))
            processes.send(signal.SIGCONT, [pid])

    def _wait_for_a_moment(self, parent: subprocess.Popen[bytes]) -> None:
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 1.5))
            return
        trace, end = self.random.choice(TRACES), time.monotonic() + MOMENT_S
        before = set(self.batch.output.glob(trace))
        while parent.poll() is None and time.monotonic() < end and set(self.batch.output.glob(trace)) <= before:
            time.sleep(0.0005)
        time.sleep(self.random.choice((0.0, self.random.uniform(0, 0.02))))

    def _wait_for_some(self, target: str, parent: subprocess.Popen[bytes]) -> list[int]:
        """Return whom to kill; a parent that has just begun has nobody yet, and would be the victim nearly always."""
        end = time.monotonic() + START_S
        while not (pids := family(parent.pid)[target]) and parent.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(self.random.choice((0.0, self.random.uniform(0, 0.2))))
        return [pid for pid in pids if processes.start_ticks(pid)]

    def _num_running(self) -> int:
        jobs = self.batch.output.glob("patches/*/attempt-*/job.json")
        ends = ("exit.json", "cancel")
        open_ones = [job.parent for job in jobs if not any(job.with_name(end).exists() for end in ends)]
        settled = {(event["patch"], event["attempt"]) for event in events_of(self.batch, "attempt_ended")}
        return min(SLOTS, sum((one.parent.name, int(one.name[-2:])) not in settled for one in open_ones))

    def _check(self, code: int) -> Iterator[str]:
        trained = [one for one in events_of(self.batch, "attempt_ended") if one["outcome"] == "trained"]
        self.figures.attempts += len(list(self.batch.output.glob("patches/*/attempt-*/start.json")))
        self.figures.trained += len({(event["patch"], event["attempt"]) for event in trained})
        self.figures.adopted += sum(bool(event.get("adopted")) for event in trained)
        if code != 0:
            yield f"the batch ended with {code}"
        yield from faults_of(self.batch, PATCHES)


def kill_test(folder: Path, kills: int, seed: int, per_round: int = 25) -> Figures:
    """Kill or stop `kills` times over as many batches as it takes."""
    figures, started = Figures(), time.monotonic()
    while (left := kills - sum(figures.kills.values())) > 0 and len(figures.faults) < 10:
        place = folder / f"round-{figures.rounds}"
        place.mkdir()
        Round(place, seed + figures.rounds, figures).run(min(left, per_round))
        if not figures.faults:
            shutil.rmtree(place)
    if figures.extra > figures.allowed_extra:
        figures.faults.append(f"{figures.extra} extra attempts, allowed {figures.allowed_extra}")
    figures.seconds = time.monotonic() - started
    return figures
