"""The kinds of failure: how each batch is made, what is run, and what should come of it."""

from __future__ import annotations

import os
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
SITE = "site"
DAMAGE = b"\x00\x00\x28\x42"
"""A float: 42."""
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
        """What a loop is called with: the patches that the command names, else all; none to publish only."""
        if self.command[0] == "publish":
            return ()
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
    is_published: bool = False
    """What counts is what is published: by the YAML, or by a loop that copies what there is."""

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


def of_program(p5: str, others: str, *products: str) -> Callable[[FakeBatch], object]:
    """Return what makes a batch of an external trainer, which leaves its splat under the first of some names."""
    words = ["--steps={steps}", "--output={output}", "--do={setting.do}"]
    program = {
        "command": [sys.executable, external_program.__file__, *words],
        "settings": {"do": others},
        "progress": {"step": r"step (\d+)/"},
        "artifact": {"ply": list(products), "step": ""},
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


def publishing(make: Callable[[FakeBatch], object]) -> Callable[[FakeBatch], object]:
    """Return what makes a batch whose night ends with publishing."""

    def made(batch: FakeBatch) -> None:
        make(batch)
        batch.change(publish={"formats": ["ply"], "folder": SITE, "measure": False})

    return made


def touch_photographs(batch: FakeBatch) -> None:
    """Give every photograph another time, as a copied or restored folder has."""
    for path in (batch.folder / "images").iterdir():
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 86_400))


def damage_p5(batch: FakeBatch) -> None:
    """Overwrite a float of the splat of p5, under all its names, and keep its time."""
    for path in (batch.output / "patches/p5/splat.ply", batch.folder / "out/p5/splat.ply"):
        if path.exists():
            stat = path.stat()
            with path.open("r+b") as file:
                file.seek(-len(DAMAGE), os.SEEK_END)
                file.write(DAMAGE)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def is_undamaged(path: Path) -> bool:
    return isinstance(check_splat(path), Splat) and not path.read_bytes().endswith(DAMAGE)


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
        "touched photographs: they get another time, and a retry of a patch of 24.6 dB gives 16.5 dB, twice",
        of_lines("measure 24.6", f"measure 16.5 {WORSE}"),
        attempts=3,
        runs=(
            Run(),
            Run(touch_photographs, ("retry", "p5", "--set", "training.init_scale=40")),
            Run(command=("retry", "p5", "--set", "training.init_scale=41")),
        ),
        is_best=is_not_worse,
    ),
    Row(
        "strange leftovers: a training leaves 3,000 folders in each other",
        of_program("nest 3000", "train-to splat.ply", "splat.ply", "**/final.ply"),
        attempts=2,
        is_trainable=False,
        is_sound=is_last,
    ),
    Row(
        "damaged splat: a float of it changes on the disk, its time does not, and all is published once more",
        publishing(of_lines("train")),
        attempts=1,
        runs=(Run(), Run(damage_p5, ("publish",))),
        is_sound=is_undamaged,
        is_published=True,
    ),
    Row(
        "untrained patch: the night is to be published, and one patch cannot be trained",
        publishing(of_lines("exit 3 splatbatch: images/a.jpg: cannot identify image file, or it is truncated")),
        attempts=1,
        is_trainable=False,
        is_published=True,
    ),
    Row(
        "unread terminal: nobody reads what is printed, and every training prints a MiB",
        of_lines("talk 1", others="talk 1"),
        attempts=1,
        runs=(Run(is_unread=True),),
    ),
)
