"""Batches of an external trainer: ladder, staleness, what is accepted, which programs are here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from command_line import invoke
from external_runs import RUN, SAYS, STEPLESS

from splatbatch.outcome import Splat
from splatbatch.splats import check_splat

if TYPE_CHECKING:
    from fake_batch import FakeBatch


def test_a_batch_climbs_the_ladder_of_its_program(foreign_batch: FakeBatch) -> None:
    rungs = [{"arguments": ["--do=exit 1 CUDA out of memory"]}, {"arguments": ["--do=train"]}]
    out_of_memory = {**RUN, "settings": {"do": "exit 1 CUDA out of memory"}, "ladders": {"gpu_memory": rungs}}
    foreign_batch.change(trainers={"foreign": out_of_memory})
    ended = foreign_batch.run("train")
    assert ended.returncode == 0, ended.stdout
    words = ["--do=exit 1 CUDA out of memory", "--do=train"]
    assert foreign_batch.result("p1")["changes"] == {"arguments": words}
    assert foreign_batch.result("p1")["attempts"] == 3


def test_a_trained_batch_is_not_trained_again_unless_the_program_is_told_something_else(
    foreign_batch: FakeBatch,
) -> None:
    assert foreign_batch.run("train").returncode == 0
    assert (foreign_batch.output / "patches/p0/splat.ply").stat().st_size > 0
    assert invoke("plan", batch=foreign_batch).out.splitlines() == ["p0: skip: trained", "p1: skip: trained"]
    foreign_batch.change(trainers={"foreign": {**RUN, "settings": {"do": "ask"}}})
    assert "p0: train: settings have changed" in invoke("plan", batch=foreign_batch).out


@pytest.mark.parametrize("outside", [False, True])
def test_the_accepted_splat_is_a_file_of_its_own_also_if_the_program_left_a_link(
    foreign_batch: FakeBatch, outside: bool
) -> None:
    (foreign_batch.folder / "elsewhere").mkdir()
    where = f" {foreign_batch.folder / 'elsewhere'}" if outside else ""
    run = RUN | {"settings": {"do": f"link{where}"}, "artifact": {"ply": "final.ply"}, "progress": SAYS}
    foreign_batch.change(trainers={"foreign": run})
    assert foreign_batch.run("train", "p0").returncode == 0
    accepted = foreign_batch.output / "patches/p0/splat.ply"
    assert not accepted.is_symlink()
    assert isinstance(check_splat(accepted), Splat)
    assert outside is not any(accepted.samefile(path) for path in accepted.parent.glob("attempt-*/output/*.ply"))


def test_a_snapshot_makes_no_batch_say_trained(foreign_batch: FakeBatch) -> None:
    run = RUN | {"settings": {"do": "snapshot exit"}, "artifact": STEPLESS, "progress": SAYS}
    foreign_batch.change(trainers={"foreign": run})
    ended = foreign_batch.run("train", "p0")
    assert ended.returncode == 1
    assert "0 of 1 requested patches trained" in ended.stdout
    assert not (foreign_batch.output / "patches/p0/splat.ply").exists()


def test_a_sweep_compares_settings_of_a_program(foreign_batch: FakeBatch) -> None:
    foreign_batch.change(sweep={"matrix": {"setting.do": ["train", "ask"]}})
    assert foreign_batch.run("train", "p0").returncode == 0
    trained = [event["patch"] for event in foreign_batch.events("attempt_ended") if event["outcome"] == "trained"]
    assert sorted(name.partition("_")[0] for name in trained) == ["p0@base", "p0@do-ask"]


def test_a_program_that_is_not_there_ends_the_command_with_4(foreign_batch: FakeBatch) -> None:
    foreign_batch.change(trainers={"foreign": {**RUN, "command": ["no-such-program"]}})
    ended = invoke("train", batch=foreign_batch)
    assert ended.code == 4
    assert "no-such-program: not found on PATH" in ended.err


def test_trainers_lists_ours_the_configured_and_the_presets(foreign_batch: FakeBatch) -> None:
    listed = json.loads(invoke("doctor", "--trainers", "--json", batch=foreign_batch).out)["trainers"]
    by_name = {one["name"]: one for one in listed}
    assert (by_name["gsplat"]["origin"], by_name["gsplat"]["found"]) == ("ours", True)
    assert (by_name["foreign"]["origin"], by_name["foreign"]["found"]) == ("configured", True)
    assert (by_name["brush"]["origin"], by_name["brush"]["missing"]) == ("preset", ["brush-cli: not found on PATH"])
    assert yaml.safe_load(Path(by_name["brush"]["file"]).read_text())["training"]["trainer"] == "brush"


def test_trainers_needs_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    assert os.linesep.join(invoke("doctor", "--trainers").out.splitlines()[1:]).startswith("gsplat")


def test_an_attempt_with_the_settings_of_the_yaml_is_not_unlike_it(foreign_batch: FakeBatch) -> None:
    assert foreign_batch.run("train", "p0").returncode == 0
    attempts = json.loads(invoke("explain", "p0", "--json", batch=foreign_batch).out)["attempts"]
    assert [one["unlike_yaml"] for one in attempts] == [{}]


def test_no_advice_names_a_setting_that_the_program_does_not_read_and_each_says_where_to_look(
    foreign_batch: FakeBatch,
) -> None:
    out_of_memory = {**RUN, "settings": {"do": "exit 1 CUDA out of memory"}}
    foreign_batch.change(trainers={"foreign": out_of_memory})
    for command in ("train", "retry"):
        foreign_batch.run(command, "p0")
    advice = [event["diagnosis"]["advice"] for event in foreign_batch.events("attempt_ended")]
    assert len(advice) == 4 and "cuda_oom" in foreign_batch.run("explain", "p0").stdout
    assert not any("--set" in one or "cap_max" in one for one in advice)
    typed = [step for one in advice for step in one.partition(" Try: ")[2].split("; ") if step]
    assert typed == 4 * ["splatbatch explain p0 --log"] and all("See line 1 of the log" in one for one in advice)
    assert "then change trainers.foreign.command, the scene or the machine." in advice[-1]
    report = json.loads((foreign_batch.output / "report.json").read_text())
    assert "--set" not in json.dumps(report["todo"])


def test_a_retry_under_settings_that_the_program_does_not_read_is_refused_with_those_it_does(
    foreign_batch: FakeBatch,
) -> None:
    ended = invoke("retry", "p0", "--set", "training.cap_max=500000", batch=foreign_batch)
    assert ended.code == 2 and "--set training.cap_max: the command of foreign" in ended.err
    assert "It reads: " in ended.err and "setting.do, training.max_steps" in ended.err
    both = ("--set", "training.trainer=gsplat", "--set", "training.cap_max=500000")
    assert invoke("retry", "p0", *both, batch=foreign_batch).code == 0
