"""`scripts/gate` measures the gates of a step of work, and is green only where all are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_batch import ROOT

ROW = '[[step]]\nmeasures = "{0}"\ncommand = ["python", "-c", "{1}"]\n'
SOUND = ROW.format("a sound thing", "print('figure: 3 of 3'); print('later')")
BROKEN = ROW.format("a broken thing", "print('2 of 3'); raise SystemExit(1)")


def gate(folder: Path, gates: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "scripts").mkdir()
    shutil.copy2(ROOT / "scripts/gate", folder / "scripts/gate")
    (folder / "scripts/gates.toml").write_text(gates)
    command = [sys.executable, folder / "scripts/gate", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("gates", "code", "said"),
    [
        (SOUND, 0, ["green   a sound thing", "        3 of 3\n"]),
        (SOUND + BROKEN, 1, ["green   a sound thing", "RED     a broken thing", "        2 of 3\n"]),
    ],
)
def test_a_gate_is_green_if_its_command_is(tmp_path: Path, gates: str, code: int, said: list[str]) -> None:
    done = gate(tmp_path, gates, "step")
    assert done.returncode == code, done.stderr
    assert all(words in done.stdout for words in said), done.stdout


@pytest.mark.contract
def test_words_choose_gates(tmp_path: Path) -> None:
    done = gate(tmp_path, SOUND + BROKEN, "step", "sound")
    assert (done.returncode, "broken" in done.stdout) == (0, False)


@pytest.mark.contract
@pytest.mark.parametrize(("words", "code"), [([], 0), (["unknown"], 1)])
def test_steps_are_named(tmp_path: Path, words: list[str], code: int) -> None:
    done = gate(tmp_path, SOUND, *words)
    assert (done.returncode, done.stdout) == (code, "step: 1 gates\n")
