"""The doors of the wall: functions that are called for one patch, each made to fail, or to hang, for p1 alone."""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from fake_trainer import splat_of

from splatbatch import isolated
from splatbatch.files import append_line, write_json
from splatbatch.machine.protocol import GONE, Key, Slot
from splatbatch.outcome import Failed
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.ledger import Ledger
from splatbatch.run.decide import TrainOptions, assess_and_audit
from splatbatch.run.decode_ahead import start_decoding, take_undecodable
from splatbatch.scheduler import session
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.splats import write_splat
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.upkeep import ContentHasher

FAULTS: Mapping[str, Callable[[], Any]] = {
    "exception": lambda: {}["of nobody's making"],
    "memory": lambda: bytearray(1 << 60),
    "recursion": lambda: _deeper(""),
    "hang": lambda: time.sleep(1000),
    "too many files": lambda: (_ for _ in ()).throw(OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
}


DOORS: Mapping[str, tuple[str, ...]] = {
    "decide": (
        "splatbatch.tasks.freshness:why_not_the_splat",
        "splatbatch.tasks.input_files:InputFiles.list_moved",
        "splatbatch.tasks.freshness:border_hash",
        "splatbatch.tasks.freshness:FreshnessChecker._why_other_settings",
        "splatbatch.output.folders:PatchFolder.read_result",
    ),
    "audit": (
        "splatbatch.scene.audit.audit:read_reconstruction",
        "splatbatch.scene.audit.audit:measure",
        "splatbatch.scene.audit.audit:check_model",
        "splatbatch.scene.audit.audit:check_rigs",
        "splatbatch.scene.audit.audit:check_geometry",
        "splatbatch.scene.audit.audit:check_beside",
        "splatbatch.scene.audit.audit:find_misfits",
        "splatbatch.scene.audit.photographs:check_masks",
        "splatbatch.scene.audit.photographs:camera_rows",
        "splatbatch.scene.audit.audit:check_camera",
        "splatbatch.scene.audit.photographs:check_sizes",
        "splatbatch.scene.audit.audit:_compared",
        "splatbatch.scene.audit.photographs:check_photos",
    ),
    "prepare": (
        "splatbatch.tasks.task:fingerprint",
        "splatbatch.tasks.fingerprint:backdrop_hash",
        "splatbatch.tasks.input_files:InputFiles.now",
        "splatbatch.tasks.fingerprint:border_hash",
        "splatbatch.scene.holdout:choose_holdout",
        "splatbatch.tasks.input_files:InputFiles._masks",
        "splatbatch.scheduler.launch:write_job",
        "fake_trainer:FakeTrainer.command",
    ),
    "collect": (
        "fake_trainer:FakeTrainer.collect",
        "splatbatch.scheduler.judge:judge",
        "splatbatch.scheduler.judge:facts",
        "splatbatch.scheduler.judge:remove_leftovers",
        "splatbatch.output.attempt_folder:AttemptFolder.read_progress",
        "splatbatch.output.results:keep",
        "splatbatch.output.results:keep",
        "splatbatch.output.results:splat_facts",
        "splatbatch.output.results:accept",
        "splatbatch.output.results:put_in_place",
        "splatbatch.output.results:forget_superseded",
    ),
    "beside": (
        "splatbatch.scheduler.session:_measured",
        "splatbatch.run.decode_ahead:_why_refused",
        "splatbatch.tasks.upkeep:_hash_accepted",
    ),
}
ALL = tuple((entry, door) for entry, doors in DOORS.items() for door in doors)


def _deeper(level: str) -> Any:
    return _deeper(level)


def put(patch: pytest.MonkeyPatch, door: str, fault: str, of: str = "p1") -> None:
    """Make a function fail, or hang, where it is called for one patch."""
    module, _, name = door.partition(":")
    *above, last = name.split(".")
    home: Any = importlib.import_module(module)
    for one in above:
        home = getattr(home, one)
    inner = getattr(home, last)

    def door_of(*arguments: Any, **named: Any) -> Any:
        told = repr((arguments, named))
        return FAULTS[fault]() if f"'{of}'" in told or f"/{of}" in told else inner(*arguments, **named)

    patch.setattr(home, last, door_of)


def put_as_told(told: str) -> None:
    """Make a function of this process fail for p1: "module:function fault"."""
    put(pytest.MonkeyPatch(), *told.split())


@dataclass
class AtOnce:
    """Leaves what an attempt that went well leaves, in no time; the splat of p0 may be a large hole on the disk."""

    shared_mib: float = 0.0
    hole_bytes: int = 0
    submitted: list[str] = field(default_factory=list)

    @property
    def slots(self) -> Sequence[Slot]:
        return (Slot("cpu0"),)

    def submit(self, key: Key, folder: AttemptFolder) -> str:
        self.submitted.append(folder.task)
        folder.start.touch()
        append_line(folder.progress, {"phase": "done", "step": 20, "max_steps": 20}, durable=False)
        if self.hole_bytes and folder.task == "p0":
            write_hole(folder.splat, self.hole_bytes)
        else:
            write_splat(folder.splat, splat_of(10), 20)
        write_json(folder.exit, {"kind": "exited", "code": 0, "seconds": 0.0})
        return key

    def poll(self, handles: Mapping[Key, str]) -> Mapping[Key, str]:
        return dict.fromkeys(handles, GONE)

    def cancel(self, handles: Mapping[Key, str]) -> None: ...

    def close(self) -> None: ...

    def kill(self, handles: Mapping[Key, str]) -> None: ...

    def find(self, batch: str, unended: Sequence[AttemptFolder] = ()) -> Mapping[Key, str]:
        return {}


def write_hole(path: Path, num_bytes: int) -> None:
    """Write a splat of so many bytes, nearly all of them zeros that lie nowhere."""
    write_splat(path, splat_of(10), 20)
    head = path.read_bytes().partition(b"end_header\n")[0]
    width = 4 * head.count(b"property float")
    num = num_bytes // width
    head = head.replace(b"element vertex 10\n", b"element vertex %d\n" % num) + b"end_header\n"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + num * width)


def failures(batch: FakeBatch, entry: str) -> dict[str, str]:
    """Go through the doors of an entry with all patches; return the cause of each that failed."""
    opened = open_batch(batch.config)
    opened.output.create()
    match entry:
        case "decide" | "audit":
            faults = assess_and_audit(opened, TrainOptions()).faults
            return {name: fault.diagnosis.cause for name, fault in faults.items()}
        case "prepare" | "collect":
            rounds = RunHooks(stop=lambda: "", tick=lambda: None)
            outcomes = Loop(opened.config, AtOnce(), Ledger(opened.output.ledger), opened.tasks, rounds).run()
            return {name: one.diagnosis.cause for name, one in outcomes.items() if isinstance(one, Failed)}
    return _beside(opened)


def _beside(opened: Batch) -> dict[str, str]:
    """Return nothing: what is done beside the training costs no patch anything."""
    session._footprints(opened, RunHooks(stop=lambda: "", tick=lambda: None))
    contents = ContentHasher(opened)
    for name in opened.names:
        contents.want(name)
    contents.finish(isolated.ENDLESS)
    decoding = start_decoding(opened.tasks)
    while not decoding.is_over:
        take_undecodable(decoding)
        time.sleep(0.01)
    return {}
