"""The Python API: a batch opened, planned, trained and looked at by a program, which says what it prints."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from command_line import surroundings
from docs_blocks import DOCS
from fake_batch import FakeBatch
from machine_here import machine_here

from splatbatch.errors import ConfigError
from splatbatch.run import api


@pytest.fixture(autouse=True)
def _as_a_program(batch: FakeBatch) -> Iterator[None]:
    with surroundings(batch), machine_here():
        yield


@pytest.fixture
def trained(batch: FakeBatch) -> api.Batch:
    """Return a batch of two patches that was trained."""
    opened = api.open_batch(batch.make("p0", "p1").config)
    assert api.train(opened).code == 0
    return opened


def test_a_batch_is_planned_and_trained_and_nothing_is_printed_to_stdout(
    batch: FakeBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = api.open_batch(batch.make("p0", "p1").config, ["p1"])
    assert api.plan(opened).to_train == ("p1",)
    ended = api.train(opened)
    assert (ended.exit_code, [one.patch for one in ended.done]) == (0, ["p1"])
    assert [one.state for one in api.status(opened.whole())] == ["waiting", "trained"]
    assert api.plan(opened).to_train == ()
    assert capsys.readouterr().out == ""


def test_results_and_splats_are_read_as_numpy(trained: api.Batch) -> None:
    results = api.results(trained)
    assert list(results) == ["p0", "p1"]
    splat = api.gaussians(trained, "p0")
    assert splat.means.shape == (results["p0"].num_gaussians, 3)
    assert np.isfinite(splat.scales).all()


def test_a_patch_without_a_splat_is_an_error_that_says_so(batch: FakeBatch) -> None:
    opened = api.open_batch(batch.make("p0").config)
    assert api.results(opened) == {}
    with pytest.raises(ConfigError, match="p0: has no splat yet"):
        api.gaussians(opened, "p0")


def test_what_fails_is_told_and_is_trained_again_when_somebody_insists(batch: FakeBatch) -> None:
    batch.make("p0", retry={"max_attempts": 1}).script(p0=["exit 1 CUDA error: out of memory", "train"])
    opened = api.open_batch(batch.config)
    ended = api.train(opened)
    assert (ended.exit_code, ended.requested[0].cause) == (1, "cuda_oom")
    assert api.train(opened, api.TrainOptions(is_retry=True)).exit_code == 0


def test_who_asked_hears_of_what_is_made_and_has_the_report_again(trained: api.Batch) -> None:
    heard: list[Any] = []
    ended = api.train(trained, show=heard.append)
    assert [type(one).__name__ for one in heard] == ["RunSummary"]
    assert heard[0].statuses == ended.statuses
    assert [row.patch for row in api.write_report(trained).patches] == ["p0", "p1"]


def test_signals_mean_to_a_program_what_they_meant_before(batch: FakeBatch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    api.train(api.open_batch(batch.make("p0").config))
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.contract
def test_a_batch_can_be_trained_from_a_thread(batch: FakeBatch) -> None:
    opened, codes = api.open_batch(batch.make("p0").config), list[int]()
    thread = threading.Thread(target=lambda: codes.append(api.train(opened).exit_code))
    thread.start()
    thread.join(60)
    assert codes == [0]


def test_what_the_page_shows_runs(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(batch.make("p0").folder)
    blocks = (DOCS / "python.md").read_text().split("```python\n")[1:]
    exec("".join(block.partition("```")[0] for block in blocks), {})
    said = capsys.readouterr().out
    assert said.startswith("p0 Missing ") and "0 ['p0']" in said
    assert "{'patch': 'p0', 'psnr': " in said and "{'ended': '1 of 1 patches trained'}" in said


def test_the_page_names_every_function() -> None:
    page = (DOCS / "python.md").read_text()
    functions = [name for name in api.__all__ if name.islower()]
    assert len(functions) == 13
    assert [name for name in functions if f"| `{name}(" not in page] == []
