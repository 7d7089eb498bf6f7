"""How far a program is, read from its log: whole lines only, bounded work, few records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splatbatch.files import read_lines
from splatbatch.output.records.attempt import Finish, WatchSettings
from splatbatch.supervisor.external import MOST_BYTES, Artifacts, FinishWatch, LogProgress

PATTERNS = {"step": r"(\d[\d,]*)/\d", "loss": r"loss=(\S+)", "num_gaussians": r"(\d+) GSs", "psnr": r"PSNR (\S+)"}


class Listener:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "progress.jsonl"
        self.now = 0.0
        self.progress = LogProgress(self.path, WatchSettings(progress=PATTERNS, max_steps=30_000), self.now)

    def after(self, *said: bytes) -> dict[str, Any]:
        for words in said:
            self.progress.hear(words)
            self.progress.look(self.now)
        return (*({},), *read_lines(self.path))[-1]


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    return Listener(tmp_path)


def test_a_line_is_read_once_it_is_whole(listener: Listener) -> None:
    assert listener.after(b"step 12") == {}
    assert listener.after(b"345/30000\n")["step"] == 12345


def test_bars_that_draw_over_themselves_and_colours_are_read(listener: Listener) -> None:
    record = listener.after(b"\r 1% 300/30000 loss=0.5\r\x1b[32m 2% 6,\x1b[0m00/30000 loss=0.25 77 GSs\r")
    assert (record["step"], record["loss"], record["num_gaussians"]) == (600, 0.25, 77)
    assert (record["phase"], record["max_steps"]) == ("train", 30_000)


def test_what_is_no_number_is_left_out(listener: Listener) -> None:
    record = listener.after(b"7/10 loss=nan\n8/10 loss=1e-2x\n")
    assert (record["step"], "loss" in record) == (8, False)


def test_the_curve_of_a_fast_program_is_kept_and_its_end_alone_has_a_time(listener: Listener) -> None:
    listener.after(b"".join(b"%d/30000 loss=%f\n" % (step, 1 / step) for step in range(100, 30_001, 100)))
    lines = list(read_lines(listener.path))
    assert [line["step"] for line in lines] == list(range(500, 30_001, 500))
    assert [line["loss"] for line in lines[:2]] == [0.002, 0.001]
    assert [line["step"] for line in lines if "t" in line] == [30_000]


def test_a_loss_that_is_no_number_is_said_once_with_its_step(listener: Listener) -> None:
    listener.after(b"7/10 loss=nan\n8/10 loss=nan\n", b"9/10 loss=NaN\n10/10 loss=nanometre\n")
    assert [one["health"] for one in read_lines(listener.path) if "health" in one] == ["nan_loss: loss nan at step 7"]


def test_of_a_flood_the_end_is_read_and_no_line_without_its_beginning(listener: Listener) -> None:
    listener.progress.hear(b"1" * MOST_BYTES + b"2/10\n")
    assert listener.after() == {}
    assert listener.after(b"x" * MOST_BYTES + b"\n9/10\n")["step"] == 9


def test_steps_are_written_now_and_then_and_figures_of_the_end_at_once(listener: Listener) -> None:
    listener.now = 3600.0
    listener.after(*(b"%d/30000\n" % step for step in range(1, 50)))
    assert len(list(read_lines(listener.path))) == 1
    assert listener.after(b"PSNR 25.5\n") | {"t": 0, "seconds": 0} == {
        **{"t": 0, "seconds": 0, "step": 49, "max_steps": 30_000, "phase": "train", "psnr": 25.5},
        **{"highest_step": 49, "step_gap": 1},
    }


def test_the_last_words_count_without_an_end_of_line(listener: Listener) -> None:
    listener.progress.hear(b"30000/30000")
    listener.progress.close(0.0)
    assert listener.after()["step"] == 30_000


def test_a_program_is_not_done_before_its_figures_are_there(tmp_path: Path) -> None:
    watch = FinishWatch(Artifacts(tmp_path, Finish(("*.ply",), files=("stats.json",))), after_s=1.0)
    (tmp_path / "splat.ply").write_bytes(b"ply\nproperty float f_dc_0\nend_header\n")
    watch.look(1.0, said=0)
    assert not watch.is_over(100.0)
    (tmp_path / "stats.json").write_bytes(b"{}")
    watch.look(2.0, said=0)
    assert [watch.is_over(now) for now in (2.9, 3.1)] == [False, True]


def test_a_program_that_goes_on_talking_has_ten_times_as_long(tmp_path: Path) -> None:
    watch = FinishWatch(Artifacts(tmp_path, Finish(("*.ply",))), after_s=1.0)
    (tmp_path / "splat.ply").write_bytes(b"ply\nproperty float f_dc_0\nend_header\n")
    for second in range(13):
        watch.look(second, said=second)
        assert watch.is_over(second + 0.5) is (second > 9)


def test_the_highest_step_and_the_longest_silence_between_two_are_kept(listener: Listener) -> None:
    record = listener.after(b"10/30000\n", b"20/30000\n30/30000\n", b"1/8\n")
    assert (record["step"], record["highest_step"], record["step_gap"]) == (1, 30, 10)


def test_a_program_that_says_nothing_of_steps_has_no_highest(listener: Listener) -> None:
    assert "highest_step" not in listener.after(b"loss=0.5\n")


def test_where_a_flood_may_have_hidden_steps_it_is_said(listener: Listener) -> None:
    assert "steps_unheard" not in listener.after(b"1/10 loss=1\n")
    listener.after(b"10/10\n" + b"x" * MOST_BYTES + b"\nloss=2\n")
    listener.progress.close(0.0)
    assert listener.after()["steps_unheard"] is True
    assert "steps_unheard" not in listener.after(b"10/10 loss=3\n")
