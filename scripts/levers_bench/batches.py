"""Trains pairs in batches, some seeds of a scene at a time, until all are there or the time is over."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from batch_bench.gpu_runs import assign

from levers_bench.pairs import Pair, read, table, without
from levers_bench.scenes import ROOT, patches_of, scenes, section_of
from splatbatch.files import append_line, read_lines
from splatbatch.output.layout import OutputFolder

PARENT = "parent"
START_S, BESIDE_S, END_S = 12.0, 3.0, 20.0  # a batch beside trainings; a training beside its steps; to stop a batch
GUESS_S, BATCH_S = 15.0, 90.0  # of steps before any are known; of a batch: starts cost little, all scenes have a turn
NO_OVERLAP_S = 0.001  # the cooldown after which no training is prepared beside the evaluation of the last


def measure(options: argparse.Namespace, commit: str) -> int:
    """Train what levers.jsonl lacks, as far as the time goes, and print the table; return 0."""
    ends_at = time.monotonic() + options.limit_s - END_S
    if PARENT in (name for name, *_ in options.variant):
        sys.exit("--variant needs another name than parent")
    folders = scenes(options.scene, options.data, options.out)
    under = (f"training.max_steps={options.steps}", *options.set)
    wanted = [
        Pair(scene, patch, seed, name, tuple(settings), under)
        for scene, folder in folders.items()
        for seed, patch in product(options.seeds, patches_of(folder, options.patches))
        for name, *settings in options.variant
    ]
    bench = Bench(options, commit, folders, read(options.out / "levers.jsonl"), ends_at)
    while missing := without(wanted, bench.done):
        batch = next_batch(missing, options.seeds[: options.alone], ends_at - time.monotonic(), bench.seconds_for)
        if not batch:
            break
        bench.train(batch)
    keys = {pair.key for pair in wanted}
    lines = table([pair for pair in bench.done if pair.key in keys])
    (options.out / "levers.md").write_text("\n".join(lines) + "\n")
    print("\n".join(["", *lines, f"{len(missing)} of {len(wanted)} pairs are not there yet"]))
    return 0


def next_batch(
    missing: Sequence[Pair], alone: Sequence[int], left_s: float, seconds_for: Callable[[Sequence[Pair]], float]
) -> list[Pair]:
    """Return what one batch trains next; nothing where no pair ends in time any more.

    It is of the scene that lacks most seeds: as many of them as a batch has time for, or some patches of one. It is
    patches x seeds x changes, so that nothing is trained twice, and all alone on a card, or nothing of it.
    """
    lacks = Counter(scene for scene, _ in dict.fromkeys((pair.scene, pair.seed) for pair in missing))
    for scene, _ in lacks.most_common():
        of_scene = [replace(pair, is_alone=pair.seed in alone) for pair in missing if pair.scene == scene]
        chosen: list[Pair] = []
        for end in range(1, len(of_scene) + 1):
            part = of_scene[:end]
            most_s = left_s if part[0].seed == part[-1].seed else min(left_s, BATCH_S)
            patches, seeds, changes = (values(part, name) for name in ("patch", "seed", "change"))
            is_full = len(part) == len(patches) * len(seeds) * len(changes) and len(values(part, "is_alone")) == 1
            if is_full and seconds_for(part) <= most_s:
                chosen = part
        if chosen:
            return chosen
    return []


def values(pairs: Sequence[Pair], name: str) -> list[Any]:
    """Return the different values of a field, in order."""
    return list(dict.fromkeys(getattr(pair, name) for pair in pairs))


@dataclass(frozen=True)
class Bench:
    """What all batches have in common, and the pairs that are done."""

    options: argparse.Namespace
    commit: str
    folders: dict[str, Path]
    done: list[Pair]
    ends_at: float

    def seconds_for(self, batch: Sequence[Pair]) -> float:
        """Return what a batch takes, by the trainings of its scene that are done."""
        like = (batch[0].scene, batch[0].is_alone, *batch[0].under)
        alike = [pair for pair in self.done if pair.parent and (pair.scene, pair.is_alone, *pair.under) == like]
        known = [figures["seconds"] for pair in alike for figures in (pair.parent, pair.changed)]
        num = len(values(batch, "patch")) * len(values(batch, "seed")) * (1 + len(values(batch, "change")))
        num_at_once = self.options.at_once if known and not batch[0].is_alone else 1
        return START_S + num / num_at_once * (BESIDE_S + 1.2 * (statistics.fmean(known) if known else GUESS_S))

    def train(self, batch: Sequence[Pair]) -> None:
        """Train some pairs of a scene as one batch, and keep each as soon as it is there; end when the time is over."""
        with tempfile.TemporaryDirectory(prefix="batch-", dir=self.options.out) as name:
            folder = Path(name)
            (folder / "splat_config.yml").write_text(json.dumps(self.settings(batch, folder)))  # JSON is YAML
            command = [sys.executable, "-m", "splatbatch", "train", "--no-verify", *values(batch, "patch")]
            path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
            environment = os.environ | {"PYTHONPATH": path}
            with (self.options.out / "train.log").open("ab") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
            while process.poll() is None:
                time.sleep(0.5)
                self.collect(batch, folder / "output")
                if time.monotonic() > self.ends_at:
                    process.terminate()
            self.collect(batch, folder / "output")
        failed = without(batch, self.done) if time.monotonic() < self.ends_at else []
        if len(failed) == len(batch):
            sys.exit(f"no pair was trained: see {self.options.out / 'train.log'}")
        for pair in failed:
            self.keep(pair)

    def settings(self, batch: Sequence[Pair], folder: Path) -> dict[str, dict[str, Any]]:
        """Return the YAML of a batch: parent and changes of a seed in turns, the parent first with every other seed."""
        changes = {PARENT: (), **{pair.change: pair.settings for pair in batch}}
        variants = []
        for seed in values(batch, "seed"):
            for name in changes if seed % 2 else reversed(changes):
                changed = {key: json.loads(value) for key, _, value in (one.partition("=") for one in changes[name])}
                variants.append({"name": f"{name}-{seed}", "set": {"training.seed": seed, **changed}})
        sections = {
            "scene": section_of(self.folders[batch[0].scene]),
            "training": {"device": self.options.device},
            "executor": {} if batch[0].is_alone else {"patches_per_gpu": self.options.at_once},
            "cooldown": {"floor_s": NO_OVERLAP_S if batch[0].is_alone else 0},
            "output": {"folder": str(folder / "output"), "previews_mib": 0},
            "sweep": {"variants": variants},
        }
        assign(sections, batch[0].under)
        return sections

    def collect(self, batch: Sequence[Pair], output: Path) -> None:
        """Keep the pairs of which both are trained."""
        for pair in without(batch, self.done):
            parent, changed = (figures_of(output, f"{pair.patch}@{name}-{pair.seed}") for name in (PARENT, pair.change))
            if parent and changed:
                self.keep(replace(pair, parent=parent, changed=changed))

    def keep(self, pair: Pair) -> None:
        """Write a line of levers.jsonl; it is on the disk then."""
        self.done.append(replace(pair, commit=self.commit))
        append_line(self.options.out / "levers.jsonl", asdict(self.done[-1]))
        print(pair, flush=True)


def figures_of(output: Path, task: str) -> dict[str, Any]:
    """Return what a training came to, its seconds from the first step to the last; nothing while it has no result."""
    folder = OutputFolder(output).patch(task)
    if (result := folder.read_result()) is None:
        return {}
    lines = read_lines(folder.path / result.attempt / "progress.jsonl")
    steps = [one["t"] for one in lines if "loss" in one]
    photos = result.metrics.photos().items()
    images = {name: {"psnr": one.psnr, "psnr_covered": one.psnr_covered} for name, one in photos}
    facts = {"covered": result.metrics.covered.hash, "num_gaussians": result.num_gaussians, "images": images}
    return asdict(result.metrics.final) | facts | {"seconds": round(max(steps) - min(steps), 2) if steps else 0.0}
