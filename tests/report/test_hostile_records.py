"""Whatever stands in the records of an output folder, every command that reads them says something, and ends."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import external_program
import pytest
from command_line import invoke
from made_output import pictures

from splatbatch.files import write_json
from splatbatch.output.layout import OutputFolder
from splatbatch.processes import boot_id, start_ticks

if TYPE_CHECKING:
    from fake_batch import FakeBatch

COMMANDS = ["status --json", "status", "report", "explain p0", "explain p1", "explain p3", "plan", "train --dry-run"]
DEEP: Any = "x"
for _ in range(900):
    DEEP = [DEEP]
TOKENS = ["1e999", "-1e999", "1" + "0" * 400, str(2**63), "1e300", "-1", "NaN", '"abc"', "null", "[]", "{}", "true"]
TOKENS += ["0.5", '"\\ud800"', '"\\u001b[2J"', '"attempt-01"', '["a", {"b": [1, null]}]', json.dumps(DEEP), '{"a": 1}']
ROUNDS = [
    pytest.param(1, marks=[pytest.mark.part, pytest.mark.contract]),
    pytest.param(4, marks=pytest.mark.all),
    pytest.param(48, marks=pytest.mark.long),
]
"""Another number of mistakes in every file each time."""


@pytest.fixture
def whole(batch: FakeBatch, request: pytest.FixtureRequest) -> FakeBatch:
    """One patch trained, one failed, one of another program, one that runs; each with all the files there are.

    The gate does without what the measuring of another program's splat leaves: it loads torch.
    """
    is_measured = not request.node.get_closest_marker("part")
    argv = [sys.executable, external_program.__file__, "--steps={steps}", "--output={output}"]
    other = {
        "command": argv,
        "progress": {"step": r"step (\d+)/"},
        "metrics": {"log": {"psnr": r"PSNR ([\d.]+)"}, "evaluate": is_measured},
    }
    batch.make("p0", "p1", "p2", "p3", trainers={"other": other}, retry={"max_attempts": 2})
    batch.change(patches={"p2": {"training": {"trainer": "other"}}})
    batch.script(p0=["measure 21.5"], p1=["exit 1 CUDA error: out of memory"])
    assert invoke("train", batch=batch).code == 1
    output = OutputFolder(batch.output)
    running = output.patch("p3").attempts()[0]
    for path in (running.exit, output.patch("p3").splat, output.patch("p3").result):
        path.unlink()
    who = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": os.getpid(), "ticks": start_ticks(os.getpid())}
    write_json(running.start, {**who, "started_at": 1.0})
    lines = batch.ledger.read_text().splitlines()
    kept = [line for line in lines if not ('"p3"' in line and "attempt_ended" in line)]
    gate = {"t": 1.0, "event": "gate", "patch": "p0", "attempt": 1, "waited_s": 3.5, "reason": "busy"}
    batch.ledger.write_text("\n".join([*kept, json.dumps(gate)]) + "\n")
    for patch in ("p0", "p1"):
        attempt = output.patch(patch).attempts()[0]
        pictures(attempt, 21.5)
        write_json(attempt.go, {"gpu": None, "slot": "cpu0", "env": {}, "at": 1.0})
        samples = [{"t": i, "used_mib": 900, "temperature_c": 50, "utilisation_percent": 9} for i in range(3)]
        attempt.gpu_samples.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    colors = json.loads(output.colors.read_text())
    outlier = {"name": "img1.png", "times": 1.5, "gain": [1.5, 1.4, 1.3]}
    solved = {
        "tones": {"img1.png": [1.5, 1.4, 1.3, -0.2, 0.1]},
        "outliers": [outlier],
        "vignetting": {"1": [-0.2, 0.1]},
    }
    scene = colors["together"] | solved | {"problem": "", "residual_before": 9.0, "residual_after": 4.0}
    write_json(output.colors, colors | {"scenes": {"p1": scene}})
    return batch


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield from places(value, (*above, key))


def spoilt(line: str, dice: random.Random, mistakes: int) -> str:
    """Return a line of JSON with values replaced by tokens that no writer of JSON would write."""
    tree = json.loads(line)
    for number in range(mistakes):
        place = dice.choice([one for one in places(tree) if one] or [()])
        at = tree
        for key in place[:-1]:
            at = at[key]
        if place:
            at[place[-1]] = f"<{number}>"
    text = json.dumps(tree)
    for number in range(mistakes):
        text = text.replace(f'"<{number}>"', dice.choice(TOKENS))
    return text


def spoil(output: Path, dice: random.Random, mistakes: int) -> None:
    for path in sorted(output.rglob("*.json*")):
        if path.name.startswith("report."):
            continue
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        path.write_text("\n".join(spoilt(line, dice, mistakes) for line in lines if line.strip()) + "\n")
    record = {"host": dice.choice(["a", 1, None]), "pid": "abc", "since": [], "boot_id": 1, "ticks": {}}
    (output / "lock").write_text(spoilt(json.dumps(record), dice, mistakes))


@pytest.mark.contract  # one of its patches is of another program
@pytest.mark.parametrize("rounds", ROUNDS)
def test_no_value_in_any_record_stops_a_command_that_reads(whole: FakeBatch, tmp_path: Path, rounds: int) -> None:
    pristine = shutil.copytree(whole.output, tmp_path / "pristine")
    for seed in range(rounds):
        shutil.rmtree(whole.output)
        shutil.copytree(pristine, whole.output)
        spoil(whole.output, random.Random(seed), 1 + seed % 4)
        for command in COMMANDS:
            ended = invoke(*command.split(), batch=whole)
            assert ended.code in (0, 1), f"{seed}: {command}: {ended.err}"
            assert not set((ended.out + ended.err).encode().decode()) & {"\x1b", "\x07", "\x9b"}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def junk(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.all
def test_no_damage_to_any_file_stops_a_command_that_reads(whole: FakeBatch, tmp_path: Path) -> None:
    """Each file in turn, by one of five kinds of damage; only a report whose place is taken cannot be written."""
    pristine, dice = shutil.copytree(whole.output, tmp_path / "pristine"), random.Random(1)
    for file in sorted(path.relative_to(pristine) for path in pristine.rglob("*") if path.is_file()):
        damage = dice.choice([cut, junk, folder, loop, pipe])
        damage(whole.output / file)
        for command in ("status", "plan", "explain p1", "report"):
            ended = invoke(*command.split(), batch=whole)
            is_in_the_way = command == "report" and file.stem == "report" and damage is folder
            assert ended.code in ((6,) if is_in_the_way else (0, 1)), f"{file}: {damage}: {command}: {ended.err}"
            assert str(file) in ended.err or not is_in_the_way
        shutil.rmtree(whole.output)
        shutil.copytree(pristine, whole.output)


@pytest.mark.all
def test_no_value_in_any_record_stops_a_batch(whole: FakeBatch) -> None:
    spoil(whole.output, random.Random(1), 3)
    (whole.output / "lock").write_text('{"host": "here", "pid": "abc", "sequence": "1e999"}')
    whole.script(p1=["train"], p3=["train"])
    whole.constants["splatbatch.output.workers.SILENCE_S"] = 2  # of the worker that nothing is known of
    ended = invoke("train", batch=whole)
    assert ended.code == 0, ended.err
