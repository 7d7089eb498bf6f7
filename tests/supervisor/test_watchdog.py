"""An attempt that does nothing is ended; one that does anything at all is not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from supervised import ASLEEP, DEAF, Attempts

from splatbatch.machine import gpu
from splatbatch.store.records.attempt import GpuSample
from splatbatch.supervisor import watch
from splatbatch.supervisor.watch import Watchdog

STALL_S = 0.5
LIMITS = {"stall_s": STALL_S}
# each does for 1.2 s the one thing that shows that it lives, then ends well
BUSY = {
    "talks": "import time\nfor _ in range(12): print('.', flush=True); time.sleep(0.1)",
    "progresses": "import time\nfor _ in range(12): open('progress.jsonl', 'a').write('{}\\n'); time.sleep(0.1)",
    "computes": "import time\nend = time.time() + 1.2\nwhile time.time() < end: pass",
    "lets its children compute": (
        "import subprocess, sys\n"
        "code = 'import time; end = time.time() + 1.2\\nwhile time.time() < end: pass'\n"
        "subprocess.run([sys.executable, '-c', code])"
    ),
}


@pytest.mark.parametrize("code", [ASLEEP, DEAF], ids=["obedient", "deaf"])
def test_what_does_nothing_is_ended_and_the_record_says_why(attempt: Attempts, code: str) -> None:
    assert attempt.program(code, limits=LIMITS).run() == 1
    assert attempt.end.items() >= {"kind": "timed_out", "limit": "stall", "limit_s": STALL_S}.items()


@pytest.mark.all(but=("progresses", "lets its children compute"))
@pytest.mark.parametrize("code", BUSY.values(), ids=BUSY.keys())
def test_what_does_anything_is_left_alone(attempt: Attempts, code: str) -> None:
    assert attempt.program(code, limits=LIMITS).run() == 0


def test_without_a_stall_limit_nobody_looks(attempt: Attempts) -> None:
    assert attempt.program("import time; time.sleep(1.5)", limits={"stall_s": 0}).run() == 0


@pytest.mark.parametrize(("percent", "moves"), [(0, False), (1, True), (100, True)])
def test_with_a_gpu_its_work_counts_and_the_cpu_does_not(tmp_path: Path, percent: int, moves: bool) -> None:
    stall = Watchdog(tmp_path / "progress.jsonl", 1)
    stall.look(0, 0)
    stall.moved_at = before = time.monotonic() - 100
    stall.look(0, percent)
    assert (stall.moved_at > before) is moves


def test_a_gpu_that_once_worked_and_idles_now_has_stalled(attempt: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter([GpuSample(utilisation_percent=90)])
    monkeypatch.setattr(watch, "GPU_SAMPLE_S", 0.05)
    monkeypatch.setattr(gpu, "sample", lambda _: next(samples, GpuSample(utilisation_percent=0)))
    monkeypatch.setattr(watch.signal, "signal", lambda *_: None)
    monkeypatch.setattr(watch.processes, "adopt_orphans", lambda: None)
    monkeypatch.setattr(watch.processes, "end_orphans", lambda _: None)
    spin: Any = "while True: pass"
    assert watch.supervise(attempt.program(spin, limits=LIMITS, gpu="GPU-x").folder) == 1
    assert attempt.end["limit"] == "stall"
