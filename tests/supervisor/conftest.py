"""An attempt to be supervised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import PATIENCE_S, Attempts


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempts]:
    attempts = Attempts(tmp_path)
    yield attempts
    for process in attempts.started:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)
