"""What an executor promises."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from splatbatch import processes
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.files import read_json
from splatbatch.machine import gpu
from splatbatch.machine.local import LocalExecutor
from splatbatch.output.attempt_folder import AttemptFolder

PATIENCE_S = 15.0
ASLEEP = "import time; time.sleep(600)"
MANY = {"cpu_slots": 3}


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def key_of(job: AttemptFolder) -> str:
    return str((read_json(job.job) or {})["key"])


class Engine:
    """An executor, and jobs for it that are small Python programs."""

    def __init__(self, root: Path) -> None:
        self.root, self.batch = root, f"batch{abs(hash(root)):x}"
        self.executor = self.open()
        self.jobs: list[AttemptFolder] = []

    def open(self) -> LocalExecutor:
        return LocalExecutor(ExecutorConfig(**MANY), "cpu")

    def job(self, code: str, *shown: str) -> AttemptFolder:
        number = len(self.jobs) + 1
        folder = AttemptFolder(self.root / f"attempt-{number:02d}")
        folder.path.mkdir()
        key = f"{self.batch}.p0.a{number}"
        record = {"key": key, "argv": [sys.executable, "-c", code, *shown], "limits": {"wall_s": 60, "grace_s": 0.3}}
        folder.job.write_text(json.dumps(record))
        self.jobs.append(folder)
        return folder

    def start(self, code: str) -> tuple[AttemptFolder, dict[str, str]]:
        job = self.job(code)
        return job, self.submit(job)

    def submit(self, *jobs: AttemptFolder) -> dict[str, str]:
        return {key_of(job): self.executor.submit(key_of(job), job) for job in jobs}

    def end(self, job: AttemptFolder) -> dict[str, Any]:
        return wait_for(lambda: read_json(job.exit))

    def gone(self, handles: dict[str, str]) -> str:
        return next(iter(self.executor.poll(handles).values()))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path)
    yield engine
    engine.executor.cancel(engine.executor.find(engine.batch))
    wait_for(lambda: not engine.executor.find(engine.batch))


def test_there_is_room_and_every_slot_has_its_own_name(engine: Engine) -> None:
    names = [slot.name for slot in engine.executor.slots]
    assert len(names) == len(set(names)) == 3


@pytest.mark.contract
def test_a_job_runs_to_its_end_and_is_seen_to_have_ended(engine: Engine) -> None:
    job, handles = engine.start("print('done')")
    assert handles.keys() == {key_of(job)}
    assert engine.end(job)["kind"] == "exited"
    wait_for(lambda: engine.gone(handles))
    assert job.log.read_text() == "done\n"


@pytest.mark.all
def test_several_jobs_run_at_once(engine: Engine) -> None:
    jobs = [engine.job(ASLEEP), engine.job(ASLEEP)]
    handles = engine.submit(*jobs)
    wait_for(lambda: all(job.heartbeat.exists() for job in jobs))
    assert not any(engine.executor.poll(handles).values())


@pytest.mark.contract
def test_a_job_that_is_submitted_twice_runs_once(engine: Engine) -> None:
    job, first = engine.start("print('once')")
    assert engine.submit(job) == first
    engine.end(job)
    assert engine.submit(job).keys() == first.keys()
    assert job.log.read_text() == "once\n"


@pytest.mark.all
def test_a_running_job_is_seen_and_found_and_its_handle_is_a_string(engine: Engine) -> None:
    _, handles = engine.start(ASLEEP)
    assert not engine.gone(handles)
    assert wait_for(lambda: engine.executor.find(engine.batch)) == handles
    assert all(isinstance(handle, str) for handle in handles.values())
    assert engine.executor.find("another-batch") == {}


@pytest.mark.contract
def test_what_shows_the_command_line_of_its_supervisor_is_not_taken_for_it(engine: Engine) -> None:
    """As the attempt's own process does between its fork and its exec: a signal sent to it there reaches nobody."""
    folder = str(engine.root / "attempt-01")
    job = engine.job(ASLEEP, "splatbatch.supervisor", folder)
    handles = engine.submit(job)
    wait_for(job.heartbeat.exists)
    assert engine.executor.find(engine.batch) == handles
    engine.open().cancel(engine.executor.find(engine.batch))
    assert engine.end(job)["kind"] == "cancelled"


@pytest.mark.contract
def test_another_parent_finds_sees_and_cancels_what_runs(engine: Engine) -> None:
    job, handles = engine.start(ASLEEP)
    wait_for(job.heartbeat.exists)
    other = engine.open()
    found = other.find(engine.batch)
    assert found == handles
    assert not other.poll(found)[key_of(job)]
    other.cancel(found)
    assert engine.end(job)["kind"] == "cancelled"
    wait_for(lambda: other.poll(found)[key_of(job)])


