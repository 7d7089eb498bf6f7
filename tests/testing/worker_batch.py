"""Workers that are killed at random over tasks that take no time: `worker_batch.py FOLDER TASKS KILLS SEED [cut]`.

With `cut` the tasks are the patches of one scene, and are drawn against its backdrop.

All of them are forks of one process that has everything imported. An attempt is what a supervisor and a trainer would
leave, made by the worker itself: a kill may leave any part of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from accepted_pairs import fault_of_pair
from cut_scene import SCENE, halves
from fake_batch import FakeBatch
from light_trainer import splat_of

from splatbatch.output.folders import PatchFolder
from splatbatch.scene.partition.boxes import EVERYWHERE
from splatbatch.scene.partition.record import Core, write_partition

NUM_WORKERS = 8
FROM_OUTSIDE = 0.02
"""How often somebody is killed at a moment of nobody's choice, whatever he does: most of the time he begins."""
OF_OPERATIONS = 1.0
"""Share of the workers that are killed in the middle of an operation on their tasks."""
MOST_OPERATIONS = 60
PATIENCE_S = 3600.0
BACKDROP_S = 1.0
"""Long enough for all workers to come to the patches that wait for it."""
STEPS = 20


class InstantExecutor:
    """Leaves what an attempt that went well leaves, in no time."""

    shared_mib = 0.0

    def __init__(self, *_: object, **__: object) -> None:
        self._keys: set[str] = set()

    @property
    def slots(self) -> Any:
        from splatbatch.machine.protocol import Slot

        return (Slot("cpu0"),)

    def submit(self, key: str, folder: Any) -> str:
        from splatbatch.files import append_line, write_json

        folder.start.touch(exist_ok=False)
        if folder.path.parent.name == "backdrop":
            time.sleep(BACKDROP_S)
        append_line(folder.progress, {"phase": "done", "step": STEPS, "max_steps": STEPS}, durable=False)
        folder.splat.write_bytes(splat_of(10 + folder.number, STEPS))
        write_json(folder.exit, {"kind": "exited", "code": 0, "seconds": 0.0})
        return key

    def poll(self, handles: Any) -> Any:
        from splatbatch.machine.protocol import GONE

        return dict.fromkeys(handles, GONE)

    def find(self, batch: str, unended: Any = ()) -> Any:
        return {}

    def close(self) -> None:
        pass

    def cancel(self, handles: Any) -> None:
        pass

    kill = cancel


def make(folder: Path, num_tasks: int) -> FakeBatch:
    """Write a batch whose patches all lead to one small model."""
    batch = FakeBatch(folder).make("p0", limits={"grace_s": 0.5, "free_disk_mib": 0}, training={"colors": "as_is"})
    for number in range(1, num_tasks):
        (folder / "patches" / f"p{number}" / "sparse").mkdir(parents=True)
        (folder / "patches" / f"p{number}" / "sparse" / "0").symlink_to(folder / "patches" / "p0" / "sparse" / "0")
    return batch


def cut(batch: FakeBatch, num_tasks: int) -> None:
    """Have the patches be slices of one scene."""
    rest, cores = EVERYWHERE, []
    for number in range(num_tasks):
        box, rest = rest.cut(0, 2 * (number + 1) / num_tasks - 1) if number < num_tasks - 1 else (rest, rest)
        cores.append(Core(f"p{number}", box, box.with_overlap((0.3, 0.0, 0.0)), box.clipped(SCENE)))
    (batch.folder / "sparse").mkdir()
    (batch.folder / "sparse/0").symlink_to(batch.folder / "patches/p0/sparse/0")
    write_partition(replace(halves(batch.folder), cores=tuple(cores)))


@dataclass
class EngineWorkers:
    """Workers of which one is killed at random again and again; each that was killed is replaced."""

    batch: FakeBatch
    chance: random.Random
    kills: int
    pids: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    codes: Counter[int] = field(default_factory=Counter)

    def run(self, num_tasks: int) -> None:
        """Go on until all have ended by themselves."""
        for _ in range(NUM_WORKERS):
            self._start()
        give_up_at = time.monotonic() + PATIENCE_S
        while self.pids and time.monotonic() < give_up_at:
            time.sleep(self.chance.choice((0.001, 0.01, self.chance.uniform(0, 0.3))))
            if len(self.killed) < self.kills and _num_accepted(self.batch) < num_tasks:
                self._kill()
            for pid in list(self.pids):
                self._look_at(pid)
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            self.codes[-signal.SIGKILL] += 1
        os.waitpid(_fork(self.batch, 0), 0)  # the next one sweeps what writers that were killed have left

    def _start(self) -> None:
        """Start a worker; most end in the middle of an operation of theirs, the others when it happens."""
        is_doomed = len(self.killed) < self.kills and self.chance.random() < OF_OPERATIONS
        self.pids.add(_fork(self.batch, self.chance.randint(1, MOST_OPERATIONS) if is_doomed else 0))

    def _kill(self) -> None:
        alive = sorted(self.pids - self.killed)
        if alive and self.chance.random() < FROM_OUTSIDE:
            victim = self.chance.choice(alive)
            os.kill(victim, signal.SIGKILL)
            self.killed.add(victim)

    def _look_at(self, pid: int) -> None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return
        self.pids.discard(pid)
        if (code := os.waitstatus_to_exitcode(status)) < 0:
            self.killed.add(pid)
            self._start()
        else:
            self.codes[code] += 1


