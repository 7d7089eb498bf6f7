"""A scene cut, trained, merged and measured by the product's own commands, each a process as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatbatch.files import read_json
from splatbatch.scene.colmap.copies import write_shifted

UTM = (500_000.0, 4_500_000.0, 100.0)
"""Easting, northing and height in metres."""
NOT_WHOLE = 1
GRACE_S = 15.0


class Ended(Exception):
    """A command that failed, or for which no time was left."""


@dataclass(frozen=True)
class Scene:
    """A COLMAP scene, and where its patches go."""

    sparse: Path
    images: Path
    patches: Path


@dataclass
class Commands:
    """Runs commands of the product until a moment, and knows how long each took."""

    log: Path
    until: float
    """By time.monotonic()."""
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, verb: str, *arguments: object, may_lack: bool = False) -> str:
        """Run a command; return what it said.

        Raises:
            Ended: it failed, or was ended for want of time.
        """
        started, words = time.monotonic(), [sys.executable, "-m", "splatbatch", verb, *map(str, arguments)]
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n")
            log.flush()
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
            try:
                said = process.communicate(timeout=max(1.0, self.until - started))[0]
            except subprocess.TimeoutExpired:
                self._end(process)
                raise Ended(f"{verb}: no time left") from None
            log.write(said)
        self.seconds[verb] = round(self.seconds.get(verb, 0.0) + time.monotonic() - started, 2)
        if process.returncode not in ((0, NOT_WHOLE) if may_lack else (0,)):
            raise Ended(f"{verb}: exit {process.returncode}: {last_lines(self.log)}")
        return said

    def _end(self, process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGTERM)  # as Ctrl-C would: attempts are stopped and recorded
        try:
            process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def last_lines(log: Path, count: int = 3) -> str:
    """Return the end of a log in one line."""
    return " / ".join(log.read_text().strip().splitlines()[-count:])


def moved(scene: Scene, folder: Path) -> Scene:
    """Return a copy of a scene in UTM coordinates; its photographs are the same files."""
    sparse = folder / "sparse" / "0"
    shutil.copytree(scene.sparse, sparse)
    x, y, z = UTM
    write_shifted(sparse, (-x, -y, -z), sparse)
    return Scene(sparse, scene.images, folder / "patches")


def cut(commands: Commands, scene: Scene, grid: str) -> None:
    """Cut a scene, unless it is cut already."""
    if not (scene.patches / "partition.json").exists():
        commands.run(
            "split", "--source", scene.sparse, "--images", scene.images, "--out", scene.patches, "--grid", grid
        )


def write_config(folder: Path, settings: Mapping[str, Any], scene: Mapping[str, Any]) -> Path:
    """Write the YAML of a batch; its output goes beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "splat_config.yml"
    output = {"folder": str(folder / "output"), "previews_mib": 0}
    path.write_text(json.dumps({**settings, "scene": dict(scene), "output": output}))  # JSON is YAML
    return path


def train(commands: Commands, config: Path) -> list[dict[str, Any]]:
    """Train a batch; return the results that it left."""
    commands.run("train", "--config", config)
    results = (read_json(path) for path in sorted(config.parent.glob("output/patches/*/result.json")))
    return [one for one in results if one]


def merge(commands: Commands, config: Path) -> dict[str, Any]:
    """Merge a batch's patches; return merge.json."""
    return dict(json.loads(commands.run("merge", "--config", config, "--json")))


def evaluate(commands: Commands, config: Path, splat: Path | None = None) -> dict[str, Any]:
    """Measure a splat of a batch's scene, the merged one unless another is named."""
    other = ("--splat", splat) if splat else ()
    return dict(json.loads(commands.run("evaluate", "--config", config, "--json", *other)))
