"""An output folder that version 0.2.0 wrote: this version reads it, trains nothing anew, and goes on from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended, invoke
from fake_batch import ROOT

from splatbatch.machine import supervisors
from splatbatch.output.records.result import Result
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.fingerprint import fingerprint

EARLIER = ROOT / "tests/samples/trained-0.2.0"
ALL = ("backdrop", "p0", "p1")


class Reef:
    """A copy of the folder, as a clone makes one: all files have new times, and modes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(shutil.copytree(EARLIER, folder, copy_function=shutil.copyfile))
        self.patches = self.folder / "output/patches"

    def run(self, *arguments: str) -> Ended:
        ended = invoke(*arguments, "--config", str(self.folder / "splat_config.yml"))
        assert "Traceback" not in ended.out + ended.err
        return ended

    def json(self, *arguments: str) -> Any:
        ended = self.run(*arguments, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def states(self) -> dict[str, tuple[Any, ...]]:
        named = ("state", "attempt", "step", "num_gaussians")
        return {one["patch"]: tuple(one[key] for key in named) for one in self.json("status")["patches"]}

    def attempts(self) -> list[str]:
        return sorted(f"{path.parent.name}/{path.name}" for path in self.patches.glob("*/attempt-*"))

    def accepted(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.patches)): path.read_bytes() for path in self.patches.glob("*/accepted/*")}


