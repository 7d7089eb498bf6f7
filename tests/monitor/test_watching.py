"""What is seen while a batch runs: the live table at any width, `status --watch`, `logs -f`; on terminals and pipes."""

from __future__ import annotations

import io
import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from command_line import invoke, on_terminal
from rich.console import Console

from splatbatch.cli import status
from splatbatch.monitor.console import LONGEST_LINE, heartbeat, in_words
from splatbatch.monitor.table import batch_eta_s, batch_line, live_view, num_left, status_table
from splatbatch.output.claims import AtWork
from splatbatch.output.events import AttemptEnded
from splatbatch.output.records.attempt import ProgressLine
from splatbatch.tasks.status import PatchStatus, steps_per_s

if TYPE_CHECKING:
    from fake_batch import FakeBatch

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")
RUNNING = PatchStatus(
    "p5", "running", attempt="attempt-02", phase="train", step=1200, max_steps=3000, loss=0.0831, psnr=24.5,
    seconds=61.0, num_gaussians=912_345, steps_per_s=101.5, eta_s=17.7, gpu_used_mib=9123, gpu_temperature_c=71,
)  # fmt: skip
FAILED = PatchStatus("p6", "failed", cause="cuda_busy_or_unavailable", seconds=3.0, attempt="attempt-01", step=5)


def shown(statuses: list[PatchStatus], width: int, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, **options)
    console.print(live_view(statuses, width, 30))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("name", ["p5", "p" * 200, "p\n\n5", "[red]p"])
def test_the_table_fits_any_terminal(width: int, name: str) -> None:
    statuses = [replace(RUNNING, patch=name, node="a"), replace(FAILED, node="b" * 200)]
    lines = ESCAPES.sub("", shown(statuses, width)).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= width


def test_the_live_view_names_workers_and_nodes_where_there_are_several_and_stays_as_high_as_the_terminal() -> None:
    statuses = [replace(RUNNING, patch=f"p{number}", node=f"node-{number % 3}") for number in range(40)]
    workers = [
        AtWork(f"node-{number % 3}", worker=f"w{number}", job=f"17_{number}", tasks=(f"p{number}",))
        for number in range(12)
    ]
    console = Console(file=io.StringIO(), width=150)
    console.print(live_view(statuses, 150, 30, workers))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = text.splitlines()
    assert len(lines) <= 30
    assert lines[0].rstrip().endswith("node")
    assert "worker w0 on node-0, job 17_0: p0" in text
    assert "… and 4 more workers" in text
    assert lines[-1].rstrip().endswith("12 workers on 3 nodes")
    assert "node" not in shown([replace(RUNNING, node="node-1"), FAILED], 200)


def test_variants_of_a_patch_can_be_told_apart_on_a_narrow_terminal() -> None:
    names = [f"p0@learning_rate-0.{number}_5f3a1{number}" for number in range(3)]
    narrow = shown([replace(RUNNING, patch=name) for name in names], 80)
    assert all(f"p0@learni…{name[-6:]}"[-7:] in narrow for name in names)


def test_a_narrow_terminal_shows_what_matters_and_a_wide_one_everything() -> None:
    narrow, wide = (ESCAPES.sub("", shown([RUNNING, FAILED], width)) for width in (80, 200))
    for words in ("running (train)", "1200/3000", "101.5", "0:00:18", "24.50", "0:01:01", "failed (the GPU was"):
        assert words in narrow
        assert words in wide
    for words in ("40%", "0.0831", "912,345", "9,123", "71", "attempt-02"):
        assert words in wide
    assert "912,345" not in narrow


@pytest.mark.parametrize("width", [48, 60, 80, 120, 200])
def test_equal_rows_are_one_and_push_nothing_out(width: int) -> None:
    why = "training.max_steps 1000 -> 1200, evaluation.holdout_every 8 -> 4"
    stale = [PatchStatus(f"q{number}", "stale", cause=why) for number in range(47)]
    trained = [PatchStatus(f"t{number}", "trained") for number in range(30)]
    said = ESCAPES.sub("", shown([*stale, RUNNING, FAILED, *trained], width))
    assert all(words in said for words in ("1200/3000", "101.5", "0:00:18", "47 stale: training.max_steps 1000"))
    assert "… 9 more: 9 trained" in said
    assert [line.split()[0] for line in said.splitlines()[:3]] == ["patch", "p6", "p5"]


def test_without_colours_the_table_says_the_same() -> None:
    plain = shown([RUNNING], 200, no_color=True)
    assert not COLOUR.search(plain)
    assert "running (train)" in plain


def test_the_batch_is_told_in_one_line() -> None:
    waiting = [PatchStatus("p7", "waiting"), PatchStatus("p8", "waiting")]
    trained = PatchStatus("p1", "trained", seconds=100.0)
    assert batch_line([trained, RUNNING, FAILED, *waiting]) == (
        "1 of 5 trained, 1 running, 1 failed; about 0:03:38 to go"
    )
    assert batch_line([trained]) == "1 of 1 trained"


