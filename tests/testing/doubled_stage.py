"""Stages that are no patches: one doubles the sum of the bytes of p0's splat, the next that of the one before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatbatch.config import Config, Retry, TaskId
from splatbatch.files import read_json, write_json
from splatbatch.hashing import sha256_of
from splatbatch.outcome import Made, Rejected
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.scene.patches import Patch
from splatbatch.tasks import batch
from splatbatch.tasks.patch_state import PatchState
from splatbatch.tasks.product import compare_product, hashes_in, key_of
from splatbatch.tasks.task import Task, tasks_of, untrained

VERSION = 1
FILE = "doubled.txt"
PROGRAM = """
import os, pathlib, signal, sys, time
folder, source, does = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
if does == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if does == "hang": time.sleep(600)
(folder / "doubled.txt").write_text(str(2 * sum(source.read_bytes())))
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Doubling(Task):
    """Makes doubled.txt in the folder of its task."""

    script: Path
    source: Path
    """Of p0, or of another stage."""

    def retry(self) -> Retry:
        return self.next_settings.config.retry.model_copy(update={"ladders": {}})

    @property
    def required(self) -> tuple[str, ...]:
        return (self.source.parent.name,)

    def product(self) -> PatchState:
        home = self.output.patch(self.name)
        record = read_json(home.result) or {}
        return compare_product(self.key, record.get("key"), place=home.path / FILE, parts=record.get("parts", {}))

    @property
    def key(self) -> str:
        return key_of(VERSION, sha256_of(self.source))

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        script = (read_json(self.script) or {}).get(folder.task, ["make"])
        does = script[min(folder.number, len(script)) - 1]
        return (sys.executable, "-c", PROGRAM, str(folder.path), str(self.source), does)

    def collect(self, folder: AttemptFolder) -> Made | Rejected:
        made = folder.path / FILE
        return Made(made) if made.exists() and made.read_text().isdecimal() else Rejected("")

    def keep(self, folder: AttemptFolder) -> None:
        home = self.output.patch(self.name)
        (home.path / FILE).write_bytes((folder.path / FILE).read_bytes())
        parts = hashes_in(home.path / FILE)
        write_json(home.result, {"patch": self.name, "attempt": folder.path.name, "key": self.key, "parts": parts})


def with_stage(config: Config, patches: Iterable[Patch]) -> tuple[Task, ...]:
    """Return the tasks of a batch, first of all the stages that FAKE_STAGE names, the last made first."""
    output, script = OutputFolder(config.output.folder), Path(os.environ["FAKE_TRAINER_SCRIPT"])
    stages, source = list[Task](), output.patch("p0").splat
    for name in os.environ["FAKE_STAGE"].split():
        patch = Patch(name, source.parent, source.parent)
        stages.insert(0, Doubling(TaskId(name), patch, *untrained(config), script=script, source=source))
        source = output.patch(name).path / FILE
    return (*stages, *tasks_of(config, patches))


def install() -> None:
    """Add the stages to every batch that is opened in this process."""
    batch.tasks_of = with_stage
