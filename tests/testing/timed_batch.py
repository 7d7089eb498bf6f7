"""A batch with a deadline in simulated time, on a machine that is faster or slower than anybody expected."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from fake_batch import FakeBatch
from fake_trainer import FakeTrainer
from simulated import Script, World

from splatbatch import isolated, trainers
from splatbatch.files import read_json
from splatbatch.machine import gpu
from splatbatch.machine.protocol import Key
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.deadline import DeadlineDecision, StepBudget
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.step_budget import DeadlineBudget
from splatbatch.tasks.batch import Batch, PendingTasks, open_batch
from splatbatch.tasks.deadline import Speeds, choice_for, speeds_of, with_budget
from splatbatch.tasks.estimates import footprints_of
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions
from splatbatch.tasks.task import Task

NOW = 1.8e9


@dataclass
class TimedWorld(World):
    """Attempts take as long as the model says, times a factor of the machine and one of their patch."""

    batch: Batch | None = None
    speeds: Speeds | None = None
    factor: float = 1.0
    load_s: float = 4.0
    own: dict[str, float] = field(default_factory=dict)
    """Factors of patches."""

    def submit(self, key: Key, folder: AttemptFolder) -> str:
        assert self.batch
        assert self.speeds
        task = next(task for task in self.batch.every if task.name == folder.task)
        training = read_json(folder.settings)["recipe"]["training"]
        steps, divisor = training["max_steps"], {"full": 1, "1/2": 2, "1/4": 4}[training["resolution"]]
        share = steps / task.yaml_settings.without_deadline.recipe.training.max_steps
        train_s = self.speeds.stepping_s(task, StepBudget(share, divisor)) * self.factor * self.own.get(task.name, 1.0)
        made = Script(train_s, steps=steps, load_s=self.load_s, step_at=self._curve(task, StepBudget(share, divisor)))
        self.scripts[folder.task] = [*([made] * folder.number)]
        return super().submit(key, folder)

    def _curve(self, task: Task, pace: StepBudget) -> Callable[[float], float]:
        """Return how steps go: mostly as the model says, and somewhat more evenly."""
        assert self.speeds
        shares = np.linspace(0, 1, 41)
        steps = shares * with_budget(task, pace).training.max_steps
        times = np.array([self.speeds.stepping_s(task, pace, step) for step in steps])
        known = 0.7 * times / times[-1] + 0.3 * shares
        return lambda share: float(np.interp(share, known, shares))


@dataclass
class Night:
    """One simulated batch and what came of it."""

    batch: FakeBatch
    world: TimedWorld
    choice: DeadlineDecision
    steps: dict[str, int]
    """Of each splat."""


def night(
    fake: FakeBatch,
    patch: pytest.MonkeyPatch,
    deadline_s: float,
    world: TimedWorld,
    names: Sequence[str],
) -> Night:
    """Train patches by a deadline on the GPUs of a world."""
    patch.setitem(trainers.TRAINERS, "gsplat", FakeTrainer)
    patch.setattr(gpu, "sample", world.sample)
    patch.setattr("splatbatch.machine.slots.available_mib", lambda: 1 << 20)
    patch.setattr(isolated, "DEFAULT_BACKEND", isolated.InProcessCalls)
    patch.setattr("splatbatch.tasks.deadline.num_slots", lambda *_: world.num_gpus)
    fake.make(*names, training={"max_steps": 20_000, "cap_max": 300, "device": "auto"}, limits={"free_disk_mib": 0})
    fake.settings["deadline"] = f"{deadline_s}s"
    fake.change()
    noise = random.Random(len(names) + round(10 * world.factor))
    world.own = {name: noise.uniform(0.85, 1.15) for name in names}
    batch = open_batch(fake.config)
    batch.output.create()
    choice = choice_for(batch, PendingTasks(batch.tasks, dict), NOW)
    assert choice
    SharedDecisions(deadline=choice).write(batch.output)
    timed = batch.with_shared(replace(batch.shared, deadline=choice))
    needs = footprints_of(batch.config, batch.tasks)
    world.batch, world.speeds = timed, speeds_of(batch)[0]
    pacer = DeadlineBudget(timed, choice, Ledger(batch.output.ledger), world.time + deadline_s)
    tasks = [replace(task, memory_estimate=needs[task.name]) for task in timed.tasks]
    rounds = RunHooks(stop=lambda: "", tick=lambda: None, deadline=pacer)
    Loop(timed.config, world, Ledger(batch.output.ledger), tasks, rounds, world).run()
    steps = {name: fake.result(name)["step"] for name in names}
    return Night(fake, world, pacer.choice, steps)
