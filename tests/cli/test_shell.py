"""What a shell sees of the commands: help in groups, completion, patches as arguments, tables of whole columns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import invoke
from rich.console import Console
from rich.table import Table
from typer.main import get_command

from splatbatch.cli.app import GROUPS, app
from splatbatch.failures.advice import command_for, for_patch
from splatbatch.failures.causes import CAUSES, in_words, title
from splatbatch.failures.signatures import shipped_signatures
from splatbatch.monitor.table import drop_columns, status_table
from splatbatch.tasks.status import PatchStatus

if TYPE_CHECKING:
    from fake_batch import FakeBatch

ROOT: Any = get_command(app)
VISIBLE = {name: one for name, one in ROOT.commands.items() if not one.hidden}


@pytest.mark.parametrize("command", ["", *VISIBLE, "config show"])
def test_h_is_help(command: str) -> None:
    short, long = (invoke(*command.split(), flag) for flag in ("-h", "--help"))
    assert (short.code, short.out) == (0, long.out)
    assert short.out.startswith("Usage: ")
    assert not re.search(r"<list\[|<str>|<path>", short.out.partition("Options:")[0])


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("accept", "[FOLDER] PATCH"), ("explain", "[FOLDER] PATCH|LOGFILE"), ("config show", "[FOLDER] [PATCH]")],
)
def test_usage_says_that_one_patch_is_taken(command: str, arguments: str) -> None:
    usage = invoke(*command.split(), "-h").out.partition("\n")[0]
    assert usage.endswith(f"{command} [OPTIONS] {arguments}")


def test_help_shows_every_command_once_in_a_group() -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(VISIBLE) == set(named)
    shown = invoke("--help").out
    assert "More:" not in shown
    assert all(f"\n  {name} " in shown for name in VISIBLE)


def test_help_cuts_no_summary_short() -> None:
    assert "..." not in invoke("--help").out.replace("[ARGS]...", "")
    assert "…" not in invoke("--help").out
    assert invoke("--help").out.count("(") == invoke("--help").out.count(")")


@pytest.mark.parametrize(
    "command", ["explain", "explain --log", "status", "plan", "publish --as ply", "verify-dims", "config show"]
)
def test_a_patch_is_an_argument_and_help_says_that_alone(batch: FakeBatch, command: str) -> None:
    ended = invoke(*command.split(), "p9", batch=batch.make("p0", "p1"))
    assert (ended.code, "p9: no such patch" in ended.err) == (2, True)
    assert "--patch" not in invoke(*command.split(), "-h").out


def test_retry_takes_its_patches_by_an_option_too_and_help_says_so(batch: FakeBatch) -> None:
    ended = invoke("retry", "--patch", "p9", batch=batch.make("p0", "p1"))
    assert (ended.code, "p9: no such patch" in ended.err) == (2, True)
    assert "-p, --patch NAME" in invoke("retry", "-h").out


def test_a_cancelled_patch_is_named_as_an_argument(batch: FakeBatch) -> None:
    ended = invoke("cancel", "p0", batch=batch.make("p0"))
    assert (ended.code, "nothing to cancel" in ended.out) == (0, True)


def completed(batch: FakeBatch, line: str, shell: str = "bash") -> list[str]:
    """Return what a shell is told at the end of a line, by the means of Typer."""
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    asked |= {"_SPLATBATCH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    program = [str(Path(sys.executable).with_name("splatbatch"))]
    ended = subprocess.run(program, env=batch.environment() | asked, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return [word.partition("\t")[0] for word in ended.stdout.splitlines()]


@pytest.mark.contract
@pytest.mark.all(but="bash-splatbatch retry p1-words2")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("splatbatch ret", {"retry"}),
        ("splatbatch retry p", {"p0", "p1", "p10"}),
        ("splatbatch retry p1", {"p1", "p10"}),
        ("splatbatch retry --fa", {"--failed"}),
        ("splatbatch config s", {"show", "schema"}),
        ("splatbatch config show p0", {"p0"}),
        ("splatbatch explain --j", {"--json"}),
        ("splatbatch train --set training.max_s", {"training.max_steps="}),
        ("splatbatch publish --as ply,sp", {"ply,spz"}),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_options_and_patches(
    batch: FakeBatch, line: str, words: set[str], shell: str
) -> None:
    assert set(completed(batch.make("p0", "p1", "p10"), line, shell)) == words


@pytest.mark.contract
def test_where_no_batch_is_a_shell_completes_no_patch_and_says_nothing(batch: FakeBatch) -> None:
    batch.make("p0").config.unlink()
    assert "p0" not in completed(batch, "splatbatch retry p")


@pytest.mark.all
def test_zsh_is_told_the_patches_too(batch: FakeBatch) -> None:
    assert '"p1"' in " ".join(completed(batch.make("p0", "p1"), "splatbatch retry p", "zsh"))


def test_columns_without_room_are_dropped_whole_the_cheapest_first() -> None:
    def kept(widths: list[int], worths: list[int], width: int) -> list[int]:
        table = Table(*(str(number) * wide for number, wide in enumerate(widths)))
        return [int(str(column.header)[0]) for column in drop_columns(table, worths, width).columns]

    assert kept([5, 5, 5], [9, 1, 5], 19) == [0, 1, 2]
    assert kept([5, 5, 5], [9, 1, 5], 18) == [0, 2]
    assert kept([50, 5], [9, 1], 10) == [0]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 119, 120, 160])
def test_no_figure_of_a_status_is_cut(width: int) -> None:
    status = PatchStatus(
        "p0", "trained", step=30_000, max_steps=30_000, psnr=31.25, num_gaussians=1_234_567, seconds=4000
    )
    console = Console(width=width)
    with console.capture() as capture:
        console.print(status_table([status], width))
    words = capture.get().split()
    assert words[words.index("p0") + 1] == "trained"
    assert set(words) - {"p0", "trained"} <= {
        *("patch", "state", "step", "it/s", "loss", "PSNR", "dB", "Gaussians", "GPU", "MiB", "°C", "time", "to", "go"),
        *("attempt", "30000/30000", "31.25", "1,234,567", "1:06:40"),
    }
    assert ("31.25" in words) == (width >= 40)


@pytest.mark.parametrize("width", [30, 40, 60, 100])
def test_no_size_of_an_audit_is_cut(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = invoke("verify-dims", batch=batch.make("p0"), terminal=True).out
    row = next(line for line in said.splitlines() if "p0" in line)
    assert "32x24" in row
    assert "…" not in said


def test_every_cause_is_called_something() -> None:
    assert {one.cause for one in shipped_signatures()} <= set(CAUSES)
    assert all("_" not in cause.title for cause in CAUSES.values())
    assert (in_words("cuda_oom"), in_words("SIGTERM")) == ("GPU memory ran out", "SIGTERM")
    assert title("cuda_oom") == "GPU memory ran out (cuda_oom)"


def test_a_cause_is_told_in_words(batch: FakeBatch) -> None:
    batch.make("p1").script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"])
    said = invoke("train", batch=batch)
    assert "p1: attempt 1 failed: a package is missing (missing_dependency) (line 1: ModuleNotFoundError" in said.err
    assert "to do: p1: a package is missing (missing_dependency): " in said.out
    assert "failed (a package is missing)" in invoke("status", batch=batch).out
    assert "failed: a package is missing (missing_dependency) in phase" in invoke("explain", "p1", batch=batch).out


def test_what_to_type_names_the_patch_as_an_argument() -> None:
    assert for_patch(command_for(CAUSES["cuda_oom"].steps[0]), "p 5").startswith(
        "splatbatch retry 'p 5' --set training.cap_max"
    )
    assert for_patch(command_for(CAUSES["unknown"].steps[0]), "p5") == "splatbatch explain p5 --log"
