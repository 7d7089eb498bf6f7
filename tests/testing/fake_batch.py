"""A batch on a small made-up scene, with a scripted trainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_trainer
import yaml
from flat_scene import write_model, write_photos

if TYPE_CHECKING:
    from command_line import Beside

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
QUARRY = ROOT / "examples" / "quarry"
CONSTANTS = "FAKE_TRAINER_CONSTANTS"


@dataclass
class FakeBatch:
    """A folder with a config, patches that share their photographs, and a script for the fake trainer."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    """Of the program: {"splatbatch.machine.local.SILENCE_S": 1}."""

    @property
    def config(self) -> Path:
        return self.folder / "splat_config.yml"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def ledger(self) -> Path:
        return self.output / "ledger" / "local.jsonl"

    def make(self, *patches: str, constants: dict[str, Any] | None = None, **sections: dict[str, Any]) -> FakeBatch:
        self.constants |= constants or {}
        names = [f"img{i}.png" for i in range(9)]
        write_photos(self.folder / "images", names)
        for patch in patches:
            write_model(self.folder / "patches" / patch / "sparse" / "0", names)
        self.settings = {
            "scene": {"images": "images"},
            "training": {"max_steps": 20, "device": "cpu"},
            "limits": {"grace_s": 0.5},
            "output": {"previews_mib": 0},
        }
        self.change(**sections)
        self.script()
        return self

    def copied(self, folder: Path) -> FakeBatch:
        """Return a copy, hard links and times as they are, with which a test may do what it likes."""
        known: dict[int, str] = {}

        def copy(source: str, target: str) -> None:
            if first := known.get(Path(source).stat().st_ino):
                os.link(first, target)
            else:
                known[Path(source).stat().st_ino] = shutil.copy2(source, target)

        shutil.copytree(self.folder, folder, symlinks=True, copy_function=copy)
        return FakeBatch(folder, deepcopy(self.settings), {**self.constants})

    def change(self, **sections: dict[str, Any]) -> None:
        for name, section in sections.items():
            self.settings[name] = self.settings.get(name, {}) | section
        self.config.write_text(yaml.safe_dump(self.settings))

    def script(self, **lines: list[str]) -> FakeBatch:
        (self.folder / "script.json").write_text(json.dumps(lines))
        return self

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, fake_trainer.__file__, *arguments]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SPLATBATCH_CONFIG": str(self.config),
            "FAKE_TRAINER_SCRIPT": str(self.folder / "script.json"),
            CONSTANTS: json.dumps(json.loads(os.environ.get(CONSTANTS, "{}")) | self.constants),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            self.command(*arguments), text=True, env=self.environment(), stdin=subprocess.DEVNULL, **pipes
        )

    def beside(self, *arguments: str) -> Beside:
        """Start a command inside this process; it takes turns with the test."""
        from command_line import Beside

        return Beside(self, *arguments)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end inside this process; its attempts are processes all the same."""
        from command_line import invoke

        ended = invoke(*arguments, batch=self)
        return subprocess.CompletedProcess(arguments, ended.code, ended.out, ended.err)

    def run_apart(self, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a process of its own, with pipes, as a shell does."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def result(self, patch: str) -> dict[str, Any]:
        return json.loads((self.output / "patches" / patch / "result.json").read_text())

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        return [line for line in lines if not kind or line["event"] == kind]
