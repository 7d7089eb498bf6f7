"""What the tests share."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cost import Cost
from fake_batch import ROOT, SHARED, FakeBatch
from hypothesis import settings
from made_here import make_here

from splatbatch.machine.gpu import gpus
from splatbatch.scheduler import single

# hundreds of processes are started: none of them compiles the package anew, none starts threads that it has no use for
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # what pytest makes of each assert takes longer to make than to import
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# what commands of tests have read of files is none of the user's
os.environ["SPLATBATCH_CACHE"] = tempfile.mkdtemp(prefix="splatbatch-cache-")

# a shell that starts us in the background has Ctrl-C ignored, also by all that we start: tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# 200 ms for an example, hypothesis's own limit, is nothing on a machine that has other work
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("all", deadline=None, max_examples=25)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile("quick")

collect_ignore = [] if gpus() else ["gpu"]

TOGETHER = (
    "tests/commands/test_merge_command.py",
    "tests/commands/test_begin.py",
    "tests/commands/test_capture_command.py",
    "tests/commands/test_inspect_command.py",
    "tests/docs/test_blocks.py",
    "tests/engines/test_contract.py",
    "tests/engines/test_ray.py",
    "tests/engines/test_slurm.py",
    "tests/publish/test_globe.py",
    "tests/publish/test_hand_over_page.py",
    "tests/publish/test_publish_command.py",
    "tests/report/test_browser.py",
    "tests/report/test_kinds_in_browser.py",
    "tests/report/test_viewer.py",
    "tests/scheduler/test_scheduler_bars.py",
    "tests/tasks/test_sweep_bars.py",
    "tests/training/test_dropping.py",
    "tests/training/test_inspection.py",
    "tests/training/test_interpreted_kernels.py",
)
"""Files whose tests share what takes seconds to make: one worker runs them all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="Run the tests that are marked slow, too, as CI does.")
    parser.addoption("--long", action="store_true", help="Run those that are marked slow or long: about an hour.")
    parser.addoption("--cost", type=int, metavar="N", help="Name the N tests that took most CPU seconds, and the sum.")
    parser.addoption("--engines", action="store_true", help="Run those of engines, long ones too; they must be here.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("long")
    elif config.getoption("--all"):
        settings.load_profile("all")
    if shown := config.getoption("--cost"):
        config.pluginmanager.register(Cost(shown))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out test by test, but for the files that stay together."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if path in TOGETHER else nodeid

    return Scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not is_asked_for(item, config)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # what takes long ends beside the rest


def is_asked_for(item: pytest.Item, config: pytest.Config) -> bool:
    """Return whether a test runs by these options, on this machine."""
    if item.get_closest_marker("gpu") and not gpus():
        return False
    if config.getoption("--engines") and item.path.parent == ROOT / "tests/engines":
        return True
    if item.get_closest_marker("long"):
        return bool(config.getoption("--long"))
    if slow := item.get_closest_marker("slow"):
        is_the_quick_one = hasattr(item, "callspec") and item.callspec.id == slow.kwargs.get("but")
        return bool(config.getoption("--all") or config.getoption("--long")) or is_the_quick_one
    return True


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
def made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge, publish and certify in the process of the test."""
    monkeypatch.setattr(single, "make", make_here)


@pytest.fixture
def real_photos() -> Path:
    folder = SHARED / "data" / "caliterra-small"
    if not folder.is_dir():
        pytest.skip("the real photographs (shared/data/caliterra-small) are not here")
    return folder
