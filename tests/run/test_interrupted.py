"""Ctrl-C: every command ends with 130 and one sentence, also while a store is away."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch
from in_process_courier import InProcessCourier

from splatbatch.config.yaml.source import YamlSource
from splatbatch.errors import CutOffError, Interrupted
from splatbatch.isolated import StopRequested
from splatbatch.run import interruption, travel
from splatbatch.transfer import courier


def away(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
    raise CutOffError("the store does not answer")


@pytest.mark.parametrize("ask", [travel.status_of, lambda url: travel.cancel_in(url, [])])
def test_ctrl_c_while_a_store_is_away_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], object]
) -> None:
    monkeypatch.setattr(travel.exchange, "list_store", away)
    monkeypatch.setattr(courier, "Courier", InProcessCourier)
    with pytest.raises(Interrupted) as told:
        ask(str(tmp_path))
    assert told.value.exit_code == 130


def test_a_stop_that_was_heard_leaves_as_an_interruption() -> None:
    with pytest.raises(Interrupted) as told, interruption.Interruption():
        signal.raise_signal(signal.SIGTERM)
        raise StopRequested("SIGTERM")
    assert (told.value.exit_code, told.value.message) == (143, "interrupted (SIGTERM)")


@pytest.mark.parametrize("command", ["plan", "status", "report", "clean", "merge", "config show", "verify-dims"])
def test_ctrl_c_in_any_command_is_130_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(YamlSource, "read", pressed)
    ended = invoke(*command.split(), batch=FakeBatch(tmp_path).make("p0"))
    assert (ended.code, ended.err) == (130, "splatbatch: interrupted (SIGINT)\n")
