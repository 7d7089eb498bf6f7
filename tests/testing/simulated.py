"""A batch in simulated time: GPUs, their memory and their attempts are made up; the runner and its files are real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fake_batch import FakeBatch
from fake_trainer import FakeTrainer, splat_of

from splatbatch import isolated, trainers
from splatbatch.files import append_line, read_json, write_json
from splatbatch.machine import gpu
from splatbatch.machine.protocol import GONE, Key, Slot
from splatbatch.outcome import Outcome
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import GpuSample
from splatbatch.scene.memory_estimate import H200, MemoryEstimate
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.splats import write_splat
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import Task

TOTAL_MIB = 100_000
CROWDED_MIB = TOTAL_MIB - 1_000
"""What a stranger holds of a GPU that leaves no room for a patch."""
CONTEXT_MIB = 600
STEPS = 20
MOST_S = 5000
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free"


@dataclass
class Script:
    """What an attempt does: trains for so long, evaluates, uses memory; or fails with a log."""

    train_s: float = 10.0
    eval_s: float = 0.0
    peak_mib: float = 1000.0
    reserved_mib: float = 0.0
    """What its allocator keeps of the GPU, in use or not; 0: it says nothing of it, and holds `peak_mib` in all."""
    log: str = ""
    fails_after_s: float = 0.0
    dies_standing_by: bool = False
    dies_at_go: bool = False
    steps: int = STEPS
    load_s: float = 0.0
    """Before its first step."""
    step_at: Callable[[float], float] = lambda share: share
    """Share of its steps that it has made in a share of its time."""

    def held_mib(self) -> float:
        """Return what NVML sees of it."""
        return self.reserved_mib + CONTEXT_MIB if self.reserved_mib else self.peak_mib


@dataclass
class Attempt:
    """An attempt that was submitted."""

    folder: AttemptFolder
    script: Script
    began: float | None = None
    seen: float = 0.0
    worked_s: float = 0.0
    gpu: str | None = None
    phase: str = ""
    ended: bool = False
    opened: str | None = None
    """GPU that its context was opened on ahead of its turn."""


@dataclass
class World:
    """The clock, the GPUs and the engine of a simulation. The sleep of the runner is what makes time pass."""

    num_gpus: int = 1
    scripts: dict[str, list[Script]] = field(default_factory=dict)
    slowdown: Callable[[int], float] = lambda at_once: 1.0
    squatter_mib: Callable[[float, str], float] = lambda time, uuid: 0.0
    """What a stranger holds of a GPU at a time."""
    runs_out: bool = False
    """An attempt ends with CUDA's error where all together hold more than a GPU has; the last one that began."""
    shared_mib: float = 0.0
    attempts: dict[Key, Attempt] = field(default_factory=dict)
    time: float = 0.0
    history: list[tuple[float, str, str]] = field(default_factory=list)
    most_at_once: int = 0

    # the clock

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, readings: Sequence[object] = ()) -> None:
        self.time += seconds
        assert self.time < MOST_S, "it waits for what cannot come"
        for attempt in reversed(self.attempts.values()):
            if not attempt.ended:
                self._advance(attempt)

    # the GPUs

    def sample(self, uuid: str) -> GpuSample:
        held = [one.script.held_mib() for one in self.attempts.values() if one.gpu == uuid and not one.ended]
        waiting = [one for one in self.attempts.values() if one.opened == uuid and one.began is None and not one.ended]
        used = 500 + sum(held) + CONTEXT_MIB * len(waiting) + self.squatter_mib(self.time, uuid)
        return GpuSample(used_mib=round(used), total_mib=TOTAL_MIB)

    # the engine

    @property
    def slots(self) -> Sequence[Slot]:
        environment = (("CUDA_MPS_PIPE_DIRECTORY", "/tmp/pipe"),) if self.shared_mib else ()
        return tuple(Slot(f"gpu{index}", f"GPU-{index}", environment) for index in range(self.num_gpus))

    def submit(self, key: Key, folder: AttemptFolder) -> str:
        record = read_json(folder.job) or {}
        patch, scripts = folder.task, self.scripts
        script = (scripts.get(patch) or [Script()])[min(folder.number, len(scripts.get(patch, [0]))) - 1]
        self.attempts[key] = Attempt(folder, script)
        self._note("stands by" if record["standby"] else "submitted", patch)
        if not record["standby"]:
            self._begin(self.attempts[key], record["gpu"])
        else:
            append_line(folder.progress, {"phase": "standby", "t": self.time}, durable=False)
        return key

    def poll(self, handles: Mapping[Key, str]) -> Mapping[Key, str]:
        return {key: GONE if self.attempts[key].ended else "" for key in handles}

    def cancel(self, handles: Mapping[Key, str]) -> None:
        for key in handles:
            self._end(self.attempts[key], {"kind": "cancelled", "by": "test"})

    def close(self) -> None: ...

    def kill(self, handles: Mapping[Key, str]) -> None:
        self.cancel(handles)

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, str]:
        return {}

    # what happens

    def _stand_by(self, attempt: Attempt) -> None:
        if attempt.script.dies_standing_by:
            self._end(attempt, {"kind": "exited", "code": 1})
        elif attempt.script.dies_at_go and attempt.folder.go.exists():
            self._end(attempt, {"kind": "killed", "signal": 9, "stood_by": True})
        elif go := read_json(attempt.folder.go):
            self._begin(attempt, go["gpu"])
        elif attempt.opened is None and (ahead := read_json(attempt.folder.ahead)):
            attempt.opened = ahead["gpu"]
            self._note("opens", attempt.folder.task)

    def _advance(self, attempt: Attempt) -> None:
        if attempt.began is None:
            self._stand_by(attempt)
            return
        if self.time < attempt.began + attempt.script.load_s:
            return
        attempt.phase = "train" if attempt.phase == "load" else attempt.phase
        age_s = self._work(attempt)
        if self.runs_out and attempt.gpu and (self.sample(attempt.gpu).used_mib or 0) > TOTAL_MIB:
            attempt.folder.log.write_text(OOM)
            self._end(attempt, {"kind": "exited", "code": 1})
        elif attempt.script.log and age_s >= attempt.script.fails_after_s:
            attempt.folder.log.write_text(attempt.script.log)
            self._end(attempt, {"kind": "exited", "code": 1})
        elif age_s >= attempt.script.train_s + attempt.script.eval_s:
            write_splat(attempt.folder.splat, splat_of(10), attempt.script.steps)
            self._end(attempt, {"kind": "exited", "code": 0})
        elif age_s >= attempt.script.train_s and attempt.phase == "train":
            self._enter(attempt, "eval", attempt.script.steps)

    def _work(self, attempt: Attempt) -> float:
        """Return the seconds of work that are done, as they would have taken alone; tell the step."""
        at_once = sum(one.gpu == attempt.gpu and one.phase == "train" for one in self.attempts.values())
        attempt.worked_s += (self.time - attempt.seen) / (self.slowdown(at_once) if attempt.phase == "train" else 1.0)
        attempt.seen = self.time
        if attempt.phase == "train":
            self._enter(attempt, "train", self._step(attempt))
        return attempt.worked_s

    def _step(self, attempt: Attempt) -> int:
        script = attempt.script
        return int(script.steps * script.step_at(min(1.0, attempt.worked_s / script.train_s)))

    def _begin(self, attempt: Attempt, uuid: str) -> None:
        assert attempt.opened in (None, uuid)
        attempt.began, attempt.seen, attempt.gpu = self.time, self.time + attempt.script.load_s, uuid
        self._enter(attempt, "load" if attempt.script.load_s else "train", 1)
        self._note("begins", attempt.folder.path.parent.name)
        at_once = sum(one.gpu == uuid and one.phase == "train" for one in self.attempts.values())
        self.most_at_once = max(self.most_at_once, at_once)

    def _enter(self, attempt: Attempt, phase: str, step: int) -> None:
        attempt.phase = phase
        figures = {"t": self.time, "seconds": self.time - (attempt.began or 0.0), "step": step}
        figures |= {"max_steps": attempt.script.steps, "peak_mib": attempt.script.peak_mib}
        figures |= {"reserved_mib": attempt.script.reserved_mib} if attempt.script.reserved_mib else {}
        record = {"phase": phase, **figures}
        append_line(attempt.folder.progress, record, durable=False)

    def _end(self, attempt: Attempt, end: dict[str, Any]) -> None:
        if not attempt.ended:
            attempt.ended, attempt.phase, attempt.gpu = True, "ended", None
            write_json(attempt.folder.exit, end)
            self._note("ends", attempt.folder.path.parent.name)

    def _note(self, what: str, patch: str) -> None:
        self.history.append((round(self.time, 2), what, patch))

    def order(self, what: str = "begins") -> list[str]:
        return [patch for _, happened, patch in self.history if happened == what]

    def at(self, what: str, patch: str) -> float:
        return next(at for at, happened, who in self.history if (happened, who) == (what, patch))


