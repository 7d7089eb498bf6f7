"""What commands print with --json: by a schema that is published, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from fake_batch import FakeBatch
from jsonschema import Draft202012Validator, ValidationError
from published_shapes import PUBLISHED, checked
from typer.main import get_command

from splatbatch.cli.app import app
from splatbatch.cli.schema import printed, schema_of


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """A batch after a bad night: one trained, one failed for good, one refused. No test changes it."""
    batch = FakeBatch(tmp_path_factory.mktemp("night"))
    lines = ["exit 1 CUDA error: out of memory"] * 5
    batch.make("p0", "p1", "p2", patches={"p1": {"training": {"seed": 7}}}).script(p1=lines)
    (batch.folder / "patches/p2/sparse/0/points3D.txt").unlink()
    batch.run("train")
    return batch


COMMANDS = [
    ("plan", "plan"),
    ("status", "status"),
    ("status", "status p1"),
    ("verify-dims", "verify-dims --colors"),
    ("explain", "explain p0"),
    ("explain", "explain p1"),
    ("explain", "explain p2"),
    ("explain", "explain {output}/patches/p1/attempt-01/train.log"),
    pytest.param("doctor", "doctor", marks=pytest.mark.all),
    ("doctor", "doctor --trainers"),
    ("report", "report"),
    ("clean", "clean --dry-run"),
    ("publish", "publish p0 --as ply --to {output}-published"),
    ("config-show", "config show"),
]


@pytest.mark.parametrize(("command", "arguments"), COMMANDS)
def test_what_is_printed_is_as_published(night: FakeBatch, command: str, arguments: str) -> None:
    ended = invoke(*arguments.format(output=night.output).split(), "--json", batch=night)
    assert checked(command, ended.out)


def test_what_is_running_is_as_published(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["hang"])
    night = batch.beside("train")
    night.until(lambda: "attempt 1 started" in night.said)
    for command in ("status", "report"):
        checked(command, invoke(command, "--json", batch=batch).out)
    explained = checked("explain", invoke("explain", "p0", "--json", batch=batch).out)
    assert (explained["status"]["state"], explained["attempts"][0]["outcome"]) == ("running", None)


@pytest.mark.parametrize("command", [*printed(), "config show"])
def test_the_published_schema_is_that_of_this_version(command: str) -> None:
    path = PUBLISHED / f"{command.replace(' ', '-')}.schema.json"
    assert json.loads(path.read_text()) == json.loads(invoke("config", "schema", *command.split(maxsplit=0)).out)
    Draft202012Validator.check_schema(schema_of(command))


def test_every_command_that_prints_json_has_a_schema() -> None:
    root: Any = get_command(app)
    commands = {**root.commands, **{f"config {name}": one for name, one in root.commands["config"].commands.items()}}
    printing = {name for name, one in commands.items() if any("--json" in option.opts for option in one.params)}
    assert printing == {*printed(), "config show"}
    assert sorted(path.name for path in PUBLISHED.iterdir()) == sorted(
        f"{name.replace(' ', '-')}.schema.json" for name in [*printed(), "config show"]
    )


def test_what_lacks_a_field_or_has_it_otherwise_is_not_as_published(night: FakeBatch) -> None:
    record = json.loads(invoke("status", "--json", batch=night).out)
    validator = Draft202012Validator(schema_of("status"))
    for spoilt in ({**record, "summary": 3}, {key: record[key] for key in record if key != "patches"}):
        with pytest.raises(ValidationError):
            validator.validate(spoilt)
    record["patches"][0]["state"] = "fine"
    assert not validator.is_valid(record)


def test_an_explanation_says_what_is_set_otherwise_and_what_happened(night: FakeBatch) -> None:
    told = json.loads(invoke("explain", "p1", "--json", batch=night).out)
    assert told["set_otherwise"] == [{"key": "training.seed", "value": 7, "usual": 42, "where": "in the batch"}]
    assert told["cause_in_words"] == "GPU memory ran out (cuda_oom)"
    assert [one["outcome"] for one in told["attempts"]] == ["failed"] * len(told["attempts"])


def test_an_unknown_schema_is_a_mistake() -> None:
    ended = invoke("config", "schema", "nothing")
    assert (ended.code, "Available: " in ended.err) == (2, True)


def test_the_folder_of_schemas_is_where_the_documents_say() -> None:
    assert Path("docs/json/status.schema.json").name in {path.name for path in PUBLISHED.iterdir()}
