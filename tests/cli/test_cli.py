"""The command line from the outside: exit codes, pipes and terminals, and what every command says and writes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from command_line import invoke, on_terminal
from slowness import slowness

from splatbatch import __version__
from splatbatch.config import load
from splatbatch.monitor import console

if TYPE_CHECKING:
    from fake_batch import FakeBatch

QUARRY = Path(__file__).resolve().parents[2] / "examples/quarry"
SPLATBATCH = Path(sys.executable).with_name("splatbatch")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")
COMMANDS = ["plan", "status", "report", "verify-dims", "config show", "explain p0 --log"]


def wait_until_started(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    while "attempt 1 started" not in process.stderr.readline():
        assert process.poll() is None


# exit codes; 2 to 6 for each kind of bad input: test_bad_input.py


def test_all_trained_is_0_and_some_failed_is_1(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"])
    assert invoke("train", "p0", batch=batch).code == 0
    ended = invoke("train", batch=batch)
    assert ended.code == 1
    assert "1 of 2 patches trained; failed: p1" in ended.out
    assert "No module named 'x')" in ended.err


STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), STOPS, ids=str)
def test_who_interrupts_a_batch_is_named_by_its_exit_code(batch: FakeBatch, number: signal.Signals, code: int) -> None:
    night = batch.make("p0", "p1").script(p0=["hang"]).beside("train")
    night.until(lambda: "attempt 1 started" in night.said).send(number)
    assert night.ended().returncode == code
    end = batch.events("attempt_ended")[-1]
    assert (end["outcome"], end["reason"]) == ("stopped", number.name)


@pytest.mark.journey
@pytest.mark.all(but="15-143")
@pytest.mark.parametrize(("number", "code"), STOPS, ids=str)
def test_an_interrupted_batch_ends_with_128_and_the_signal(batch: FakeBatch, number: signal.Signals, code: int) -> None:
    batch.make("p0", "p1").script(p0=["hang"])
    process = batch.start("train")
    wait_until_started(process)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
    end = batch.events("attempt_ended")[-1]
    assert (end["outcome"], end["reason"]) == ("stopped", number.name)


@pytest.mark.all
def test_nohup_is_honoured(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train 0.5"])
    command = ["nohup", *batch.command("train")]
    process = subprocess.Popen(
        command, env=batch.environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_until_started(process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == 0


# pipes, terminals, stdin


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that claims a terminal of many colours."""
    for name, value in (("FORCE_COLOR", "1"), ("CLICOLOR_FORCE", "1"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize("command", ["train", *COMMANDS, "retry --failed", "--help", "trian", "train --patch p9"])
def test_what_is_no_terminal_gets_no_escape_codes(batch: FakeBatch, command: str) -> None:
    batch.make("p0").run("train")
    ended = batch.run(*command.split())
    assert "\x1b" not in ended.stdout + ended.stderr and ended.stdout + ended.stderr


@pytest.mark.all
@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize(
    "commands",
    [["train"], [*COMMANDS, "retry --failed", "--help", "trian", "train --patch p9"]],
    ids=["train", "others"],
)
def test_no_escape_codes_go_into_a_pipe_whatever_the_environment_claims(batch: FakeBatch, commands: list[str]) -> None:
    batch.make("p0").run("train")
    for command in commands:
        ended = batch.run_apart(*command.split())
        assert "\x1b" not in ended.stdout + ended.stderr, command


@pytest.mark.all
def test_a_terminal_gets_colours_unless_no_color_is_set(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    code, said = on_terminal(batch, "status")
    assert (code, bool(COLOUR.search(said)), "trained" in said) == (0, True, True)
    assert not COLOUR.search(on_terminal(batch, "status", NO_COLOR="1")[1])


@pytest.mark.journey
def test_on_a_terminal_a_batch_is_a_table_that_moves(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["exit 1 CUDA error: out of memory", "train"])
    code, said = on_terminal(batch, "train")
    assert code == 0
    assert "p0: attempt 1 failed" in said
    assert "2 of 2 patches trained" in said
    assert "\x1b[?25h" in said.rpartition("\x1b[?25l")[2]  # the cursor is shown again


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The answer "y" waits on stdin."""
    ours, theirs = os.pipe()
    os.write(theirs, b"y\n")
    os.close(theirs)
    usual = os.dup(0)
    os.dup2(ours, 0)
    with open(0, closefd=False) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    os.dup2(usual, 0)
    os.close(usual)
    os.close(ours)


ASKING_NOTHING = (
    "verify-dims",
    "plan",
    "train",
    "status",
    "report",
    "explain p0",
    "retry p0 --force",
    "accept p0 --attempt 1",
    "publish p0 --as ply --to published",
    "clean",
    "cancel",
)


def test_nothing_is_read_from_stdin(batch: FakeBatch, answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.make("p0")
    monkeypatch.chdir(batch.folder)
    for command in ASKING_NOTHING:
        ended = batch.run(*command.split())
        assert ended.returncode in (0, 1), (command, ended)
    assert os.read(answer, 9) == b"y\n"


@pytest.mark.all
def test_no_process_of_a_command_reads_from_stdin(batch: FakeBatch) -> None:
    batch.make("p0")
    ours, theirs = os.pipe()
    os.write(theirs, b"y\n")
    os.close(theirs)
    for command in ("train", "status", "report"):
        subprocess.run(batch.command(command), env=batch.environment(), stdin=ours, capture_output=True, check=True)
    assert os.read(ours, 9) == b"y\n"
    os.close(ours)


@pytest.mark.journey
@pytest.mark.all(but="plan --json")
@pytest.mark.parametrize("command", ["status --json", "plan --json", "report --json", "status"])
def test_a_reader_that_goes_away_is_no_error(batch: FakeBatch, command: str) -> None:
    batch.make(*(f"p{i}" for i in range(40 if "--json" in command else 300)))
    process = batch.start(*command.split())
    assert process.stdout is not None
    assert process.stderr is not None
    held = fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # the least: a page
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.wait(30)
    assert said == ""
    whole = len(batch.run(*command.split()).stdout)
    assert whole > 2 * held or "--json" not in command, "all of it went into the pipe"


@pytest.mark.all
def test_a_batch_whose_reader_goes_away_goes_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["train 0.3"])
    process = batch.start("train")
    wait_until_started(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    process.wait(30)
    assert batch.result("p1")["attempt"] == "attempt-01"


# how fast


LONGEST_S = 30.0
"""By the wall clock, which other work on the machine moves, too: longer than that is a wait."""


def cpu_and_wall_s(run: Callable[[], object]) -> tuple[float, float]:
    """Return what a command takes on a quiet core, all processes of it together: the quickest of three times."""
    took = []
    for _ in range(3):
        slower = slowness()
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        took.append((cpu_s / max(slower, slowness()), time.monotonic() - started))
    return min(took)


@pytest.mark.journey
def test_help_is_there_in_a_moment() -> None:
    cpu_s, wall_s = cpu_and_wall_s(lambda: subprocess.run([SPLATBATCH, "--help"], capture_output=True, check=True))
    assert cpu_s <= 0.4
    assert wall_s <= LONGEST_S


@pytest.mark.all
def test_a_second_train_is_quick(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train")
    cpu_s, wall_s = cpu_and_wall_s(lambda: batch.run_apart("train").check_returncode())
    assert cpu_s <= 2
    assert wall_s <= LONGEST_S
    assert len(batch.events("attempt_started")) == 2


# what every command says and writes


NEEDS_NONE = [["--version"], ["--help"], ["config", "--help"], ["config", "schema"]]


@pytest.mark.parametrize("arguments", NEEDS_NONE)
def test_what_needs_no_config_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = invoke(*arguments)
    assert (ended.code, ended.err, bool(ended.out.strip())) == (0, "", True)


@pytest.mark.journey
@pytest.mark.all(but="arguments0")
@pytest.mark.parametrize("arguments", NEEDS_NONE)
def test_what_needs_no_config_works_without_one(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "splatbatch", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip()


def test_the_version_is_ours() -> None:
    assert invoke("--version").out == f"{__version__}\n"


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    ended = invoke("train", "--dry-run", batch=batch)
    assert ended.code == 0
    assert "p0: train: not trained yet\np1: train: not trained yet\n" in ended.out
    assert not batch.output.exists()


def test_the_plan_is_json_with_reasons_and_schedule(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train", "p0")
    rows = json.loads(invoke("plan", "--json", batch=batch).out)["patches"]
    assert [(row["patch"], row["decision"]) for row in rows] == [("p0", "skip"), ("p1", "train")]
    assert rows[0]["schedule"]["max_steps"] == 20


def test_the_status_of_named_patches_is_json(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train", "p1")
    status = json.loads(invoke("status", "--json", "p1", batch=batch).out)
    assert [(one["patch"], one["state"]) for one in status["patches"]] == [("p1", "trained")]
    assert status["run"] is None


def test_the_status_says_who_is_running(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["hang"])
    night = batch.beside("train")
    night.until(lambda: "attempt 1 started" in night.said)
    status = json.loads(invoke("status", "--json", batch=batch).out)
    assert (status["run"]["pid"], status["patches"][0]["state"]) == (os.getpid(), "running")
    assert f"Running: process {os.getpid()}" in invoke("status", batch=batch).out


def test_patches_whose_names_look_like_markup_are_trained_and_shown_as_they_are(batch: FakeBatch) -> None:
    names = ["[red]p1", "a|b", "<b>p", "p:smile:1", "p 1", "ü1"]
    batch.make(*names)
    assert invoke("train", batch=batch).code == 0
    for command in ("status", "plan"):
        said = invoke(command, batch=batch).out
        assert [name for name in names if name not in said] == []
    assert "<b>" not in invoke("report", batch=batch).out


def test_logs_are_those_of_the_latest_or_the_named_attempt(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 CUDA error: out of memory", "exit 1 No module named 'x'"])
    invoke("train", batch=batch)
    assert invoke("explain", "p0", "--log", batch=batch).out == "No module named 'x'\n"
    assert invoke("explain", "p0", "--attempt", "1", batch=batch).out == "CUDA error: out of memory\n"
    (batch.output / "patches/p0/attempt-01/train.log").unlink()
    assert invoke("explain", "p0", "-a", "1", batch=batch).code == 6


def test_a_report_is_written_from_the_files(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 ModuleNotFoundError: No module named 'x'"])
    invoke("train", batch=batch)
    shutil.rmtree(batch.output / "patches")
    facts = json.loads(invoke("report", "--json", batch=batch).out)
    assert facts["counts"]["failed"] == 1
    text = invoke("report", batch=batch).out
    assert text == (batch.output / "report.md").read_text()
    assert "**missing_dependency**" in text or "No module named" in text


def test_the_resolved_config_is_a_config(batch: FakeBatch, tmp_path: Path) -> None:
    batch.make("p0", patches={"p0": {"training": {"seed": 7}}})
    again = tmp_path / "again.yml"
    again.write_text(invoke("config", "show", batch=batch).out)
    assert load(again) == load(batch.config)
    assert yaml.safe_load(invoke("config", "show", "p0", batch=batch).out)["training"]["seed"] == 7


def test_the_schema_is_printed_as_json() -> None:
    schema = json.loads(invoke("config", "schema").out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["properties"].keys() >= {"scene", "training", "executor", "patches"}


# retry


def test_a_fresh_patch_is_tried_again_only_by_force(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    refused = invoke("retry", "--patch", "p0", batch=batch)
    assert (refused.code, "hint: Add --force" in refused.err) == (2, True)
    assert invoke("retry", "--patch", "p0", "--force", batch=batch).code == 0
    assert batch.result("p0")["attempt"] == "attempt-02"


def test_retry_failed_trains_what_failed_with_the_changed_setting(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p1=["exit 1 ModuleNotFoundError: No module named 'x'", "train"])
    invoke("train", batch=batch)
    assert invoke("retry", "--failed", "--set", "training.init_scale=0.3", batch=batch).code == 0
    assert batch.result("p1")["changes"] == {"training.init_scale": 0.3}
    assert [event["patch"] for event in batch.events("attempt_started")] == ["p0", "p1", "p1"]
    assert "no failed patch" in invoke("retry", "--failed", batch=batch).err


# init


def scene_with_source(batch: FakeBatch) -> None:
    shutil.copytree(batch.folder / "patches/p0/sparse", batch.folder / "sparse")


def plain_scene(batch: FakeBatch) -> None:
    shutil.move(batch.folder / "patches/p0/sparse", batch.folder / "sparse")
    shutil.rmtree(batch.folder / "patches")


def folder_of_patches(batch: FakeBatch) -> None:
    for name in ("p0", "p1"):
        shutil.move(batch.folder / "patches" / name, batch.folder / name)
        shutil.copytree(batch.folder / "images", batch.folder / name / "images")
    shutil.rmtree(batch.folder / "patches")
    shutil.rmtree(batch.folder / "images")


LAYOUTS = [(lambda _: None, 2), (scene_with_source, 2), (plain_scene, 1), (folder_of_patches, 2)]


@pytest.mark.parametrize(("arrange", "patches"), LAYOUTS, ids=["shared", "source", "plain", "own"])
@pytest.mark.parametrize("name", ["scene", "2024", 'my scene (v1.5) it\'s "new" ä', "true", "#1: x"])
def test_init_writes_a_config_that_verifies_and_plans(batch: FakeBatch, arrange: Any, patches: int, name: str) -> None:
    batch.folder = batch.folder / name
    arrange(batch.make("p0", "p1"))
    batch.config.unlink()
    ended = invoke("init", str(batch.folder))
    assert ended.code == 0, ended.err
    assert f": {patches} patch" in ended.out
    verified = invoke("verify-dims", batch=batch)
    assert verified.code == 0, verified.out
    assert invoke("train", "--dry-run", batch=batch).out.count(": train: not trained yet") == patches


def test_init_overwrites_nothing(batch: FakeBatch) -> None:
    batch.make("p0").config.write_text("# mine\n")
    ended = invoke("init", str(batch.folder))
    assert (ended.code, "exists already" in ended.err, "hint: " in ended.err) == (2, True, True)
    assert batch.config.read_text() == "# mine\n"


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_init_where_nothing_lies_writes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert invoke("init", str(tmp_path / name)).code == 3
    assert list((tmp_path / "empty").iterdir()) == []


def test_init_where_nothing_can_be_written_ends_with_6(batch: FakeBatch, tmp_path: Path) -> None:
    batch.make("p0").config.unlink()
    batch.config.symlink_to(tmp_path / "nowhere/c.yml")
    assert invoke("init", str(batch.folder)).code == 6


# verify-dims


@pytest.fixture
def halved(tmp_path: Path) -> Path:
    """The config of a scene of two patches whose photographs are half as large as its cameras say."""
    from PIL import Image

    shutil.copytree(QUARRY / "patches", tmp_path / "scene/patches")
    for path in (QUARRY / "images").rglob("*.jpg"):
        target = tmp_path / "scene/images" / path.relative_to(QUARRY / "images")
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as photo:
            photo.reduce(2).save(target, quality=95)
    config = tmp_path / "scene/splat_config.yml"
    config.write_text("{scene: {patches: patches, images: images}, training: {max_steps: 20, device: cpu}}\n")
    return config


@pytest.mark.all
@pytest.mark.contract
def test_verify_dims_finds_what_is_wrong_and_mends_a_copy(halved: Path, tmp_path: Path) -> None:
    audit = invoke("verify-dims", "--json", "--config", str(halved))
    finding = json.loads(audit.out)["findings"][0]
    assert (audit.code, bool(finding["remedy"]), bool(finding["message"])) == (3, True, True)
    fix = ("verify-dims", "--fix", "scale", "--out", str(tmp_path / "mended"), "--config", str(halved))
    mended = invoke(*fix)
    assert mended.code == 0, mended.err
    assert list((tmp_path / "mended").rglob("cameras.*"))
    again = invoke("verify-dims", "--config", str(tmp_path / "mended/splat_config.yml"))
    assert again.code == 0, again.out


@pytest.mark.all
@pytest.mark.parametrize("is_relative", [True, False])
def test_what_was_mended_is_trained_as_printed_also_where_photographs_are_a_link(
    halved: Path, tmp_path: Path, is_relative: bool
) -> None:
    folder = halved.parent
    for patch in ("p0", "p1"):
        link, place = folder / "patches" / patch / "images", folder / f"photographs-{patch}"
        shutil.copytree(folder / "images", place)
        link.symlink_to(os.path.relpath(place, link.parent) if is_relative else place, target_is_directory=True)
    shutil.rmtree(folder / "images")
    settings = yaml.safe_load(halved.read_text())
    halved.write_text(yaml.safe_dump(settings | {"scene": {}}))
    said = invoke("verify-dims", "--fix", "scale", "--out", str(tmp_path / "mended"), "--config", str(halved))
    assert said.code == 0, said.out + said.err
    config = said.out.split("splatbatch train --config ")[1].strip()
    assert invoke("verify-dims", "--strict", "--config", config).code == 0
    (tmp_path / "mended/p1/images").unlink()
    assert invoke("verify-dims", "--config", config).code == 3


@pytest.mark.all
def test_errors_that_a_repair_leaves_are_said(halved: Path, tmp_path: Path) -> None:
    broken = min((halved.parent / "images/left").iterdir())
    broken.write_bytes(b"")
    said = invoke("verify-dims", "--fix", "scale", "--out", str(tmp_path / "mended"), "--config", str(halved))
    assert said.code == 3
    assert broken.name in said.out and "but the errors above remain" in said.out
    assert "splatbatch train" not in said.out


@pytest.mark.all
def test_what_was_mended_trains_as_it_is(halved: Path, tmp_path: Path) -> None:
    fix = ("verify-dims", "--fix", "scale", "--out", str(tmp_path / "mended"), "--config", str(halved))
    record = json.loads(invoke(*fix, "--json").out)
    assert [one["patch"] for one in record["repaired"]] == ["p0", "p1"]
    assert invoke("plan", "--config", record["config"]).code == 0
    Path(record["config"]).unlink()
    assert invoke("init", str(tmp_path / "mended")).code == 0
    assert invoke("verify-dims", "--strict", "--config", str(tmp_path / "mended")).code == 0


def test_verify_dims_has_nothing_to_mend_where_all_fits(batch: FakeBatch, tmp_path: Path) -> None:
    ended = invoke("verify-dims", "--fix", "crop", "--out", str(tmp_path / "mended"), batch=batch.make("p0"))
    assert "nothing to repair" in ended.out


def test_without_verification_a_patch_is_trained_as_it_is_and_the_report_says_so(batch: FakeBatch) -> None:
    batch.make("p0")
    (batch.folder / "images/img3.png").unlink()
    assert invoke("train", "--no-verify", batch=batch).code == 0
    assert "not verified" in (batch.output / "report.md").read_text()


# what is said while a batch runs


def test_a_pipe_gets_a_sign_of_life_now_and_then(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "HEARTBEAT_S", 0.2)
    batch.make("p0").script(p0=["train 0.6"])
    said = invoke("train", batch=batch).err
    assert "p0: train 1/20 (5%), loss 0.5000" in said
    assert "1 patch left: 0 of 1 trained, 1 running" in said
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in said.splitlines())


def test_a_table_that_is_too_long_shows_what_matters(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "REDRAW_S", 0.1)
    monkeypatch.setenv("LINES", "9")
    batch.make(*(f"p{i}" for i in range(9))).script(p8=["exit 1 ModuleNotFoundError: No module named 'x'"])
    ended = invoke("train", "p8", batch=batch, terminal=True)
    assert ended.code == 1
    assert "p8: attempt 1 failed" in ended.err


def test_a_setting_of_one_train_is_taken_and_told_and_makes_nothing_stale(batch: FakeBatch) -> None:
    ended = batch.make("p0").run("train", "--set", "training.max_steps=15")
    assert ended.returncode == 0, ended.stderr
    assert json.loads((batch.output / "patches/p0/result.json").read_text())["step"] == 15
    assert "patches: {p0: {training: {max_steps: 15}}}" in ended.stdout
    assert "attempt" not in batch.run("train").stderr
    assert [path.name for path in (batch.output / "patches/p0").glob("attempt-*")] == ["attempt-01"]


@pytest.mark.parametrize("more", [("--detach",), ()])
def test_settings_of_one_train_do_not_reach_workers_and_are_refused(batch: FakeBatch, more: tuple[str, ...]) -> None:
    batch.make("p0")
    if not more:
        batch.change(executor={"engine": "slurm"})
    ended = invoke("train", "--set", "training.seed=7", *more, batch=batch)
    assert (ended.code, "train --set training.seed=7: workers take settings from the YAML only" in ended.err) == (
        2,
        True,
    )
