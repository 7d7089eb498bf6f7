"""A night of forty patches that another program trains: what its report says in the morning, and after retries."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from browser import Watched
from command_line import parse
from external_runs import RUN
from fake_batch import FakeBatch

from splatbatch.failures.advice import IF_NOT, OR_TRY, TRY
from splatbatch.output.layout import OutputFolder

pytestmark = pytest.mark.all
NAMES = [f"p{number}" for number in range(40)]
OUT_OF_MEMORY = "exit 1 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
MENDED = {f"p{number}": [OUT_OF_MEMORY] for number in (3, 13, 33)}
"""Patches that the ladder of the program mends."""
FAILING = {
    "p7": OUT_OF_MEMORY,
    "p11": "exit 1 ValueError: unknown camera model FOV",
    "p19": "die SIGSEGV",
    "p27": "spoil nan",
    "p31": "exit 2 usage: train [--steps N]",
}
PROGRAM: Mapping[str, Any] = {
    **RUN,
    "metrics": {},
    "progress": {"step": r"step (\d+)/", "loss": r"loss (\S+)", "num_gaussians": r"gaussians ([\d,]+)"},
    "ladders": {"gpu_memory": [{"training.max_steps": "x0.5"}]},
}
WIDE = 1440
SIZES = ((390, 844), (WIDE, 900))
MOST_SCREENS = 6
OPEN = "[...document.querySelectorAll('details.patch[open] .name')].map(one => one.textContent)"
PICTURED = """[...document.querySelectorAll('details.patch')].filter(one => one.querySelector('.views img'))
.map(one => one.querySelector('.name').textContent)"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """The batch in the morning: some patches were mended by a retry of the night itself, some have failed for good."""
    batch = FakeBatch(tmp_path_factory.mktemp("night"))
    script = batch.folder / "as.json"
    script.write_text(json.dumps(MENDED | {patch: 9 * [do] for patch, do in FAILING.items()}))
    program = {**PROGRAM, "settings": {"do": f"as-scripted {script}"}}
    batch.make(*NAMES, training={"trainer": "foreign"}, trainers={"foreign": program}, executor={"cpu_slots": 4})
    assert batch.run("train").returncode == 1
    return batch


@pytest.fixture(scope="module")
def retried(night: FakeBatch) -> FakeBatch:
    """The batch after retries by hand: one of the failed patches is trained, the others have failed again."""
    script = night.folder / "as.json"
    script.write_text(json.dumps(json.loads(script.read_text()) | {"p19": []}))
    assert night.run("retry", "--failed").returncode == 1
    return night


def report_of(batch: FakeBatch) -> dict[str, Any]:
    return json.loads((batch.output / "report.json").read_text())


def in_state(batch: FakeBatch, state: str) -> list[str]:
    return [patch["patch"] for patch in report_of(batch)["patches"] if patch["state"] == state]


def typed(batch: FakeBatch) -> Iterator[str]:
    """Yield what the report of a batch tells people to type."""
    for item in report_of(batch)["todo"]:
        yield from item["command"].split(" && ")
    for patch in report_of(batch)["patches"]:
        told, _, further = patch["advice"].partition(OR_TRY)
        tried, _, otherwise = further.partition(IF_NOT)
        for words in (tried, told.partition(TRY)[2], otherwise.partition(TRY)[2]):
            yield from filter(None, words.partition(" (")[0].split("; "))


def test_each_failed_patch_has_advice_that_the_command_line_takes(night: FakeBatch) -> None:
    assert in_state(night, "failed") == list(FAILING) and len(in_state(night, "trained")) == len(NAMES) - len(FAILING)
    commands = [shlex.split(line) for line in typed(night)]
    ours = [words[1:] for words in commands if words[0] == "splatbatch"]
    for words in ours:
        parse(words)
    assert {name for words in ours for name in words} >= set(FAILING)


def test_every_phase_has_a_clock_and_the_night_its_time(night: FakeBatch) -> None:
    output = OutputFolder(night.output)
    for name in in_state(night, "trained"):
        lines = [json.loads(line) for line in output.patch(name).attempts()[-1].progress.read_text().splitlines()]
        begun = {line["phase"]: line["seconds"] for line in lines if line.get("seconds") is not None}
        assert set(begun) >= {"train", "measuring"} and begun["measuring"] == 0
    page = output.report("html").read_text()
    assert "ran " in page and "attempts on 4 GPU or CPU slots" in page


@pytest.mark.parametrize("when", ["night", "retried"])
def test_the_page_is_short_and_opens_what_has_failed(
    chromium: Any, when: str, request: pytest.FixtureRequest, artifacts: Path
) -> None:
    batch = request.getfixturevalue(when)
    for width, height in SIZES:
        watched = Watched(chromium.new_page(viewport={"width": width, "height": height}))
        watched.open(OutputFolder(batch.output).report("html"))
        watched.shoot(artifacts, f"{when}-{width}", full_page=True)
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width and watched.errors == []
        assert set(watched.page.evaluate(OPEN)) == set(in_state(batch, "failed"))
        assert set(watched.page.evaluate(PICTURED)) >= set(in_state(batch, "trained"))
        assert width == WIDE or watched.page.evaluate("document.documentElement.scrollHeight") <= MOST_SCREENS * height
        watched.page.close()
