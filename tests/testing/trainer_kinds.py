"""A batch with a patch for every kind of trainer: ours, argv templates of every shape, and each preset's program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import external_program
import stand_ins
import yaml
from fake_batch import ROOT, FakeBatch
from travelling import QUICK, SHORT

PROGRAM = [sys.executable, external_program.__file__, "--steps={steps}", "--do={setting.do}"]
SAYS = {"step": r"step (\d+)/"}
UNMEASURED = {"evaluate": False}
PRESETS = {path.stem: path for path in sorted((ROOT / "configs/trainers").glob("*.yml"))}
EXPORT = "import sys, pathlib; pathlib.Path(sys.argv[2]).write_bytes(pathlib.Path(sys.argv[1]).read_bytes())"


def argv(output: str = "{output}", do: str = "train", **more: Any) -> dict[str, Any]:
    """Return a trainer that is the external program of the tests, whose splat is not measured by us."""
    command = [*PROGRAM, f"--output={output}"]
    return {"command": command, "settings": {"do": do}, "progress": SAYS, "metrics": UNMEASURED, **more}


def argv_trainers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return argv templates by what is special about each; `folder` is one that programs may be started in."""
    exported = {"files": "point_cloud_*.ply", "ply": "final.ply"}
    export = [sys.executable, "-c", EXPORT, "{output}/point_cloud_20.ply", "{output}/final.ply"]
    return {
        "beside": argv(),
        "globbed": argv("{output}/run/model", artifact={"ply": "run/*/point_cloud_*.ply"}),
        "in_folder": argv(working_folder=str(folder)),
        "unnamed": argv(do="train-to splat.ply", artifact={"ply": "splat.ply", "step": ""}),
        "linked": argv(do="link", artifact={"ply": "final.ply"}),
        "exported": argv(artifact={**exported, "export": export}),
        "measured": argv(metrics={"evaluate": True}),
    }


def install_programs(home: Path) -> dict[str, str]:
    """Lay the presets' stand-ins into a home folder; return the environment of a worker that has them."""
    stand_ins.install(home)
    values = {name: value for one in PRESETS for name, value in preset(one).get("env", {}).items()}
    return {"HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", **values}


def preset(name: str) -> dict[str, Any]:
    """Return the trainer of a preset as its file has it, whose splat is not measured by us."""
    told = yaml.safe_load(PRESETS[name].read_text())["trainers"][name]
    return told | {"metrics": told.get("metrics", {}) | UNMEASURED}


def make(batch: FakeBatch, folder: Path, **more: dict[str, Any]) -> FakeBatch:
    """Make a batch with a patch of each kind, named after it; further trainers are named by keywords."""
    folder.mkdir(parents=True, exist_ok=True)
    trainers = argv_trainers(folder) | {name: preset(name) for name in PRESETS} | more
    patches = {name: {"training": {"trainer": name}} for name in trainers}
    for name in PRESETS:
        patches[name]["training"]["max_steps"] = 30_000
    return batch.make("builtin", *trainers, constants=SHORT, trainers=trainers, patches=patches, **QUICK)
