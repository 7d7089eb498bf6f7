"""What a run does beside training, while patches train."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from splatbatch.run.context import LOADS_REPORT_S, RunContext


def test_what_fails_while_a_report_is_loaded_is_tried_once_and_ends_no_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []

    def broken() -> None:
        tries.append(1)
        raise OSError("page.html.j2: No such file or directory")

    part: Any = SimpleNamespace(tick=tuple)
    context = RunContext(part, part, part, part, part, part, part, None)
    monkeypatch.setattr("splatbatch.report.load", broken)
    context.tick()
    assert tries == []
    context.opened_at -= LOADS_REPORT_S
    context.tick()
    context.tick()
    assert tries == [1]
