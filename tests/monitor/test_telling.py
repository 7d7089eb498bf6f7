"""How far something is: told after five seconds and every ten, with an estimate."""

from __future__ import annotations

from pathlib import Path

import pytest
from cut_quarry import lay_out

from splatbatch.files import append_line
from splatbatch.monitor import messages
from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import ProgressLine
from splatbatch.run.progress import ProgressPrinter
from splatbatch.tasks.audits import audit_for_all
from splatbatch.tasks.batch import open_batch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(messages.time, "monotonic", lambda: now[0])
    return now


def test_what_takes_less_than_five_seconds_says_nothing(clock: list[float]) -> None:
    said = list[str]()
    lines = PipeWriter(said.append)
    for second in range(5):
        clock[0] = 100.0 + second
        lines.advance("merge", second, 4)
    assert said == []


def test_what_takes_longer_says_how_far_it_is_and_how_long_it_will_take(clock: list[float]) -> None:
    said = list[str]()
    lines = PipeWriter(said.append)
    for second in range(31):
        clock[0] = 100.0 + second
        lines.advance("merge", 1000 * second, 30_000)
    assert said[0] == "merge: 5,000 of 30,000 Gaussians, about 0:00:25 to go"
    assert len(said) == 3


def test_the_process_of_a_task_is_followed_by_its_progress(tmp_path: Path, clock: list[float]) -> None:
    home = OutputFolder(tmp_path / "output").patch("p0")
    said = list[str]()
    steps = ProgressPrinter("inspect p0", home, PipeWriter(said.append))
    folder = AttemptFolder(home.path / "attempt-01")
    folder.path.mkdir(parents=True)
    clock[0] = 101.0  # nothing is said of a process that has not begun
    steps.look()
    for second in range(8):
        clock[0] = 102.0 + second
        append_line(
            folder.progress, ProgressLine(phase="surface", step=second, max_steps=16).to_record(), durable=False
        )
        steps.look()
    assert said == ["inspect p0: 5 of 16 steps (surface), about 0:00:11 to go"]


def test_the_audit_says_how_far_it_is(tmp_path: Path) -> None:
    lay_out(tmp_path / "quarry")
    batch = open_batch(tmp_path / "quarry/splat_config.yml")
    heard = list[tuple[int, int]]()
    audit_for_all(batch, advance=lambda done, total: heard.append((done, total)))
    assert [done for done, _ in heard] == [*range(1, len(heard) + 1)] and heard[-1][0] == heard[-1][1] >= 2
