"""A stage that is no patch: it doubles the size of p0's splat. Its attempts do what doubled.json says, one by one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatbatch.config import Config, TaskId
from splatbatch.files import read_json, write_json
from splatbatch.identity import sha256_of
from splatbatch.outcome import Made, Rejected
from splatbatch.scene.patches import Patch
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks import batch
from splatbatch.tasks.product import Product, damage_of, hashes_in, key_of
from splatbatch.tasks.task import Kind, Setup, Task, tasks_of

VERSION = 1
NAME, FILE = "doubled", "doubled.txt"
PROGRAM = """
import os, pathlib, signal, sys, time
folder, splat, does = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
if does == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if does == "hang": time.sleep(600)
(folder / "doubled.txt").write_text(str(2 * splat.stat().st_size))
"""


@dataclass(frozen=True)
class Doubling(Kind):
    """Makes patches/doubled/doubled.txt of p0's splat."""

    output: OutputFolder
    script: Path
    stands_by = False

    @property
    def splat(self) -> Path:
        return self.output.patch("p0").splat

    def needs(self, task: Task) -> tuple[str, ...]:
        return ("p0",)

    def product(self, task: Task, output: OutputFolder) -> Product:
        place, record = output.patch(NAME).path / FILE, read_json(output.patch(NAME).result) or {}
        key = key_of(VERSION, sha256_of(self.splat))
        parts = record.get("parts", {})
        return Product(key, record.get("key"), lambda: damage_of(place, parts), "the splat of p0 has changed")

    def maker(self, task: Task) -> Doubling:
        return self

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        does = (read_json(self.script) or {}).get("doubled", ["make"])
        return (
            sys.executable,
            "-c",
            PROGRAM,
            str(folder.path),
            str(self.splat),
            does[min(folder.number, len(does)) - 1],
        )

    def collect(self, folder: AttemptFolder) -> Made | Rejected:
        made = folder.path / FILE
        return Made(made) if made.exists() and made.read_text().isdecimal() else Rejected("")

    def keep(self, task: Task, folder: AttemptFolder) -> None:
        home = self.home(task, self.output)
        (home.path / FILE).write_bytes((folder.path / FILE).read_bytes())
        key, parts = self.product(task, self.output).key, hashes_in(home.path / FILE)
        write_json(home.result, {"patch": NAME, "attempt": folder.path.name, "key": key, "parts": parts})


def with_stage(config: Config, patches: Iterable[Patch]) -> tuple[Task, ...]:
    """Return the tasks of a batch, the stage first of all."""
    kind = Doubling(OutputFolder(config.output.folder), Path(os.environ["FAKE_TRAINER_SCRIPT"]))
    setup = Setup(config, NAME)
    subject = Patch(NAME, kind.splat.parent, kind.splat.parent)
    return (Task(TaskId(NAME), subject, setup, setup, setup, kind=kind), *tasks_of(config, patches))


def install() -> None:
    """Add the stage to every batch that is opened in this process."""
    batch.tasks_of = with_stage
