"""What the parent itself costs per patch: attempts that take no time, no process, and leave a whole splat."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from splatbatch import trainers
from splatbatch.config import Recipe
from splatbatch.files import append_line, write_json
from splatbatch.machine.protocol import GONE, Handle, Key, Slot
from splatbatch.outcome import Rejected, Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.claims import Claims
from splatbatch.output.exclusive import hold
from splatbatch.output.ledger import Ledger
from splatbatch.output.workers import Watcher
from splatbatch.report import write_report
from splatbatch.scene.patches import Patch
from splatbatch.scheduler import session
from splatbatch.scheduler.work.claimer import TaskClaimer, progress_of
from splatbatch.scheduler.work.other_workers import OtherWorkers
from splatbatch.splats import Gaussians, check_splat, write_splat
from splatbatch.tasks.audits import audits_of, refusals
from splatbatch.tasks.batch import open_batch

STEPS = 20
SLOTS = 8
MODEL = {
    "cameras.txt": "1 PINHOLE 32 24 30 30 16 12\n",
    "images.txt": "".join(f"{i + 1} 1 0 0 0 {-0.1 * i} 0 0 1 img{i}.png\n10 10 1\n" for i in range(9)),
    "points3D.txt": "".join(f"{i + 1} {i % 6} {i // 6} 3 128 100 90 0.5 1 0 2 0\n" for i in range(36)),
}


class InstantTrainer:
    """Names a command that nobody runs."""

    stands_by = False

    def __init__(self, recipe: Recipe) -> None:
        self._steps = recipe.training.max_steps

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json, as every trainer does."""
        write_json(folder.settings, {"patch": folder.task})
        return (sys.executable, "-c", "")

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Check the splat, as every trainer does."""
        return check_splat(folder.splat, self._steps)


@dataclass
class InstantExecutor:
    """Leaves what a supervisor and a training would leave, in no time; knows how much time that took all the same."""

    splat: Path
    shared_mib: float = 0.0
    own_s: float = 0.0
    own_cpu_s: float = 0.0
    _keys: set[Key] = field(default_factory=set)

    @property
    def slots(self) -> Sequence[Slot]:
        """Return a few slots on the CPU."""
        return tuple(Slot(f"cpu{index}") for index in range(SLOTS))

    def submit(self, key: Key, folder: AttemptFolder) -> Handle:
        """Leave what an attempt that went well leaves."""
        started, cpu = time.perf_counter(), time.process_time()
        folder.start.touch()
        append_line(folder.progress, {"phase": "done", "step": STEPS, "max_steps": STEPS}, durable=False)
        os.link(self.splat, folder.splat)
        folder.exit.write_text('{"kind": "exited", "code": 0, "seconds": 0.0}')
        self.own_s += time.perf_counter() - started
        self.own_cpu_s += time.process_time() - cpu
        return key

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, str]:
        """Say that all have ended."""
        return dict.fromkeys(handles, GONE)

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Do nothing: nothing runs."""

    def close(self) -> None:
        """Do nothing: nothing was started."""

    def kill(self, handles: Mapping[Key, Handle]) -> None:
        """Do nothing: nothing runs."""

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, Handle]:
        """Return nothing: nothing runs."""
        return {}


def measure_in_its_own_process(num: int, folder: Path) -> dict[str, float]:
    """Return the figures of one batch of so many patches; in a process of its own, for its memory."""
    code = f"from batch_bench import scheduler; scheduler.report({num}, {str(folder)!r})"
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), *sys.path])
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {str(key): float(value) for key, value in json.loads(said.stdout).items()}


class Stopwatch:
    """Wall and CPU seconds of this process since it was last asked."""

    def __init__(self) -> None:
        self._marks = time.perf_counter(), time.process_time()

    def lap(self) -> tuple[float, float]:
        """Return wall and CPU seconds, and begin anew."""
        before, self._marks = self._marks, (time.perf_counter(), time.process_time())
        return self._marks[0] - before[0], self._marks[1] - before[1]


def report(num: int, folder: str) -> None:
    """Plan, run, record and report; print milliseconds per patch, seconds of `status`, and MiB at the peak."""
    root = Path(folder) / str(num)
    config = make_scene(root, num)
    trainers.TRAINERS["gsplat"] = InstantTrainer
    executor = InstantExecutor(make_splat(root))
    session.LocalExecutor = lambda *_, **__: executor  # type: ignore[assignment, misc, attr-defined]
    watch, laps = Stopwatch(), {}
    opened = open_batch(config)
    opened.output.create()
    opened.states(refusals(audits_of(opened)))
    laps["plan"] = watch.lap()
    with hold(opened.output, "", print) as presence:
        claims = Claims(opened.output, presence, Watcher(opened.output).is_dead)
        ledger = Ledger(opened.output.ledger, generation_of=claims.generation)
        claimer = TaskClaimer(
            presence.heartbeat,
            claims=claims,
            ledger=ledger,
            before=progress_of(opened),
            standing=opened.standing("content"),
            others=OtherWorkers(Watcher(opened.output), ledger.tell_wait),
        )
        session.run(opened, ledger, claimer)
    wall_s, cpu_s = watch.lap()
    laps["run"] = wall_s - executor.own_s, cpu_s - executor.own_cpu_s
    run_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # previews of splats are bounded by output.previews_mib, not by the number of patches
    write_report(opened.output, opened.names, previews_mib=0)
    laps["report"] = watch.lap()
    figures = {f"{name}_ms": 1e3 * wall / num for name, (wall, _) in laps.items()}
    figures |= {f"{name}_cpu_ms": 1e3 * cpu / num for name, (_, cpu) in laps.items()}
    figures["run_mib"] = run_mib
    figures["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    looks = [cpu_s_of([sys.executable, "-m", "splatbatch", "status", "--config", str(config)]) for _ in range(3)]
    figures["status_cpu_s"] = min(looks)
    print(json.dumps(figures))


def cpu_s_of(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_scene(root: Path, num: int) -> Path:
    """Write a scene whose patches all lead to one small model; return its config."""
    model = root / "model"
    for name, text in MODEL.items():
        model.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(text)
    (root / "images").mkdir()
    for index in range(9):
        write_photo(root / "images" / f"img{index}.png", index)
    for index in range(num):
        (root / "patches" / f"p{index}" / "sparse").mkdir(parents=True)
        (root / "patches" / f"p{index}" / "sparse" / "0").symlink_to(model)
    config = root / "splat_config.yml"
    training = {"max_steps": STEPS, "device": "cpu"}
    settings = {"scene": {"images": "images"}, "training": training, "limits": {"free_disk_mib": 0}}
    config.write_text(json.dumps(settings))  # JSON is YAML
    return config


def write_photo(path: Path, seed: int) -> None:
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def make_splat(root: Path) -> Path:
    """Write a splat of ten Gaussians, for every attempt to link to."""
    rows, quats = np.zeros((10, 3), np.float32), np.tile(np.array([1, 0, 0, 0], np.float32), (10, 1))
    path = root / "template.ply"
    write_splat(path, Gaussians(rows, rows, quats, rows[:, 0], rows, np.zeros((10, 0, 3), np.float32)), STEPS)
    return path
