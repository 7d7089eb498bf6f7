"""What may differ between two plays of a night is hidden; nothing else is."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from may_differ import Mask, by, lines_by_task, pretty, without_progress

NIGHT = Path("/tmp/night-a")
HOST = socket.gethostname()
MASK = Mask(NIGHT, Path("/home/me/checkout"), workers=(f"{HOST}-7-0a1b2c",))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("2026-11-26 07:30:46 p0: trained in 3 s", "<time> p0: trained in <span>"),
        (f"report: {NIGHT}/output/report.html", "report: <night>/output/report.html"),
        (f"process 41 on {HOST} since 2026-11-26 07:30:46", "process <pid> on <host> since <time>"),
        (f"worker {HOST}-7-0a1b2c, worker {HOST}-8-0a1b2c", "worker <worker 1>, worker <worker>"),
        ("p1: retry in 11 s with setting.cap=500", "p1: retry in <10 or so> s with setting.cap=500"),
        ("p1: retry in 64 s", "p1: retry in <60 or so> s"),
        ("p0  20/20  21.50  0.3 s  da20c6f8814ea14c", "p0  20/20  21.50  0.3 s  da20c6f8814ea14c"),
    ],
)  # fmt: skip
def test_texts_keep_all_but_times_places_processes_and_hosts(text: str, left: str) -> None:
    assert MASK.text(text) == left


@pytest.mark.parametrize(
    ("record", "left"),
    [
        ({"t": 1795729643.1, "mtime_ns": 1795729643690953904}, {"t": "<time>", "mtime_ns": "<time>"}),
        ({"seconds": 0.2, "eta_s": None, "wall_s": 14400.0}, {"seconds": "<s>", "eta_s": None, "wall_s": 14400.0}),
        ({"version": "0.2.0", "pid": 7}, {"version": "<version>", "pid": "<process>"}),
        ({"version": 1, "code": 0, "psnr": 21.512345}, {"version": 1, "code": 0, "psnr": 21.512345}),
        ({"recipe": "da20c6f8814ea14c", "empty": {}}, {"recipe": "da20c6f8814ea14c", "empty": {}}),
    ],
)
def test_records_keep_all_but_times_spans_processes_and_versions(record: Any, left: Any) -> None:
    assert MASK.json(record) == left


def test_what_is_really_trained_loses_its_figures_and_hashes_but_no_settings_or_counts() -> None:
    trained = Mask(NIGHT, Path("/home/me/checkout"), is_trained=True)
    record = {"psnr": 21.512345, "num_gaussians": 36, "recipe": "a" * 16, "key": "a" * 16, "means": 0.00016}
    left = record | {"psnr": "<figure>", "key": "<hash>"}
    assert trained.json(record) == left


def test_lines_of_progress_are_left_out_and_no_others() -> None:
    kept = "<time> p0: attempt 1 started on cpu0\n<time> p1: retry in <10 or so> s\n"
    told = "<time> p1: train 1/20 (5%), loss 1.0000\n<time> 1 patch left: 1 of 2 trained, 1 running\n"
    assert without_progress(kept + told + "evaluate: 0 of 5 steps (seams)\n") == kept


def test_lines_of_tasks_are_sorted_by_task_and_keep_their_order_within_each() -> None:
    lines = ["<time> p1: a\n", "<time> 2 patches\n", "<time> p0: b\n", "<time> p0: a\n"]
    assert lines_by_task("".join(lines)) == "".join(lines[index] for index in (2, 1, 3, 0))


def test_json_is_recorded_with_short_lists_on_one_line() -> None:
    assert pretty({"a": [1, 2], "b": {"c": []}}) == '{\n "a": [1, 2],\n "b": {\n  "c": []\n }\n}'


def test_records_that_have_a_text_are_sorted_by_it_in_their_places() -> None:
    records = [{"patch": "b"}, {"event": "audit"}, {"patch": "a"}]
    assert by("patch", records) == records[::-1]
