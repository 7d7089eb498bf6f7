"""What tests cost in CPU seconds, their processes included: a busy machine hardly stretches these."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

START = pytest.StashKey[float]()


def used() -> float:
    """CPU seconds of this process and of those that it started and waited for."""
    return sum(os.times()[:4])


class Cost:
    """A plugin: it measures each test, the fixtures made for it included, and names the dearest in the end."""

    def __init__(self, shown: int) -> None:
        self._shown = shown

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        item.stash[START] = used()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            item.user_properties.append(("cpu_s", used() - item.stash[START]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = [r for kind in terminalreporter.stats.values() for r in kind if getattr(r, "when", "") == "teardown"]
        spent = sorted(((dict(r.user_properties).get("cpu_s", 0.0), r.nodeid) for r in reports), reverse=True)
        terminalreporter.section(f"{sum(s for s, _ in spent):.0f} CPU seconds in {len(spent)} tests; the dearest")
        for seconds, name in spent[: self._shown]:
            terminalreporter.write_line(f"{seconds:8.2f} {name}")
