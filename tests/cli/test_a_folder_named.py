"""What a user names: a folder, its YAML or its output folder stands for the batch, in every command that has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch import cli

REST = {"accept": "p0 --attempt 1", "adopt": "STORE", "explain": "p0", "pack": "--to STORE"}
"""What a command is not complete without."""
MISTAKE = "line 1, training.max_steps: 0: should be above 0"


def with_config(name: str = "", command: object = None) -> Iterator[str]:
    """Yield every command of the CLI that has --config."""
    command = command or typer.main.get_command(cli.app)
    for under in getattr(command, "commands", {}):
        yield from with_config(f"{name} {under}".strip(), command.get_command(None, under))
    if any(one.name == "config" for one in command.params):
        yield name


COMMANDS = sorted(with_config())


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A batch whose YAML has a mistake, which tells that it was read; commands are typed beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    Path("quarry/output").mkdir(parents=True)
    Path("quarry/splat_config.yml").write_text("training: {max_steps: 0}\n")
    return Path("quarry")


def test_the_commands_that_have_a_configuration_are_found_by_themselves() -> None:
    assert {"status", "config show", "merge", "doctor"} <= {*COMMANDS} and len(COMMANDS) >= 20


@pytest.mark.parametrize("named", ["quarry", "quarry/", "quarry/splat_config.yml"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_and_its_yaml_stand_for_the_batch(wrong: Path, command: str, named: str) -> None:
    ended = invoke(*command.split(), named, *REST.get(command, "").split())
    assert (ended.code, MISTAKE in ended.err) == (2, True), ended.err


@pytest.mark.journey  # the first `train` of a process starts its fork server beside the reading of the YAML
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_goes_before_a_usual_configuration_that_is_broken(wrong: Path, command: str) -> None:
    Path("splat_config.yml").write_text("nonsense: 1\n")
    ended = invoke(*command.split(), "quarry", *REST.get(command, "").split())
    assert (ended.code, MISTAKE in ended.err) == (2, True), ended.err


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"train"}))
def test_a_folder_without_a_yaml_gets_the_same_advice_everywhere(wrong: Path, command: str) -> None:
    Path("quarry/splat_config.yml").unlink()
    ended = invoke(*command.split(), "quarry", *REST.get(command, "").split())
    assert (ended.code, "quarry: this folder has no" in ended.err, "hint: " in ended.err) == (2, True, True), ended.err


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    """A batch in quarry/, with patches p0 and p1, and another around it, with the patch p0 alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    FakeBatch(tmp_path / "quarry").make("p0", "p1")
    (tmp_path / "quarry/output").mkdir()
    return FakeBatch(tmp_path).make("p0")


@pytest.mark.parametrize("named", ["quarry", "quarry/splat_config.yml", "quarry/output"])
def test_patches_may_follow_what_names_the_batch(two: FakeBatch, named: str) -> None:
    told = json.loads(invoke("status", named, "p1", "--json").out)
    assert [one["patch"] for one in told["patches"]] == ["p1"]


def test_a_patch_of_the_usual_batch_goes_before_a_folder_of_its_name(two: FakeBatch) -> None:
    Path("p0").mkdir()
    Path("p0/splat_config.yml").write_text("nonsense: 1\n")
    assert all(invoke("status", name, "--json").code == 0 for name in ("p0", "patches/p0/"))


def test_two_configurations_are_one_too_many(two: FakeBatch) -> None:
    assert "Give only one of them" in invoke("report", "quarry", "--config", "splat_config.yml").err
    assert (
        "not a batch folder" in invoke("report", "quarri").err
        and "Did you mean quarry" in invoke("merge", "quarri").err
    )
