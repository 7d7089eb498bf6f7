"""The kinds of failure: how each batch is made, what is run, and what should come of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import external_program
from fake_batch import FakeBatch
from scenarios import SCENARIOS, Scenario

from splatbatch.outcome import Splat
from splatbatch.splats import check_splat

PATCHES = ("p4", "p5", "p7")
LIMITS = {"wall_s": 10, "grace_s": 0.2}
"""For rows in which a program never ends; far above what a start takes on a busy machine."""
PATIENT = LIMITS | {"wall_s": 30}
"""For rows in which every program ends by itself, so that a slow start is held against nobody."""
STEPS = 20
"""What FakeBatch trains."""
WORSE = 17
"""Gaussians of the splat of a retry that came out worse, by which it is known."""


@dataclass(frozen=True)
class Run:
    """One call of a tool: what is changed before it, and the command where the tool is splatbatch."""

    change: Callable[[FakeBatch], object] = lambda batch: None
    command: tuple[str, ...] = ("train",)
    is_unread: bool = False
    """Its stdout and stderr are one full pipe that nobody reads, as a terminal is after Ctrl-S."""

    @property
    def patches(self) -> tuple[str, ...]:
        """What a loop is called with: the patches that the command names, else all."""
        return tuple(patch for patch in PATCHES if patch in self.command) or PATCHES


@dataclass(frozen=True)
class Row:
    """A night, or several: how the batch is made, what is run, and what should come of it."""

    name: str
    make: Callable[[FakeBatch], object]
    attempts: int
    """The fewest at p5 that tell."""
    is_trainable: bool = True
    """p5 can be trained in the end; the other patches always can."""
    runs: tuple[Run, ...] = (Run(),)
    is_sound: Callable[[Path], bool] = lambda path: isinstance(check_splat(path, STEPS), Splat)
    """Whether the splat counts after the last run."""
    is_best: Callable[[Path], bool] = lambda path: True
    """Whether a splat that counts is the best that the patch ever had."""

    @property
    def fewest_attempts(self) -> int:
        """Of all patches in all runs, for a tool that trains everything in every run."""
        return self.attempts + sum(len(set(run.patches) - {"p5"}) for run in self.runs)


def of_scenario(scenario: Scenario) -> Row:
    """Return one night of the fake trainer, at whose end p5 is trained or not."""

    limits = LIMITS if any(line.startswith(("hang", "linger")) for line in scenario.lines) else PATIENT

    def make(batch: FakeBatch) -> None:
        batch.make(*PATCHES, limits=limits, **scenario.settings).script(p5=scenario.lines)

    return Row(scenario.name, make, scenario.attempts, scenario.state == "trained")


def of_program(p5: str, others: str, product: str) -> Callable[[FakeBatch], object]:
    """Return what makes a batch of an external trainer, which leaves its splat under one name."""
    words = ["--steps={steps}", "--output={output}", "--do={setting.do}"]
    program = {
        "command": [sys.executable, external_program.__file__, *words],
        "settings": {"do": others},
        "progress": {"step": r"step (\d+)/"},
        "artifact": {"ply": product, "step": ""},
    }
    return lambda batch: batch.make(
        *PATCHES,
        limits=PATIENT,
        training={"trainer": "foreign"},
        trainers={"foreign": program},
        patches={"p5": {"setting": {"do": p5}}},
    )


def of_lines(*p5: str, others: str = "train") -> Callable[[FakeBatch], object]:
    """Return what makes a batch in which nothing hangs; the fake trainer does one line per attempt."""
    lines = {patch: list(p5) if patch == "p5" else [others] for patch in PATCHES}
    return lambda batch: batch.make(*PATCHES, limits=PATIENT).script(**lines)


def double_the_steps(batch: FakeBatch) -> None:
    batch.change(training={"max_steps": 2 * STEPS})


def is_last(path: Path) -> bool:
    """Return whether a splat of that program is whole and no snapshot."""
    splat = check_splat(path)
    return isinstance(splat, Splat) and splat.num_gaussians != external_program.SNAPSHOT


def is_not_worse(path: Path) -> bool:
    splat = check_splat(path)
    return isinstance(splat, Splat) and splat.num_gaussians != WORSE


ROWS = (
    *map(of_scenario, SCENARIOS),
    Row(
        "stale result: trained, then twice the steps, and that training fails",
        of_lines("train", "exit 3 splatbatch: images/a.jpg: cannot identify image file, or it is truncated"),
        attempts=2,
        is_trainable=False,
        runs=(Run(), Run(double_the_steps)),
        is_sound=lambda path: isinstance(check_splat(path, 2 * STEPS), Splat),
    ),
    Row(
        "snapshot: exit 0 with a splat of a tenth of the steps, always",
        of_program("snapshot exit", "train-to splat.ply", "splat.ply"),
        attempts=2,
        is_trainable=False,
        is_sound=is_last,
    ),
    Row(
        "symlink: the splat is a link to a file beside it",
        of_program("link", "link", "final.ply"),
        attempts=1,
        is_sound=is_last,
    ),
    Row(
        "worse retry: a patch of 24.6 dB is tried with another setting, which gives 16.5 dB",
        of_lines("measure 24.6", f"measure 16.5 {WORSE}"),
        attempts=2,
        runs=(Run(), Run(command=("retry", "p5", "--set", "training.init_scale=40"))),
        is_best=is_not_worse,
    ),
    Row(
        "unread terminal: nobody reads what is printed, and every training prints a MiB",
        of_lines("talk 1", others="talk 1"),
        attempts=1,
        runs=(Run(is_unread=True),),
    ),
)
