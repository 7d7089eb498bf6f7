#!/usr/bin/env python3
"""Entry point of a SageMaker training job: one worker on this host's GPUs, over the folders that SageMaker gives it.

Read below /opt/ml (SPLATBATCH_ML_ROOT names another place):
  input/data/scene/   channel, may be read-only: splat_config.yml beside all that it names
  input/data/output/  channel, optional: a file system (FSx for Lustre, EFS) mounted rw: the output folder of all hosts
  input/config/       hyperparameters.json: `config`, `for`, `no-verify`; resourceconfig.json: which host of how many
                      or `store` (s3://bucket/prefix, with `for` and `idle`): then no channel is needed, on any number
                      of hosts, spot or not; patches come from there and splats go there, by the role of the job
Written:
  checkpoints/        the output folder where no file system is shared: goes to S3 as it grows, comes back with the job
  model/              the accepted splats and the report, at the end and when the job is stopped
  output/failure      why the job failed: the console shows it

SIGTERM (spot interruption, StopTrainingJob, MaxRuntimeInSeconds) is followed by SIGKILL after 120 s.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatbatch import config as configuration
from splatbatch.errors import ConfigError, ExecutorError, SplatbatchError

KILLED_AFTER_S = 120.0
MARGIN_S = 20.0
FAILURE_BYTES = 1024  # SageMaker shows no more
KNOWN = ("config", "for", "no-verify", "store", "idle")


@dataclass
class Job:
    """What SageMaker has laid out for us."""

    root: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = ("algo-1",)
    host: str = "algo-1"

    @classmethod
    def read(cls, root: Path) -> Job:
        """Read what we are to do, and which host we are; refuse what cannot be done.

        Raises:
            ConfigError: a hyperparameter is not known.
            ExecutorError: several hosts share no folder.
        """
        given = {key: _plain(value) for key, value in _read(root / "input/config/hyperparameters.json").items()}
        of_us = {key: value for key, value in given.items() if not key.startswith("sagemaker_")}
        if unknown := sorted(set(of_us) - set(KNOWN)):
            raise ConfigError(f"hyperparameter {unknown[0]}: unknown", f"Known are {', '.join(KNOWN)}.")
        resources = _read(root / "input/config/resourceconfig.json")
        job = cls(root, of_us, tuple(resources.get("hosts", ["algo-1"])), resources.get("current_host", "algo-1"))
        if len(job.hosts) > 1 and not job.store and not job.shared.is_dir():
            raise ExecutorError(
                f"{len(job.hosts)} instances share no folder: there is no channel `output`",
                "Name a `store` in S3, or a channel `output` on FSx for Lustre or EFS with FileSystemAccessMode rw.",
            )
        return job

    @property
    def store(self) -> str:
        """Return the store that patches come from; empty: they are in the channel."""
        return str(self.parameters.get("store", ""))

    @property
    def scene(self) -> Path:
        """Return the folder of the YAML."""
        return self.root / "input/data/scene"

    @property
    def shared(self) -> Path:
        """Return the folder that all hosts see."""
        return self.root / "input/data/output"

    def stage(self) -> Path:
        """Lay the scene out with an output folder that outlives us; return the YAML there.

        Raises:
            ConfigError: there is no such YAML, or it is wrong.
        """
        name = str(self.parameters.get("config", "splat_config.yml"))
        if not (self.scene / name).is_file():
            raise ConfigError(f"{self.scene / name}: no such file", "Name a channel `scene` that holds the YAML.")
        batch = self.root / "batch"
        batch.mkdir(exist_ok=True)
        for one in self.scene.iterdir():
            with suppress(FileExistsError):
                (batch / one.name).symlink_to(one)
        copy = batch / name
        copy.unlink()  # as a file of its own, or its paths would begin where the link leads
        shutil.copy(self.scene / name, copy)
        output = configuration.load(copy).output.folder
        lasting = self.shared if self.shared.is_dir() else self.root / "checkpoints"
        lasting.mkdir(parents=True, exist_ok=True)
        if output.is_relative_to(batch) and not output.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            output.symlink_to(lasting)
        return copy

    def command(self, yaml: Path | None) -> list[str]:
        """Return what trains; without a YAML what a store holds."""
        for_ = ("--for", str(self.parameters["for"])) if "for" in self.parameters else ()
        if yaml is None:
            idle = ("--idle", str(self.parameters["idle"])) if "idle" in self.parameters else ()
            return ["splatbatch", "work", self.store, *for_, *idle, "--scratch", str(self.root / "scratch")]
        no_verify = ("--no-verify",) if str(self.parameters.get("no-verify", "")).lower() in ("1", "true") else ()
        return ["splatbatch", "work", "--config", str(yaml), *for_, *no_verify]


@dataclass
class Ending:
    """When we were told to stop, and how to tell it on."""

    told_at: float | None = None
    tell: Callable[[], None] = lambda: None

    def __call__(self, *_: object) -> None:
        """Take SIGTERM."""
        self.told_at = self.told_at or time.monotonic()
        self.tell()

    def left_s(self) -> float | None:
        """Return how long we may still take; None: as long as it takes."""
        return None if self.told_at is None else self.told_at + KILLED_AFTER_S - MARGIN_S - time.monotonic()


def run(job: Job, ending: Ending) -> int:
    """Train, hand over what is trained, and return the exit code."""
    yaml = None if job.store else job.stage()
    worker = subprocess.Popen(job.command(yaml), stderr=subprocess.PIPE, text=True, errors="replace")
    ending.tell = worker.terminate
    if ending.told_at:  # while it started
        worker.terminate()
    said = deque(_passed_on(worker), maxlen=20)
    code = worker.wait()
    if yaml is not None and job.host == job.hosts[0]:
        hand_over(yaml, job.root / "model", ending)
    if code:
        fail(job.root, f"`splatbatch work` ended with exit code {code}. " + "".join(said))
    return code


def hand_over(yaml: Path, model: Path, ending: Ending) -> None:
    """Put the accepted splats and the report where SageMaker takes the model from."""
    model.mkdir(parents=True, exist_ok=True)
    for words in (("publish", "--as", "ply", "--no-measure", "--to", str(model), "--force"), ("report",)):
        try:
            subprocess.run(["splatbatch", *words, "--config", str(yaml)], check=False, timeout=ending.left_s())
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"no time for `splatbatch {words[0]}`: what is missing lies in the output folder\n")
    for report in configuration.load(yaml).output.folder.glob("report.*"):
        shutil.copy(report, model)


def fail(root: Path, words: str) -> None:
    """Say why, where the console shows it."""
    (root / "output").mkdir(parents=True, exist_ok=True)
    (root / "output/failure").write_bytes(words.encode()[:FAILURE_BYTES])


def main() -> int:
    """Do what the job asks; an error is told in the console, too."""
    root, ending = Path(os.environ.get("SPLATBATCH_ML_ROOT", "/opt/ml")), Ending()
    signal.signal(signal.SIGTERM, ending)
    try:
        return run(Job.read(root), ending)
    except SplatbatchError as error:
        words = " ".join(filter(None, (error.message, error.hint)))
        sys.stderr.write(f"{words}\n")
        fail(root, words)
        return error.exit_code


def _passed_on(worker: subprocess.Popen[str]) -> Any:
    for line in worker.stderr or ():
        sys.stderr.write(line)
        sys.stderr.flush()
        yield line


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path}: no JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Any:
    """Return a value without the JSON that the Python SDK wraps each in: '"3h"' is 3h."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


if __name__ == "__main__":
    sys.exit(main())
