"""What the tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_batch import SHARED, FakeBatch
from hypothesis import settings

# hundreds of processes are started: none of them compiles the package anew, none starts threads that it has no use for
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# 200 ms for an example, its own limit, is nothing on a machine that has other work
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="Run the tests that are marked long, too: about an hour.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the long tests say that they did."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, words in report.user_properties:
                if name == "did":
                    terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {words}")


@pytest.fixture
def batch(tmp_path: Path) -> FakeBatch:
    return FakeBatch(tmp_path)


@pytest.fixture
def real_photos() -> Path:
    folder = SHARED / "data" / "caliterra-small"
    if not folder.is_dir():
        pytest.skip("the real photographs (shared/data/caliterra-small) are not here")
    return folder
