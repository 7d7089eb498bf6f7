"""Flips and truncations of files of an output folder, a scene, or what is published; what commands make of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import light_trainer
from command_line import invoke
from cut_batch import trained
from fake_batch import FakeBatch

PATCHES = ("p0", "p1", "p2")
COMMANDS = (("status",), ("report",), ("explain", "p0"), ("plan",), ("train",))
STEPS = 20
MOST_ATTEMPTS = 20
WHOLE = {hashlib.sha256(light_trainer.splat_of(10 + n, STEPS)).hexdigest(): n for n in range(1, MOST_ATTEMPTS)}
"""What an attempt leaves, by its hash: whatever else is called trained is broken."""
MOST_CPU_S = 2.0
MOST_FLIPS = 8
SECRET = 0.15
"""Share of the faults that leave the time of the file as it was, as a disk does that rots."""
LINKED = 0.5
"""Share of the faults that are made in place, so that they hit the second name of a file, too."""
HANGS_S = 120


@dataclass(frozen=True)
class Fault:
    """One file spoiled."""

    file: str
    kind: str
    at: tuple[int, ...]
    """Bytes that are flipped, or the length that is left."""
    bits: int
    is_secret: bool
    is_in_place: bool

    def spoil(self, output: Path) -> None:
        path = output / self.file
        stat, data = path.stat(), bytearray(path.read_bytes())
        if self.kind == "cut":
            del data[self.at[0] :]
        for place in self.at if self.kind == "flip" else ():
            data[place] ^= self.bits
        if not self.is_in_place:
            path.unlink()
        path.write_bytes(data)
        if self.is_secret:
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @property
    def is_hidden(self) -> bool:
        """Whether neither size nor time tells that a splat was changed."""
        return self.is_secret and self.kind == "flip" and self.file.endswith("splat.ply")


@dataclass
class Tampered:
    """What a tampering test counted."""

    kinds: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)
    trained_again: int = 0
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    num_commands: int = 0

    def in_words(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kinds.items()))
        return (
            f"{sum(self.kinds.values())} tamperings ({kinds}) of {len(self.files)} files, {self.num_commands} commands "
            f"after each: exit codes of the last {dict(self.codes)}, {self.trained_again} patches trained again, "
            f"slowest command {self.slowest_s:.2f} s of CPU; {len(self.faults)} faults; {self.seconds:.0f} s"
        )


class Tampering:
    """An output folder that is spoiled, looked at, and put back, again and again."""

    commands = COMMANDS

    def __init__(self, folder: Path, seed: int) -> None:
        os.environ["FAKE_TRAINER_PROGRAM"] = light_trainer.__file__
        self.random = random.Random(seed)
        self.batch = make(folder)
        self.pristine = folder / "pristine"
        self.batch.output.rename(self.pristine)
        self.put_back()
        self.accepted = {patch: int(self.batch.result(patch)["attempt"][-2:]) for patch in PATCHES}
        for command in COMMANDS[:-1]:  # whatever is loaded now need not be loaded in every child
            invoke(*command, batch=self.batch)
        self.put_back()

    @property
    def spoiled(self) -> Path:
        """Return where the files lie."""
        return self.batch.output

    def put_back(self) -> None:
        shutil.rmtree(self.batch.output, ignore_errors=True)
        subprocess.run(["cp", "-a", self.pristine, self.batch.output], check=True)

    def faults(self, number: int) -> Iterator[Fault]:
        """Yield faults, every file in its turn; files without content have nothing to spoil."""
        files = sorted(path for path in self.files() if path.is_file() and path.stat().st_size)
        for index in range(number):
            if index % len(files) == 0:
                self.random.shuffle(files)
            path = files[index % len(files)]
            size, kind = path.stat().st_size, self.random.choice(("flip", "flip", "cut"))
            places = self.random.randint(1, MOST_FLIPS) if kind == "flip" else 1
            yield Fault(
                str(path.relative_to(self.pristine)),
                kind,
                tuple(self.random.randrange(size) for _ in range(places)),
                self.random.randint(1, 255),
                self.random.random() < SECRET,
                self.random.random() < LINKED,
            )

    def files(self) -> Iterator[Path]:
        """Yield what may be spoiled."""
        return self.pristine.rglob("*")

    def run(self, number: int) -> Tampered:
        found, started = Tampered(), time.monotonic()
        for fault in self.faults(number):
            self.put_back()
            fault.spoil(self.spoiled)
            seen = in_child(lambda fault=fault: self.look(fault))
            found.kinds[fault.kind + (" in secret" if fault.is_secret else "")] += 1
            found.files.add(fault.file)
            found.codes[seen.get("code", -1)] += 1
            found.trained_again += seen.get("trained_again", 0)
            found.slowest_s = max(found.slowest_s, *seen.get("seconds", [0.0]), 0.0)
            found.faults += [f"{fault}: {one}" for one in seen["faults"]]
        found.seconds, found.num_commands = time.monotonic() - started, len(self.commands)
        return found

    def look(self, fault: Fault) -> dict:
        """Run the commands; return what is wrong and how long each took."""
        seconds, wrong, code = [], [], 0
        if fault.is_hidden and fault.file.count("/") == 2:  # patches/p0/splat.ply
            wrong += self._is_noticed(fault.file.split("/")[1])
        for command in COMMANDS:
            began = time.process_time()
            try:
                ended = invoke(*command, batch=self.batch)
                code, said = ended.code, ended.out + ended.err
            except BaseException:  # noqa: BLE001 - whatever a command lets through is what we look for
                said = traceback.format_exc()
            seconds.append(time.process_time() - began)
            wrong += [f"{command[0]}: {said[-1500:]}"] if "Traceback (most recent call last)" in said else []
            wrong += [f"{command[0]} took {seconds[-1]:.1f} s"] if seconds[-1] > MOST_CPU_S else []
        wrong += [] if fault.is_hidden else self._broken(code)
        again = sum(self.attempt_of(patch) > number for patch, number in self.accepted.items())
        return {"seconds": seconds, "faults": wrong, "code": code, "trained_again": again}

    def _is_noticed(self, patch: str) -> list[str]:
        said = json.loads(invoke("status", "--verify", "--json", batch=self.batch).out)
        states = {one["patch"]: one["state"] for one in said["patches"]}
        return [f"status --verify says {states[patch]}"] if states[patch] == "trained" else []

    def _broken(self, code: int) -> list[str]:
        """Say which patches are called trained and are not, and where an older splat has come back."""
        said = json.loads(invoke("status", "--json", batch=self.batch).out)
        called = {one["patch"] for one in said["patches"] if one["state"] == "trained"}
        called |= set(PATCHES) if code == 0 else set()
        broken = [f"train ended with {code}, {patch}: broken" for patch in called if not self.attempt_of(patch)]
        older = [
            f"{patch}: attempt {self.attempt_of(patch)} again instead of {number}"
            for patch, number in self.accepted.items()
            if 0 < self.attempt_of(patch) < number
        ]
        return broken + older

    def attempt_of(self, patch: str) -> int:
        """Return which attempt the accepted splat comes from; 0 if it is no whole splat."""
        try:
            data = (self.batch.output / "patches" / patch / "splat.ply").read_bytes()
        except OSError:
            return 0
        return WHOLE.get(hashlib.sha256(data).hexdigest(), 0)


class SceneTampering(Tampering):
    """A merged and published scene that is spoiled, or a splat that it is made of; then a patch may be taken out."""

    commands = (("status",), ("publish",), ("merge",), ("publish",), ("report",))
    places = ("output", "site")
    without_p3 = (("merge", "--allow-missing"), ("publish",))

    def __init__(self, folder: Path, seed: int) -> None:
        os.environ["FAKE_TRAINER_PROGRAM"] = light_trainer.__file__
        self.random = random.Random(seed)
        self.batch = trained(folder / "batch")
        self.batch.change(publish={"formats": ["ply"], "folder": "site", "measure": False})
        self.pristine = folder / "pristine"
        self.do(("merge",), ("publish",))
        self.whole = self.hashes()
        self.pristine.mkdir()
        for name in self.places:
            (self.batch.folder / name).rename(self.pristine / name)
        self.put_back()
        self.take_out()
        self.do(*self.without_p3)
        self.smaller = self.hashes()
        self.put_back()

    def do(self, *commands: tuple[str, ...]) -> None:
        """Run commands that go well."""
        for command in commands:
            ended = invoke(*command, batch=self.batch)
            assert ended.code == 0, ended.out + ended.err

    @property
    def spoiled(self) -> Path:
        """Return where the files lie: of the output folder, and of what is published."""
        return self.batch.folder

    def put_back(self) -> None:
        for name in self.places:
            shutil.rmtree(self.batch.folder / name, ignore_errors=True)
            subprocess.run(["cp", "-a", self.pristine / name, self.batch.folder], check=True)

    def take_out(self) -> None:
        """Remove what a patch has come to."""
        shutil.rmtree(self.batch.output / "patches/p3")

    def hashes(self) -> list[str]:
        """Return what is merged, and what is published of it."""
        places = [self.batch.output / "scene/splat.ply", self.batch.folder / "site/scene.ply"]
        return [hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "" for path in places]

    def files(self) -> Iterator[Path]:
        """Yield those of the scene, of what is published, and of splats that are merged."""
        return (
            path
            for kind in ("output/scene/*", "site/*", "output/patches/p[0-2]/splat.ply")
            for path in self.pristine.glob(kind)
        )

    def look(self, fault: Fault) -> dict:
        """Run the commands; whatever ends well must have left what is whole, in the scene and beside it."""
        seconds, wrong, ends = [], [], []
        for after, commands in ((self.whole, self.commands), (self.smaller, self.without_p3)):
            if after is self.smaller:
                self.take_out()
            for command in commands:
                began = time.process_time()
                try:
                    ended = invoke(*command, batch=self.batch)
                    code, said = ended.code, ended.out + ended.err
                except BaseException:  # noqa: BLE001 - whatever a command lets through is what we look for
                    code, said = -1, traceback.format_exc()
                seconds.append(time.process_time() - began)
                wrong += [f"{command}: {said[-1500:]}"] if "Traceback (most recent call last)" in said else []
                wrong += [f"{command[0]} took {seconds[-1]:.1f} s"] if seconds[-1] > MOST_CPU_S else []
                place = {"merge": 0, "publish": 1}.get(command[0])
                is_told = any(f"{name}: stale" in said for name in PATCHES if f"/{name}/" in fault.file)
                if place is not None and code and "hint: " not in said:
                    wrong.append(f"{command} ended with {code}, without a remedy: {said[-500:]}")
                if place is not None and code == 0 and self.hashes()[place] != after[place] and not is_told:
                    wrong.append(f"{command} ended well, and what it left is not whole: {said[-500:]}")
                ends += [code]
        return {"seconds": seconds, "faults": wrong, "code": max(ends), "trained_again": 0}


def make(folder: Path) -> FakeBatch:
    """Return a batch of three patches that is done: with a failed attempt, a retry of a trained patch, and a report."""
    batch = FakeBatch(folder).make(*PATCHES, executor={"cpu_slots": 2}, limits={"grace_s": 0.5, "free_disk_mib": 0})
    batch.script(p0=["exit 1 CUDA error: unspecified launch failure", "train"])
    for command in (["train"], ["retry", "p1", "--force", "--set", "training.seed=3"]):
        ended = batch.run(*command)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return batch.script()


def in_child(look) -> dict:
    """Return what a function returns in a fork of this process, which costs no start of Python."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS_S)
        try:
            said = look()
        except BaseException:  # noqa: BLE001 - a child must not go on as if it were the parent
            said = {"faults": [f"the test itself: {traceback.format_exc()}"]}
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(said) if said else {"faults": [f"a command ended its process: {status}"]}