def _num_accepted(batch: FakeBatch) -> int:
    return sum(1 for _ in batch.output.glob("patches/*/accepted/1.json"))


def faults_of(batch: FakeBatch, num_tasks: int) -> list[str]:
    """Say what is lost, accepted twice, or told otherwise than it is."""
    faults, ended = [], list(_ended(batch))
    has_backdrop = (batch.folder / "patches/partition.json").exists()
    backdrop = PatchFolder(batch.output / "patches/backdrop").accepted_splat()[1] if has_backdrop else None
    for name in (*(f"p{number}" for number in range(num_tasks)), *(["backdrop"] if has_backdrop else [])):
        patch = batch.output / "patches" / name
        records = sorted(path.name for path in (patch / "accepted").glob("*"))
        if records != ["1.json"]:
            faults.append(f"{name}: accepted {records}")
            continue
        if name != "backdrop" and drawn_against(patch) != backdrop:
            faults.append(f"{name}: drawn against {drawn_against(patch)}, not {backdrop}")
        if fault := fault_of_pair(patch):
            faults.append(f"{name}: {fault}")
        attempt = json.loads((patch / "accepted" / "1.json").read_text())["attempt"]
        told = {event["attempt"] for event in ended if event["patch"] == name and event.get("accepted")}
        if told != {int(attempt[-2:])}:
            faults.append(f"{name}: {attempt} is accepted, the ledgers say {told}")
    faults += [f"litter: {path}" for path in batch.output.glob("**/.*") if path.name not in KNOWN]
    return faults


def drawn_against(patch: Path) -> str | None:
    """Return the hash of the backdrop that an accepted splat was trained against; None if it was against none."""
    found: str | None = json.loads((patch / "accepted" / "1.json").read_text()).get("backdrop")
    return found


KNOWN = (".prepare", ".exclusive")


def _ended(batch: FakeBatch) -> Any:
    for path in batch.output.glob("ledger/*.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line) if line.endswith("}") else {}
            if event.get("event") == "attempt_ended":
                yield event


def counts(batch: FakeBatch, num_tasks: int) -> dict[str, int]:
    """Return how many attempts were made, and how many of those that trained were in vain."""
    trained = {(one["patch"], one["attempt"]) for one in _ended(batch) if one["outcome"] == "trained"}
    attempts = sum(1 for _ in batch.output.glob("patches/*/attempt-*"))
    return {"attempts": attempts, "duplicates": len(trained) - len({name for name, _ in trained})}


def _fork(batch: FakeBatch, moment: int) -> int:
    if pid := os.fork():
        return pid
    if moment:
        _die_at(moment)
    _work(batch)


def _die_at(moment: int) -> None:
    """Have this process killed by its so-manieth operation on files since it claimed its first patch.

    A reader that it has forked accepts what was trained: it ends with its worker, and never alone.
    """
    done, worker = 0, os.getpid()

    def counted(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal done
            found = real(*args, **more)
            done += bool(done) or any(name in str(args[1:2]) for name in ("/claims/p", "/claims/backdrop"))
            if done >= moment:
                os.kill(worker, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return call

    for name in ("link", "mkdir", "replace", "unlink", "write", "fsync"):
        setattr(os, name, counted(getattr(os, name)))


def make_instant() -> None:
    """Have attempts of this process take no time."""
    from splatbatch.scheduler import session
    from splatbatch.scheduler.work import adopt

    session.LocalExecutor = adopt.LocalExecutor = InstantExecutor  # type: ignore[misc, assignment]


def _work(batch: FakeBatch) -> NoReturn:
    from splatbatch.cli import main

    log = os.open(batch.folder / "workers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    make_instant()
    os.environ |= {"SPLATBATCH_CONFIG": str(batch.config), "FAKE_TRAINER_SCRIPT": str(batch.folder / "script.json")}
    code = 70
    try:
        main(["work"])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - a fork of a test: what it dies of is told in its log
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    import fake_trainer

    from splatbatch.report import write_report  # noqa: F401
    from splatbatch.run import worker  # noqa: F401 - all have it when they begin

    fake_trainer.install()
    the_batch, num = make(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[2])
    if "cut" in sys.argv[5:]:
        cut(the_batch, num)
    crew, began = EngineWorkers(the_batch, random.Random(int(sys.argv[4])), int(sys.argv[3])), time.monotonic()
    crew.run(num)
    figures = {"killed": len(crew.killed), "codes": crew.codes, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps({**figures, **counts(the_batch, num), "faults": faults_of(the_batch, num)}))