class Simulation:
    """A fake batch whose runner lives in a world of its own."""

    def __init__(self, batch: FakeBatch, patch: pytest.MonkeyPatch) -> None:
        self.batch, self.world = batch, World()
        patch.setitem(trainers.TRAINERS, "gsplat", FakeTrainer)
        patch.setattr(gpu, "sample", self.world.sample)
        for place in ("machine.slots", "tasks.estimates"):
            patch.setattr(f"splatbatch.{place}.available_mib", lambda: 1 << 20)
        patch.setattr("splatbatch.tasks.estimates.num_cores", lambda: 64)
        patch.setattr("splatbatch.failures.retry.FIRST_WAIT_S", 0.1)
        patch.setattr(isolated, "DEFAULT_BACKEND", isolated.InProcessCalls)  # their time is that of the world
        self.others: dict[str, Callable[[Task], Task]] = {}
        """Return a task of the batch as it is to be."""

    def patches(self, **scripts: Script | list[Script]) -> World:
        serial = {"patches_per_gpu": 1}
        self.batch.make(*scripts, training={"device": "auto"}, limits={"free_disk_mib": 0}, executor=serial)
        for name, script in scripts.items():
            self.world.scripts[name] = script if isinstance(script, list) else [script]
        return self.world

    def run(self, **sections: dict[str, Any]) -> Mapping[str, Outcome]:
        self.batch.change(**sections)
        opened = open_batch(self.batch.config)
        opened.output.create()
        every = [self.others[task.name](task) if task.name in self.others else task for task in opened.tasks]
        tasks = [replace(task, memory_estimate=self.need(task.name)) for task in every]
        rounds = RunHooks(stop=lambda: "", tick=lambda: None)
        return Loop(opened.config, self.world, Ledger(opened.output.ledger), tasks, rounds, self.world).run()

    def actions(self) -> list[str]:
        """Return the action that the ledger names for each failure."""
        return [event["diagnosis"]["action"] for event in self.batch.events("attempt_ended") if "diagnosis" in event]

    def need(self, name: str) -> MemoryEstimate:
        script = self.world.scripts[name][0]
        pixels = round(script.train_s / script.steps / H200.pixel)
        return MemoryEstimate(round(script.peak_mib * 1.3), 1000, 10, "gpu", round(script.train_s), mean_px=pixels)
