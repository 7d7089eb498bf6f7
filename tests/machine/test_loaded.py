"""A program that a fork server has loaded runs as one that was started by its name, but begins at once."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import PATIENCE_S, alive, wait_for

from splatbatch import processes
from splatbatch.files import read_json
from splatbatch.machine import supervisors
from splatbatch.machine.supervisors import Supervisors
from splatbatch.output.attempt_folder import AttemptFolder

PROGRAM = """
import json, os, sys, time
from pathlib import Path
BY = os.getpid()
os.environ.setdefault("OF_PROGRAM", "added")
def run():
    argv = Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode().split("\\0")
    marker = Path("/proc/self/environ").read_bytes().split(b"\\0")
    facts = {"argv": argv, "args": sys.argv[1:], "cwd": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
             "parent": os.getppid(), "given": os.environ.get("GIVEN"), "added": os.environ.get("OF_PROGRAM"),
             "is_marked": any(one.startswith(b"SPLATBATCH_ATTEMPT=") for one in marker)}
    Path("facts.json").write_text(json.dumps({**facts, "is_loaded": BY != os.getpid(), "pid": os.getpid()}))
    print("said so", flush=True)
    time.sleep(float(sys.argv[1]))
    raise SystemExit(3)
if __name__ == "__main__":
    run()
"""


class Loading:
    """Starts attempts by a server that has loaded a small program."""

    def __init__(self, root: Path) -> None:
        processes.adopt_orphans()
        self.root, self.num, self.supervisors = root, 0, Supervisors()

    def start(self, *argv: str, module: str = "small") -> tuple[AttemptFolder, supervisors.Child]:
        self.num += 1
        folder = AttemptFolder(self.root / f"attempt-{self.num:02d}")
        folder.path.mkdir()
        command = (sys.executable, "-m", module, *argv)
        limits = {"wall_s": 60.0, "grace_s": 0.3}
        folder.job.write_text(json.dumps({"argv": command, "env": {"GIVEN": "this"}, "limits": limits}))
        return folder, self.supervisors.start(folder)

    def facts(self, *argv: str, module: str = "small") -> dict[str, object]:
        folder, child = self.start(*argv, module=module)
        child.wait(PATIENCE_S)
        own = json.loads((folder.path / "facts.json").read_text())
        is_child = own.pop("parent") == child.pid
        where = Path(own.pop("cwd")) == folder.path
        end = read_json(folder.exit) or {}
        own.pop("pid")
        return {**own, "argv": own["argv"][1:], "is_child": is_child, "is_there": where, "code": end["code"]}


@pytest.fixture
def loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    for name in ("small", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "__main__.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(supervisors, "_AHEAD", [supervisors._Server.start("small", "absent")])
    loading = Loading(tmp_path)
    yield loading
    loading.supervisors.close()


@pytest.mark.contract
def test_a_loaded_program_runs_as_one_that_was_started_by_its_name(loading: Loading) -> None:
    loaded, by_name = loading.facts("0"), loading.facts("0", module="other")
    assert loaded.pop("argv") == ["-m", "small", "0"]
    assert by_name.pop("argv") == ["-m", "other", "0"]
    assert loaded.pop("is_loaded")
    assert not by_name.pop("is_loaded")
    assert loaded == by_name
    assert loaded["code"] == 3


@pytest.mark.all
def test_what_a_loaded_program_says_is_in_its_log(loading: Loading) -> None:
    folder, child = loading.start("0")
    child.wait(PATIENCE_S)
    assert folder.log.read_text().splitlines()[-1] == "said so"


@pytest.mark.contract
def test_a_loaded_program_dies_with_its_supervisor(loading: Loading) -> None:
    folder, child = loading.start("60")
    wait_for((folder.path / "facts.json").exists)
    wait_for(lambda: (folder.path / "facts.json").read_text() != "")
    own = json.loads((folder.path / "facts.json").read_text())
    os.kill(child.pid, signal.SIGKILL)
    child.wait(PATIENCE_S)
    wait_for(lambda: not alive(own["pid"]))


@pytest.mark.all
def test_one_that_cannot_be_loaded_is_started_by_its_name_and_says_why(loading: Loading) -> None:
    folder, child = loading.start(module="absent")
    assert child.wait(PATIENCE_S) == 1
    assert "No module named absent" in folder.log.read_text()


def test_nothing_is_loaded_ahead_for_a_yaml_that_names_another_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splatbatch.cli.train import load_training

    started: list[str] = []
    monkeypatch.setattr(supervisors, "start_ahead", started.append)
    for name, text in (("ours.yml", "training: {max_steps: 1}"), ("theirs.yml", "trainer: nerfstudio")):
        (tmp_path / name).write_text(text)
        load_training(tmp_path / name)
    load_training(tmp_path / "absent.yml")
    assert started == ["splatbatch.training"]