@pytest.fixture
def reef(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reef:
    monkeypatch.setattr(supervisors, "start_ahead", lambda *_: None)  # nothing is trained
    return Reef(tmp_path / "reef")


STATES = {
    "backdrop": ("trained", "attempt-01", 30, 55),
    "p0": ("trained", "attempt-02", 50, 75),
    "p1": ("trained", "attempt-02", 30, 80),
}


def test_status_says_what_the_earlier_version_trained(reef: Reef) -> None:
    assert reef.states() == STATES
    said = reef.run("status").out
    assert "2 of 2 patches and the backdrop trained" in said
    assert ("12.97" in said, "14.30" in said, "18.63" in said) == (True, True, True)


def test_plan_skips_what_the_earlier_version_trained(reef: Reef) -> None:
    assert {one["patch"]: one["decision"] for one in reef.json("plan")["patches"]} == dict.fromkeys(ALL, "skip")


def test_train_trains_nothing_of_the_earlier_version_again(reef: Reef) -> None:
    before = reef.attempts(), reef.accepted()
    ended = reef.run("train")
    assert (ended.code, "2 of 2 patches and the backdrop trained" in ended.out) == (0, True), ended.err
    assert (reef.attempts(), reef.accepted()) == before
    assert reef.states() == STATES


def test_another_photograph_makes_a_splat_of_the_earlier_version_stale(reef: Reef) -> None:
    photo = reef.folder / "images/left/0005.jpg"
    photo.write_bytes(photo.read_bytes() + b"\0")
    decided = {one["patch"]: one["decision"] for one in reef.json("plan")["patches"]}
    assert (decided["p0"], decided["p1"]) == ("train", "train")


def test_no_patch_of_the_earlier_version_is_to_be_tried_again(reef: Reef) -> None:
    ended = reef.run("retry", "--failed")
    assert (ended.code, "no failed patch to retry" in ended.out + ended.err) == (0, True)


def test_explain_knows_the_attempt_that_failed_in_the_earlier_version(reef: Reef) -> None:
    said = reef.run("explain", "p1").out
    assert "failed: host memory ran out (host_oom) in phase train" in said
    assert "then: retry after 31 s with training.workers=4" in said
    rows = [line.split()[:2] for line in said.splitlines()[-2:]]
    assert rows == [["1", "failed:"], ["2", "trained"]]


def test_merge_joins_the_splats_of_the_earlier_version(reef: Reef) -> None:
    reef.folder.joinpath("output/scene/splat.ply").unlink()
    found = {one["patch"]: one["num_gaussians"] for one in reef.json("merge")["parts"]}
    assert found == {"p0": 74, "p1": 72, "backdrop": 0}


def test_the_report_shows_figures_and_failures_of_the_earlier_version(reef: Reef) -> None:
    ended = reef.run("report")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads((reef.folder / "output/report.json").read_text())
    psnr = {one["patch"]: round(one["psnr"], 2) for one in found["patches"]}
    assert psnr == {"backdrop": 18.63, "p0": 12.97, "p1": 14.3}
    assert "Killed without a word" in (reef.folder / "output/report.html").read_text()


def test_the_attempt_before_can_be_accepted_and_the_other_again(reef: Reef) -> None:
    assert reef.run("accept", "p0", "--attempt", "1").code == 0
    assert reef.states()["p0"] == ("trained", "attempt-01", 30, 75)
    assert reef.run("accept", "p0", "--attempt", "2").code == 0
    assert reef.states() == STATES
    assert reef.run("train").code == 0
    assert [name for name in reef.attempts() if name.startswith("p0/")] == ["p0/attempt-01", "p0/attempt-02"]


def test_hashes_of_settings_inputs_and_borders_are_those_of_the_earlier_version(reef: Reef) -> None:
    for task in open_batch(reef.folder / "splat_config.yml").tasks:
        now, then = fingerprint(task.patch, task.recipe), Result.read(reef.patches / task.name / "accepted/1.json")
        assert then is not None
        known = then.trained_from
        assert known.recipe in task.yaml_settings.acceptable_hashes, task.name
        assert (now.inputs, now.border) == (known.inputs, known.border), task.name
        assert (now.backdrop, now.offset, now.tones) == (known.backdrop, known.offset, known.tones), task.name


def test_what_this_version_writes_has_a_format_and_what_the_earlier_one_wrote_has_none(reef: Reef) -> None:
    assert format_of(reef.patches / "p0/result.json") is None
    assert (reef.run("accept", "p0", "--attempt", "1").code, reef.run("merge").code) == (0, 0)
    written = ("patches/p0/accepted/3.json", "patches/p0/result.json", "scene/merge.json", "report.json")
    assert [format_of(reef.folder / "output" / name) for name in written] == [1, 1, 1, 1]


def format_of(path: Path) -> int | None:
    return json.loads(path.read_text()).get("format")


LATER = {
    "output/patches/p0/result.json": ("status", "plan", "train", "merge", "report", "retry p0", "explain p0"),
    "output/patches/p0/accepted/2.json": ("status", "train", "accept p0 --attempt 1"),
    "output/frame.json": ("report", "retry p0 --set training.max_steps=9"),
    "output/colors.json": ("report",),
    "output/scene/merge.json": ("merge", "report"),
    "output/scene/evaluation.json": ("report",),
    "patches/partition.json": ("status", "train"),
}


@pytest.mark.parametrize(("name", "command"), [(name, one) for name, commands in LATER.items() for one in commands])
def test_a_record_of_a_later_version_is_refused_where_it_would_be_misread(reef: Reef, name: str, command: str) -> None:
    path = reef.folder / name
    if name.endswith("accepted/2.json"):
        (reef.patches / "p0/result.json").unlink()  # else it is not read
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    before = reef.attempts(), reef.accepted(), path.read_bytes()
    ended = reef.run(*command.split())
    assert (ended.code, f"{path}: written by a later version of splatbatch (format 2;" in ended.err) == (6, True)
    assert (reef.attempts(), reef.accepted(), path.read_bytes()) == before


@pytest.mark.parametrize("name", ["metrics.json", "exit.json", "job.json"])
def test_a_format_that_a_program_wrote_into_its_attempt_stops_nothing(reef: Reef, name: str) -> None:
    path = reef.patches / "p1/attempt-02" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    assert reef.states() == STATES
    assert [reef.run(command).code for command in ("train", "report")] == [0, 0]


@pytest.mark.all
def test_a_retry_goes_on_where_the_earlier_version_stopped(reef: Reef) -> None:
    ended = reef.run("retry", "p1", "--set", "training.max_steps=35")
    assert (ended.code, "p1: attempt 3 trained" in ended.err) == (0, True), ended.out + ended.err
    assert reef.attempts()[-1] == "p1/attempt-03"
    assert set(reef.accepted()) >= {"p1/accepted/1.json", "p1/accepted/2.json"}
