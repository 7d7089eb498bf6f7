"""An attempt that does nothing is ended; one that does anything at all is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_here import ProgramHere
from supervised import ASLEEP, DEAF, Attempts

from splatbatch.machine import gpu
from splatbatch.output.records.attempt import GpuSample
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


@pytest.fixture
def always_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs use a whole core all the time."""
    monkeypatch.setattr(ProgramHere, "cpu_s", property(lambda program: program.clock.monotonic()))


@pytest.mark.parametrize("code", [ASLEEP, DEAF], ids=["obedient", "deaf"])
def test_what_does_nothing_is_ended_and_the_record_says_why(attempt: Attempts, code: str) -> None:
    assert attempt.program(code, limits=LIMITS).run() == 1
    assert attempt.end.items() >= {"kind": "timed_out", "limit": "stall", "limit_s": STALL_S}.items()


@pytest.mark.all(but=("talks", "progresses"))
@pytest.mark.parametrize("how", BUSY)
def test_what_does_anything_is_left_alone(attempt: Attempts, how: str) -> None:
    attempt.program(BUSY[how], limits=LIMITS)
    assert (attempt.run_apart if "compute" in how else attempt.run)() == 0


@pytest.mark.usefixtures("always_computing")
def test_what_computes_in_silence_is_left_alone(attempt: Attempts) -> None:
    assert attempt.program("import time; time.sleep(50)", limits=LIMITS).run() == 0


def test_without_a_stall_limit_nobody_looks(attempt: Attempts) -> None:
    assert attempt.program("import time; time.sleep(50)", limits={"stall_s": 0}).run() == 0


@pytest.mark.parametrize(("share", "moves"), [(0.0, False), (0.009, False), (0.02, True), (-1.0, True)])
def test_a_process_that_uses_next_to_no_time_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, moves: bool
) -> None:
    """Less than before: a process has gone, and its time with it."""
    used = iter([10.0, 10.0 + share * 5.0])
    monkeypatch.setattr(watch.processes, "cpu_s", lambda _: next(used))
    stall = Watchdog(tmp_path / "progress.jsonl", 1, 0.0)
    for now in (5.0, 10.0, 15.0):
        stall.look(now, 0, None)
    assert stall.moved_at == (15.0 if moves else 10.0)


@pytest.mark.parametrize(("percent", "moves"), [(0, False), (1, True), (100, True)])
def test_with_a_gpu_its_work_counts_and_the_cpu_does_not(tmp_path: Path, percent: int, moves: bool) -> None:
    stall = Watchdog(tmp_path / "progress.jsonl", 1, 0.0)
    stall.look(1.0, 0, 0)
    stall.look(101.0, 0, percent)
    assert stall.moved_at == (101.0 if moves else 1.0)


@pytest.mark.usefixtures("always_computing")
def test_a_gpu_that_once_worked_and_idles_now_has_stalled(attempt: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter([GpuSample(utilisation_percent=90)])
    monkeypatch.setattr(watch, "GPU_SAMPLE_S", 0.05)
    monkeypatch.setattr(gpu, "sample", lambda _: next(samples, GpuSample(utilisation_percent=0)))
    assert attempt.program(ASLEEP, limits=LIMITS, gpu="GPU-x").run() == 1
    assert attempt.end["limit"] == "stall"
