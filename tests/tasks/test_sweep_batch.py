"""A sweep as one batch: every combination is a task of its own, and one that fails is only that one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import external_program
import pytest
from command_line import invoke

from splatbatch.config import load
from splatbatch.tasks.batch import open_batch

if TYPE_CHECKING:
    from fake_batch import FakeBatch

ARGUMENT = "exit 2 usage: train.py\ntrain.py: error: unrecognized arguments: --cap-max"
SEEDS = {"variants": [{"name": "one", "set": {"training.seed": 1}}, {"name": "two", "set": {"training.seed": 2}}]}


def started(batch: FakeBatch) -> list[str]:
    return [event["patch"] for event in batch.events("attempt_started")]


def test_every_patch_is_trained_under_every_combination_in_folders_of_their_own(batch: FakeBatch) -> None:
    batch.make("p0", "p1", sweep={"matrix": {"training.seed": [1, 2], "training.sh_degree": [0, 1]}})
    ended = invoke("train", batch=batch)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "8 of 8 splats trained")
    names = [f"{patch}@{variant}" for patch in ("p0", "p1") for variant in load(batch.config).variants]
    assert started(batch) == names
    assert {batch.result(name)["patch"] for name in names} == set(names)


def test_a_value_added_later_trains_only_what_is_new(batch: FakeBatch) -> None:
    batch.make("p0", sweep={"matrix": {"training.seed": [1, 2]}})
    invoke("train", batch=batch)
    before = started(batch)
    batch.change(sweep={"matrix": {"training.seed": [3, 2, 1]}, "variants": [{"set": {"training.sh_degree": 0}}]})
    assert invoke("train", batch=batch).code == 0
    assert len(before) == 2
    assert [name.rpartition("_")[0] for name in started(batch)[2:]] == ["p0@seed-3", "p0@sh_degree-0"]


def test_a_combination_that_fails_leaves_its_evidence_and_the_others_go_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1", sweep=SEEDS).script(**{"p0@one": [ARGUMENT], "p1@one": [ARGUMENT]})
    ended = invoke("train", batch=batch)
    assert ended.code == 1
    assert "2 of 4 splats trained; failed: p0@one, p1@one" in ended.out
    assert "unrecognized arguments" in invoke("explain", "p0@one", batch=batch).out


def test_what_lies_in_the_machine_stops_a_sweep_too(batch: FakeBatch) -> None:
    words = "exit 1 ModuleNotFoundError: No module named 'gsplat'"
    batch.make("p0", "p1", "p2", sweep=SEEDS).script(**{f"p{i}@{v}": [words] for i in range(3) for v in ("one", "two")})
    assert invoke("train", batch=batch).code == 1
    assert started(batch) == ["p0@one", "p0@two", "p1@one"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--only", "variant=two"], ["p0@two", "p1@two"]),
        (["--only", "variant=*o*", "--only", "patch=p1"], ["p1@one", "p1@two"]),
        (["p0"], ["p0@one", "p0@two"]),
        (["p1@one"], ["p1@one"]),
    ],
)
def test_a_part_of_a_sweep_is_named_by_variant_or_by_patch(
    batch: FakeBatch, options: list[str], names: list[str]
) -> None:
    batch.make("p0", "p1", sweep=SEEDS)
    planned = invoke("train", "--dry-run", *options, batch=batch).out.splitlines()
    assert [line.partition(": train: ")[0] for line in planned if ": train: " in line] == names


def test_the_part_that_is_named_is_all_that_is_trained(batch: FakeBatch) -> None:
    ended = invoke("train", "--only", "variant=two", batch=batch.make("p0", "p1", sweep=SEEDS))
    assert (ended.code, started(batch)) == (0, ["p0@two", "p1@two"])


def test_a_combination_is_trained_again_by_its_name(batch: FakeBatch) -> None:
    batch.make("p0", sweep=SEEDS)
    invoke("train", batch=batch)
    assert invoke("retry", "--patch", "p0@two", "--force", "--set", "training.sh_degree=1", batch=batch).code == 0
    assert (started(batch)[-1], batch.result("p0@two")["changes"]) == ("p0@two", {"training.sh_degree": 1})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--only", "variant=three"], ["--only variant=three: there is no such variant", "Known: one, two."]),
        (["train", "--only", "patch=p7"], ["--only patch=p7: there is no such patch", "Known: p0, p1."]),
        (["train", "--only", "two"], ["--only two: not of the form variant=NAME or patch=NAME"]),
        (["train", "p0@twoo"], ["p0@twoo: no such patch", "Did you mean p0@two?"]),
        (["explain", "p0", "--log"], ["p0: has 2 variants", "Name one of p0@one, p0@two."]),
        (["explain", "p0"], ["p0: has 2 variants"]),
    ],
)
def test_what_a_sweep_does_not_have_is_said(batch: FakeBatch, arguments: list[str], words: list[str]) -> None:
    ended = invoke(*arguments, batch=batch.make("p0", "p1", sweep=SEEDS))
    assert ended.code == 2
    for one in words:
        assert one in ended.err


def test_without_a_sweep_there_is_no_variant_to_choose(batch: FakeBatch) -> None:
    ended = invoke("train", "--only", "variant=x", batch=batch.make("p0"))
    assert (ended.code, "the YAML has no sweep" in ended.err) == (2, True)


def test_a_patch_is_audited_once_and_refused_under_every_variant(batch: FakeBatch) -> None:
    batch.make("p0", "p1", sweep=SEEDS)
    (batch.folder / "patches/p1/sparse/0/points3D.txt").write_text("")
    assert json.loads(invoke("verify-dims", "--json", batch=batch).out)["patches"] == ["p0", "p1"]
    ended = invoke("train", batch=batch)
    assert "2 of 4 splats trained; refused: p1@one, p1@two" in ended.out


def test_a_patch_is_refused_only_under_the_trainer_that_cannot_take_it(batch: FakeBatch) -> None:
    fussy = {"command": ["x"], "cameras": {"models": ["FISHEYE"]}}
    trainers = {"matrix": {"training.trainer": ["gsplat", "fussy"]}}
    batch.make("p0", "p1", trainers={"fussy": fussy}, sweep=trainers)
    planned = json.loads(invoke("plan", "--json", batch=batch).out)["patches"]
    assert [row["decision"] for row in planned] == ["train", "refuse"] * 2
    assert json.loads(invoke("verify-dims", "--json", batch=batch).out)["bad_patches"] == ["p0", "p1"]


@pytest.mark.contract
def test_settings_of_a_foreign_program_are_compared_like_ours(batch: FakeBatch) -> None:
    command = [sys.executable, external_program.__file__, "--steps={steps}", "--output={output}", "--do={setting.do}"]
    program = {"command": command, "settings": {"do": "train"}, "artifact": {"ply": "point_cloud_*.ply"}}
    measured = {"metrics": {"evaluate": False, "log": {"psnr": r"PSNR ([\d.]+)"}}}
    matrix = {"matrix": {"setting.do": ["train", "train-then-die SIGSEGV", "exit 3 no such option"]}}
    batch.make("p0", training={"trainer": "foreign"}, trainers={"foreign": program | measured}, sweep=matrix)
    ended = invoke("train", batch=batch)
    assert "2 of 3 splats trained; failed: p0@do-exit-3-no-such-option_" in ended.out
    sweep = json.loads((batch.output / "report.json").read_text())["sweep"]
    figures = {row["settings"]["setting.do"]: row["mean"]["psnr"] for row in sweep["variants"]}
    assert figures["train"] == figures["train-then-die SIGSEGV"] == 21.5  # what the program says of itself
    assert figures["exit 3 no such option"] is None


def test_no_model_is_read_to_decide_on_what_was_never_trained(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatbatch.tasks.input_files.InputFiles.now", lambda *_: pytest.fail("read"))
    assert len(open_batch(batch.make("p0", "p1", sweep=SEEDS).config).states({})) == 4


def test_a_combination_whose_settings_change_is_stale_alone(batch: FakeBatch) -> None:
    batch.make("p0", sweep=SEEDS)
    invoke("train", batch=batch)
    variants = [SEEDS["variants"][0], {"name": "two", "set": {"training.seed": 3}}]
    batch.change(sweep={"variants": variants})
    planned = json.loads(invoke("plan", "--json", batch=batch).out)["patches"]
    assert [row["decision"] for row in planned] == ["skip", "train"]
