"""Keep-better over random histories, through the acceptance that every attempt goes through, against a small oracle."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_trainer import splat_of

from splatbatch.config import Recipe, Retry, TaskId, Training
from splatbatch.errors import ConfigError
from splatbatch.files import write_json
from splatbatch.hashing import FileFact, sha256_of
from splatbatch.outcome import Exited
from splatbatch.output import results
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.attempt import Claim, JobSpec
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.run.accept import _manifest
from splatbatch.scene.patches import Patch
from splatbatch.scheduler.finalize import collect
from splatbatch.splats import write_splat
from splatbatch.tasks.task import TrainTask
from splatbatch.trainers.builtin import BuiltinTrainer

NAMES = tuple("abcdefgh")
SETS = (("a", "h"), ("b", "g"))
"""Two hold-outs with nothing in common: a splat of the one was trained on the other."""
FOUND = ("measured", "better", "worse", "unmeasured", "nan", "not plausible", "trained on all", "another hold-out")
"""What may come of a training; the rest of what happens are methods of a history."""


@dataclass
class Trained:
    """What the oracle knows of a splat: what it was trained from, on what it was measured, and how well."""

    photographs: int
    set: tuple[str, ...]
    psnr: float | None
    sha256: str


@dataclass
class History:
    """A patch, and all that has happened to it."""

    folder: PatchFolder
    chance: random.Random
    photographs: int = 0
    trained: dict[str, Trained] = field(default_factory=dict)
    happened: list[str] = field(default_factory=list)

    def happen(self) -> None:
        """Let one thing happen, and see that nothing was lost by it."""
        event = self.chance.choice([*FOUND, *FOUND, "touch", "tamper", "accept", "photographs"])
        self.happened.append(event)
        before = self.there()
        if event in FOUND:
            results.restore(self.folder)  # as every `train` and `retry` begins
            before = self.there()
            name, accepted = self.train(event), self.product
            self.see_the_better_one(accepted, name)
            before = {*before, name}
        elif event != "photographs":
            getattr(self, event)()
            before = before & {name for name in before if self.is_whole(name)}
        else:
            self.photographs += 1
        self.see_the_best_is_there(before)

    product: str = ""

    def train(self, event: str) -> str:
        """Train, have what came of it accepted or not, and note which attempt was accepted before."""
        known = self.trained.get(self.accepted())
        self.product = self.accepted()
        psnr = {"better": 1.0, "worse": -1.0}.get(event, 0.0) + (known.psnr or 20.0 if known else 20.0)
        psnr = round(self.chance.uniform(15, 30), 2) if event in ("measured", "another hold-out") else psnr
        held_out = () if event == "trained on all" else SETS[event == "another hold-out"]
        figure = {"unmeasured": None, "nan": float("nan"), "not plausible": 99_999.0}.get(event, psnr)
        attempt = self.attempt(held_out, figure)
        recipe = Recipe(training=Training(max_steps=20))
        config = SimpleNamespace(failures=None, retry=Retry(keep="better"))
        settings: Any = SimpleNamespace(config=config, recipe=recipe, trainer=BuiltinTrainer(recipe))
        patch = Patch("p0", self.folder.path / "sparse", self.folder.path / "images")
        task = TrainTask(TaskId("p0"), patch, settings, settings, settings)
        collect(attempt, Exited(0), task)
        believed = None if figure is None or not 0 <= figure <= 100 or not held_out else figure
        name = attempt.folder.path.name
        sha256 = sha256_of(attempt.folder.splat)
        self.trained[name] = Trained(self.photographs, held_out, believed, sha256)
        return name

    def attempt(self, held_out: tuple[str, ...], psnr: float | None) -> Attempt:
        """Return an attempt that has ended as training processes end."""
        folder = self.folder.new_attempt()
        files = {f"images/{name}": FileFact(1 + self.photographs, 1, "") for name in NAMES}
        told = {"photographs": self.photographs}
        depends_on = Fingerprint(recipe="r", inputs=f"{told}", settings={"training": {"trainer": "ours"}}, files=files)
        claim = Claim("local", 1, self.folder.newest_accepted())
        attempt = Attempt("p0", folder, JobSpec(depends_on=depends_on, is_retry=True, claim=claim))
        write_json(folder.job, {"depends_on": depends_on.to_record(), "claim": claim.to_record()})
        write_json(folder.settings, TrainingSettings(patch="p0", holdout=held_out).to_record())
        figures = {name: {"psnr": psnr} for name in held_out}
        if psnr is not None:
            folder.metrics.write_text(json.dumps({"final": {"psnr": psnr, "images": figures}}))  # NaN as programs do
        write_splat(folder.splat, splat_of(10 + folder.number), 20)
        return attempt

    def accepted(self) -> str:
        """Return the attempt whose splat is the product; empty if there is none."""
        product = self.folder.read_result()
        return product.attempt if product else ""

    def is_whole(self, name: str) -> bool:
        return sha256_of(self.folder.path / name / "splat.ply") == self.trained[name].sha256

    def there(self) -> set[str]:
        """Return the attempts whose splats are there, and as they were trained."""
        return {name for name in self.trained if self.is_whole(name)}

    def any_splat(self) -> Path | None:
        """Return one of the splats that are there."""
        found = sorted(self.there())
        return self.folder.path / self.chance.choice(found) / "splat.ply" if found else None

    def touch(self) -> None:
        """Give a splat another time, as a copy or a backup does."""
        if splat := self.any_splat():
            os.utime(splat, ns=(0, splat.stat().st_mtime_ns + 10**9))

    def tamper(self) -> None:
        """Write into a splat; the product is the same file."""
        if splat := self.any_splat():
            later = splat.stat().st_mtime_ns + 10**9
            with splat.open("r+b") as file:
                file.seek(-8, os.SEEK_END)
                file.write(b"tampered")
            os.utime(splat, ns=(0, later))

    def accept(self) -> None:
        """Accept a splat by hand: one that is there and whole can be, any other one cannot."""
        name = self.chance.choice(sorted(self.trained) or [""])
        try:
            left = _manifest(self.folder, self.folder.attempt(int(name[-2:] or 0)), "p0")
            results.pin_to_inputs(self.folder, left, left.trained_from)
            assert self.accepted() == name, self.happened
        except ConfigError:
            assert not name or not self.is_whole(name), self.happened

    def see_the_better_one(self, before: str, name: str) -> None:
        """See that a measured splat has given way to one alone that was measured no worse, or to other photographs."""
        old, new = self.trained.get(before), self.trained[name]
        stays = old and old.psnr is not None and old.photographs == new.photographs and self.is_whole(before)
        if stays and old:
            is_better = new.set == old.set and new.psnr is not None and new.psnr >= (old.psnr or 0)
            assert self.accepted() == (name if is_better else before), self.happened

    def see_the_best_is_there(self, before: set[str]) -> None:
        """See that of what was there the best of each hold-out still is, where its photographs are the product's."""
        there, product = self.there(), self.trained.get(self.accepted())
        for held_out in SETS if product else ():
            same = [
                one
                for one in before
                if (self.trained[one].photographs, self.trained[one].set) == (product.photographs, held_out)  # type: ignore[union-attr]
            ]
            best = max((psnr for one in same if (psnr := self.trained[one].psnr) is not None), default=0.0)
            left = max((psnr for one in there & {*same} if (psnr := self.trained[one].psnr) is not None), default=0.0)
            assert left == best, self.happened


def histories(place: Path, num: int, say: Callable[[Counter[str]], None]) -> None:
    """Live through so many histories of up to ten events."""
    events: Counter[str] = Counter()
    for seed in range(num):
        chance = random.Random(seed)
        history = History(PatchFolder(place / f"{seed}/patches/p0"), chance)
        history.folder.path.mkdir(parents=True)
        for _ in range(chance.randint(3, 10)):
            history.happen()
        events.update(history.happened)
    say(events)


def test_of_twenty_random_histories_each_leaves_the_best_comparable_splat(tmp_path: Path) -> None:
    histories(tmp_path, 20, lambda events: None)


@pytest.mark.all
def test_of_500_random_histories_each_leaves_the_best_comparable_splat(tmp_path: Path, record_property: Any) -> None:
    def say(events: Counter[str]) -> None:
        record_property("figure", f"500 of 500 histories, {sum(events.values())} events: the best splat is there")
        assert events.total() > 2000 and min(events.values()) > 50

    histories(tmp_path, 500, say)