@pytest.mark.all
def test_a_cancelled_job_says_so_and_is_found_no_more(engine: Engine) -> None:
    job, handles = engine.start(ASLEEP)
    wait_for(job.heartbeat.exists)
    engine.executor.cancel(handles)
    assert engine.end(job)["kind"] == "cancelled"
    wait_for(lambda: not engine.executor.find(engine.batch))
    engine.executor.cancel(handles)


def test_the_handle_of_another_boot_is_of_a_job_that_is_gone(engine: Engine) -> None:
    mine = f"{os.getpid()}:{processes.start_ticks(os.getpid())}:{processes.boot_id()}"
    assert not engine.gone({f"{engine.batch}.p0.a1": mine})
    stranger = {f"{engine.batch}.p0.a99": f"{mine}x"}
    assert engine.gone(stranger)
    engine.executor.cancel(stranger)


def test_nothing_asked_is_nothing_answered(engine: Engine) -> None:
    assert engine.executor.poll({}) == {}
    engine.executor.cancel({})


@pytest.mark.skipif(bool(gpu.gpus()), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("gpus", "device", "slots"),
    [("auto", "auto", ["cpu0"]), ((), "auto", ["cpu0"]), ("auto", "cpu", ["cpu0"]), ((0,), "cpu", ["cpu0"])],
)
def test_without_a_gpu_the_cpu_has_the_slots(gpus: Any, device: str, slots: list[str]) -> None:
    executor = LocalExecutor(ExecutorConfig(gpus=gpus), device)
    assert [(slot.name, slot.gpu) for slot in executor.slots] == [(name, None) for name in slots]


CARDS = (gpu.Gpu(0, "GPU-a", "H200", 1), gpu.Gpu(1, "GPU-b", "H200", 1))


@pytest.mark.parametrize(
    ("told", "slots"),
    [
        (None, ["gpu0", "gpu1"]),
        ("1", ["gpu1"]),
        ("GPU-b,GPU-a", ["gpu1", "gpu0"]),
        ("0,7,1", ["gpu0"]),
        ("1,1", ["gpu1"]),
        ("", ["cpu0"]),
        ("-1", ["cpu0"]),
    ],
)
def test_a_batch_trains_on_the_gpus_that_are_visible(
    monkeypatch: pytest.MonkeyPatch, told: str | None, slots: list[str]
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: CARDS)
    if told is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told)
    assert [slot.name for slot in LocalExecutor(ExecutorConfig(), "auto").slots] == slots
    assert [slot.name for slot in LocalExecutor(ExecutorConfig(gpus=(0,)), "auto").slots] == ["gpu0"]


def test_visible_devices_that_are_not_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: CARDS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    with pytest.raises(ExecutorError, match="CUDA_VISIBLE_DEVICES: MIG-1: names no GPU that is here"):
        LocalExecutor(ExecutorConfig(), "auto")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ExecutorError, match=r"training.device: cuda: CUDA_VISIBLE_DEVICES hides every GPU"):
        LocalExecutor(ExecutorConfig(), "cuda")


@pytest.mark.parametrize("indices", [(0, 1), "auto"])
def test_every_gpu_is_a_slot_by_its_uuid(monkeypatch: pytest.MonkeyPatch, indices: Any) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: CARDS)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    executor = LocalExecutor(ExecutorConfig(gpus=indices), "auto")
    assert [(slot.name, slot.gpu) for slot in executor.slots] == [("gpu0", "GPU-a"), ("gpu1", "GPU-b")]
    with pytest.raises(ExecutorError, match=r"executor.gpus: \[7\]: no such GPU; NVML sees 0 \(H200\), 1 \(H200\)"):
        LocalExecutor(ExecutorConfig(gpus=(7,)), "auto")


def frozen_at_its_end(engine: Engine) -> int:
    """Return a supervisor that stands still, and seems to have told its end."""
    job, handles = engine.start("import time; time.sleep(0.3)")
    pid = int(handles[key_of(job)].split(":")[0])
    wait_for(job.start.exists)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt")
    job.exit.write_text("{}")
    return pid


@pytest.mark.contract
def test_a_supervisor_that_is_frozen_when_all_is_told_does_not_stay(engine: Engine) -> None:
    pid = frozen_at_its_end(engine)
    engine.executor.close()
    wait_for(lambda: not processes.start_ticks(pid))