def test_a_heartbeat_says_how_far_for_how_long_and_how_the_gpu_is() -> None:
    said = heartbeat(replace(RUNNING, patch="p0", phase="train", step=1200, max_steps=3000, loss=0.0831, node="n7"))
    assert said == "p0: train 1200/3000 (40%), 101.5 steps/s, loss 0.0831, 0:00:18 to go, GPU 9,123 MiB 71 °C"
    tail = heartbeat(replace(RUNNING, patch="p0", phase="train", step=170, max_steps=180, planned_steps=300))
    assert tail.startswith("p0: train 170/180 (94%), ends early (300 steps were planned)")
    assert heartbeat(PatchStatus("p1", "running", phase="load", node="n7"), has_nodes=True) == "p1: load 0/0, on n7"


def test_what_is_left_is_what_train_takes_or_is_training() -> None:
    states = ("trained", "running", "failed", "stopped", "refused", "stale", "waiting")
    assert num_left([PatchStatus(f"p-{state}", state) for state in states]) == 4


def test_nobody_knows_when_it_ends_before_every_running_patch_has_a_pace() -> None:
    assert batch_eta_s([RUNNING, PatchStatus("p1", "running")]) is None
    assert batch_eta_s([]) is None


def test_two_at_once_take_half_the_time_but_no_less_than_the_longest() -> None:
    long, short = (PatchStatus(f"p{eta}", "running", eta_s=eta, seconds=0.0) for eta in (100.0, 10.0))
    assert batch_eta_s([long, short]) == 100
    assert batch_eta_s([long, short, *(PatchStatus(f"q{i}", "waiting") for i in range(4))]) == pytest.approx(165)


@pytest.mark.parametrize(
    ("records", "throughput"),
    [
        ([], None),
        ([{"t": 1, "step": 0, "loss": 1}], None),
        ([{"t": 1, "step": 0, "loss": 1}, {"t": 3, "step": 100, "loss": 1}], 50.0),
        ([{"t": 3, "step": 0, "loss": 1}, {"t": 1, "step": 100, "loss": 1}], None),
        ([{"t": "x", "step": 0, "loss": 1}, {"t": 1, "step": None, "loss": 1}], None),
        ([{"t": i, "step": i * i, "loss": 1} for i in range(20)], 29.0),
    ],
)
def test_the_pace_is_that_of_the_latest_records(records: list[dict[str, Any]], throughput: float | None) -> None:
    assert steps_per_s([ProgressLine.from_record(record) for record in records]) == throughput


def test_a_training_that_ended_early_says_so() -> None:
    said = {"patch": "p0", "attempt": 1, "outcome": "trained", "num_gaussians": 7, "seconds": 9.0}
    line = in_words(AttemptEnded.from_record({**said, "ended_early": "ended early", "choice": "8.1 dB worse"}))
    assert line == "p0: attempt 1 trained 7 Gaussians in 9 s: ended early; 8.1 dB worse"


def test_three_hundred_lines_of_a_log_are_one_line_beside_the_table() -> None:
    diagnosis = {"cause": "unknown", "advice": "\n".join(f"line {i}: \x07 [red]" for i in range(300))}
    line = in_words(
        AttemptEnded.from_record({"patch": "p0", "attempt": 1, "outcome": "failed", "diagnosis": diagnosis})
    )
    assert "\n" not in line
    assert len(line) == LONGEST_LINE


@pytest.mark.journey
@pytest.mark.all
@pytest.mark.parametrize("width", ["80", "200"])
def test_a_running_batch_is_a_table_that_keeps_to_its_terminal(batch: FakeBatch, width: str) -> None:
    batch.make("p0", "p1").script(p0=["train 1.5"], p1=["exit 1 CUDA error: out of memory", "train"])
    code, said = on_terminal(batch, "train", COLUMNS=width, LINES="24", NO_COLOR="1")
    assert code == 0
    assert not COLOUR.search(said)
    lines = ESCAPES.sub("", said).replace("\r", "").splitlines()
    table = [line for line in lines if line.startswith(("patch ", "p0  ", "p1  "))]
    assert any("running" in line and "5%" in line for line in table)
    assert max(map(len, table)) <= int(width)
    assert any("of 2 trained" in line for line in lines)


def test_watching_a_terminal_goes_on_until_somebody_has_seen_enough(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def sleep(_: float) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    batch.make("p0")
    monkeypatch.setattr(status.time, "sleep", sleep)
    monkeypatch.setattr(status, "REDRAW_S", 0.0)
    monkeypatch.setattr(status, "LINES_EVERY_S", 0.0)
    ended = invoke("status", "--watch", batch=batch, terminal=True)
    assert (ended.code, "0 of 1 trained" in ended.out, len(rounds)) == (0, True, 3)
    rounds.clear()
    ended = invoke("status", "--watch", batch=batch)
    assert (ended.out.count("waiting"), "\x1b" in ended.out) == (3, False)


@pytest.mark.all
def test_ctrl_c_ends_watching_quietly(batch: FakeBatch) -> None:
    process = batch.make("p0").start("status", "--watch")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err, isinstance(out, str)) == (0, "", True)


def test_the_table_is_for_people_and_has_no_codes_in_a_pipe() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(status_table([RUNNING]))
    assert "\x1b" not in console.file.getvalue()  # type: ignore[attr-defined]
