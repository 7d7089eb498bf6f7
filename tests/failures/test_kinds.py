"""Failures of one kind in other words: what is advised fits the kind, and the quoted line is the one that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from logs import diagnose_log

from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
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
