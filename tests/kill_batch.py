"""SIGKILL at random moments over a batch, two parents at one instant, and what must hold afterwards."""

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
from accepted_pairs import fault_of_pair
from fake_batch import FakeBatch

from splatbatch.supervisor import processes

PATCHES = tuple(f"p{number}" for number in range(6))
SLOTS = 2
PATIENCE_S = 60.0
MOMENT_S = 1.0
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
    "lock",
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

    @property
    def extra(self) -> int:
        return self.attempts - self.trained

    def in_words(self) -> str:
        kills = ", ".join(f"{number} {target}" for target, number in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kills}) in {self.rounds} batches of {len(PATCHES)} patches, "
            f"{self.restarts} restarts: {self.trained} trained by {self.attempts} attempts ({self.adopted} adopted), "
            f"{self.extra} extra of at most {self.allowed_extra}; "
            f"{self.reads} looks at accepted pairs; {len(self.faults)} faults"
        )


class Round:
    """One batch that is killed again and again until all its patches are trained."""

    def __init__(self, folder: Path, seed: int, figures: Figures) -> None:
        self.random = random.Random(seed)
        self.figures = figures
        self.batch = FakeBatch(folder).make(
            *PATCHES,
            executor={"cpu_slots": SLOTS},
            retry={"first_wait_s": 0.05, "longest_wait_s": 0.2, "max_attempts": 20},
            limits={"grace_s": 0.5, "free_disk_mib": 0},
        )
        scripts = {patch: [f"train-with-kin {self.random.uniform(0, 0.6):.2f}"] for patch in PATCHES}
        self.batch.script(**scripts)
        self.log = (folder / "parents.log").open("ab")

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
        return subprocess.Popen(command, env=self.batch.environment(), stdin=subprocess.DEVNULL, **streams)

    def _kill(self, parent: subprocess.Popen[bytes]) -> bool:
        """Kill somebody at some moment; return whether anybody was left to be killed."""
        target = self.random.choice(("parent", "supervisor", "trainer"))
        self._wait_for_a_moment(parent)
        pids = [parent.pid] if target == "parent" else family(parent.pid)[target]
        if not pids or parent.poll() is not None:
            return False
        lost = self._num_running() if target == "parent" else 1
        os.kill(self.random.choice(pids), signal.SIGKILL)
        if target == "parent":
            parent.wait()
        self.figures.kills[target] += 1
        self.figures.allowed_extra += lost
        return True

    def _wait_for_a_moment(self, parent: subprocess.Popen[bytes]) -> None:
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 1.5))
            return
        trace, end = self.random.choice(TRACES), time.monotonic() + MOMENT_S
        before = set(self.batch.output.glob(trace))
        while parent.poll() is None and time.monotonic() < end and set(self.batch.output.glob(trace)) <= before:
            time.sleep(0.0005)
        time.sleep(self.random.choice((0.0, self.random.uniform(0, 0.02))))

    def _num_running(self) -> int:
        jobs = self.batch.output.glob("patches/*/attempt-*/job.json")
        ends = ("exit.json", "cancel")
        open_ones = [job.parent for job in jobs if not any(job.with_name(end).exists() for end in ends)]
        settled = {(event["patch"], event["attempt"]) for event in self._events("attempt_ended")}
        return min(SLOTS, sum((one.parent.name, int(one.name[-2:])) not in settled for one in open_ones))

    def _events(self, kind: str) -> list[dict]:
        ledger = self.batch.output / "ledger.jsonl"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        events = (json.loads(line) for line in lines if line.endswith("}"))
        return [event for event in events if event["event"] == kind]

    def _check(self, code: int) -> Iterator[str]:
        ended = self._events("attempt_ended")
        trained = [(event["patch"], event["attempt"]) for event in ended if event["outcome"] == "trained"]
        self.figures.attempts += len(list(self.batch.output.glob("patches/*/attempt-*/start.json")))
        self.figures.trained += len(set(trained))
        self.figures.adopted += sum(bool(event.get("adopted")) for event in ended if event["outcome"] == "trained")
        if code != 0:
            yield f"the batch ended with {code}"
        if sorted(patch for patch, _ in trained) != list(PATCHES):
            yield f"trained in the ledger: {trained}"
        for patch in PATCHES:
            if fault := fault_of_pair(self.batch.output / "patches" / patch):
                yield f"{patch}: {fault}"
        if left := self._left_over():
            yield f"processes left: {left}"
        if litter := [str(path) for path in self.batch.output.glob("patches/**/.*")]:
            yield f"litter: {litter}"

    def _left_over(self) -> list[int]:
        script = f"FAKE_TRAINER_SCRIPT={self.batch.folder / 'script.json'}".encode()
        end = time.monotonic() + 2.0
        while (left := list(_with_variable(script))) and time.monotonic() < end:
            time.sleep(0.05)
        return left


def family(parent: int) -> dict[str, list[int]]:
    """Return the supervisors below a parent, and the trainers below them."""
    found: dict[str, list[int]] = {"supervisor": [], "trainer": []}
    for pid in processes.descendants(parent):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        role = "supervisor" if b"splatbatch.supervisor" in argv else "trainer" if b"--attempt" in argv else ""
        found.get(role, []).append(pid)
    return found


def kill_test(folder: Path, kills: int, seed: int, per_round: int = 25) -> Figures:
    """Kill `kills` times over as many batches as it takes."""
    figures = Figures()
    while (left := kills - sum(figures.kills.values())) > 0 and len(figures.faults) < 10:
        place = folder / f"round-{figures.rounds}"
        place.mkdir()
        Round(place, seed + figures.rounds, figures).run(min(left, per_round))
        if not figures.faults:
            shutil.rmtree(place)
    if figures.extra > figures.allowed_extra:
        figures.faults.append(f"{figures.extra} extra attempts, allowed {figures.allowed_extra}")
    return figures


def races(folder: Path, number: int) -> Counter[tuple[int, int]]:
    """Start two parents at one instant, again and again; count how the pairs ended."""
    batch = FakeBatch(folder).make("p0", limits={"grace_s": 0.5, "free_disk_mib": 0}).script(p0=["await go"])
    return Counter(_race(batch) for _ in range(number))


def _race(batch: FakeBatch) -> tuple[int, int]:
    shutil.rmtree(batch.output, ignore_errors=True)
    for old in (*batch.folder.glob("barrier*"), *batch.folder.glob("go")):
        old.unlink()
    barrier = batch.folder / "barrier"
    environment = {**batch.environment(), "FAKE_TRAINER_BARRIER": str(barrier)}
    command, streams = batch.command("train"), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    both = [subprocess.Popen(command, env=environment, **streams) for _ in range(2)]
    wait_until(lambda: len(list(batch.folder.glob("barrier.*"))) == 2)
    barrier.touch()
    wait_until(lambda: any(process.poll() is not None for process in both))
    (batch.folder / "go").touch()
    first, second = sorted(process.wait(PATIENCE_S) for process in both)
    return first, second


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.002)


def _with_variable(variable: bytes) -> Iterator[int]:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable in environ.read_bytes().split(b"\0"):
                yield int(environ.parent.name)
        except OSError:
            continue
