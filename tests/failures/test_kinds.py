"""Failures of one kind in other words: what is advised fits the kind, and the quoted line is the one that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from logs import diagnose_log

from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.log import lines_of
from splatbatch.outcome import Exited, Killed

KINDS = Path(__file__).with_name("kinds.txt")
REAL = Path(__file__).parents[2].parent / "shared" / "cases3"
REAL_KINDS = {
    "brush-reserve": ("cuda_oom", "degrade", "cap the Gaussians"),
    "checkpoint-cut": ("corrupt_cache", "degrade", "is cut"),
    "colmap-image-path": ("missing_colmap", "fail", "folder of photographs"),
    "colmap-sqlite": ("colmap_failed", "fail", "Another program"),
    "container-driver-mismatch": ("cuda_driver_mismatch", "fail", "reboot"),
    "decompression-bomb": ("corrupt_image", "fail", "MAX_IMAGE_PIXELS"),
    "kernel-oom-of-another": ("missing_dependency", "fail", "pip install"),
    "subprocess-127": ("missing_dependency", "fail", "PATH"),
    "terminal-gone": ("interrupted", "retry", "tmux"),
}


def kinds() -> Iterator[object]:
    """Read each case: sentence, exit code, cause, action, words of the advice; `>` marks the line to be quoted."""
    for block in KINDS.read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lines = block.split("\n")
        sentence, *told = re.fullmatch(r"(.+): exit (\S+) -> (\w+) (\w+) // (.+)", head).groups()
        quoted = next((line[4:].strip() for line in lines if line.startswith("  > ")), "")
        yield pytest.param("\n".join(line[4:] for line in lines), *told[:3], (told[3], quoted), id=sentence)


@pytest.mark.parametrize(("log", "code", "cause", "action", "says"), list(kinds()))
def test_a_failure_is_told_by_its_kind(log, code, cause, action, says):
    found = diagnose_log(log, int(code))
    assert (found.cause, found.action) == (cause, action)
    words, quoted = says
    assert re.search(words, found.advice, re.IGNORECASE), found.advice
    assert any(quoted[:180] in line for line in found.evidence), found.evidence


WRITTEN_BEFORE = (
    "2026-11-24 03:12:44,123 ",
    "2026-11-24T03:12:44.123456789Z ",
    "[2026-11-24 03:12:44] ",
    "trainer-1  | ",
    "\x1b[36mtrainer-12  | \x1b[0m",
    "\x1b[36mtrainer-12  |\x1b[0m ",
    "[pod/train-p3-x7/train] ",
    "\x1b[36m(TrainWorker pid=8112, ip=10.0.0.4)\x1b[0m ",
    "[default0]:",
    "stderr: ",
    "Nov 24 03:12:44 gpu7 train[8112]: ",
    "trainer-1  | 2026-11-24 03:12:44,123 ",
)


@pytest.mark.parametrize("before", WRITTEN_BEFORE)
def test_what_others_write_before_each_line_changes_no_diagnosis(before):
    changed = []
    for case in kinds():
        log, code, cause, action, _ = case.values
        found = diagnose_log("\n".join(f"{before}{line}" for line in log.split("\n")), int(code))
        if (found.cause, found.action) != (cause, action):
            changed.append((case.id, found.cause, found.action))
    assert changed == []


def test_lines_of_the_kernel_and_slurm_keep_what_tells_whose_they_are():
    lines = [
        "Nov 24 03:12:44 gpu7 earlyoom[912]: sending SIGTERM to process 4711 uid 1000",
        "Nov 24 03:12:44 gpu7 kernel: Out of memory: Killed process 5512 (python3)",
    ]
    assert [line.words for line in lines_of("\n".join(lines))] == lines


@pytest.mark.parametrize("name", REAL_KINDS)
def test_a_case_that_was_seen_is_told_by_its_kind(name):
    if not REAL.exists():
        pytest.skip(f"no cases at {REAL}")
    code = int(re.search(r"--exit-code (\d+)", (REAL / name / "README").read_text())[1])
    found = diagnose_log((REAL / name / "log.txt").read_text(), code)
    cause, action, words = REAL_KINDS[name]
    assert (found.cause, found.action) == (cause, action)
    assert words in found.advice


@pytest.mark.parametrize(
    ("end", "log", "cause"),
    [
        (Exited(1), "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'frames'", "colmap_parse"),
        (Exited(1), "step 3\nsomething odd", "host_oom"),
        (Killed(9), "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'frames'", "host_oom"),
    ],
)
def test_a_count_that_processes_share_settles_only_what_nothing_else_explains(end, log, cause):
    assert diagnose(Evidence(end, log, artifact="missing", oom_killed=True)).cause == cause


def test_a_step_of_slurm_is_no_step_of_a_training():
    log = "RuntimeError: CUDA out of memory\nslurmstepd: error: *** STEP 88121.0 ON gpu12 CANCELLED AT 2026-11-24 ***"
    assert diagnose_log(log, 1).cause == "cuda_oom"
