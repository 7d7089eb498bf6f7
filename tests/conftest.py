"""What the tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import pytest
from cost import Cost
from fake_batch import ROOT, SHARED, FakeBatch
from fake_trainer import SCRIPT_VARIABLE, FakeTrainer
from hypothesis import settings
from made_here import make_here
from quick import EXEMPT, WATCH
from told import ToldHere
from turns import CLOCK, Clock

from splatbatch.machine.gpu import gpus
from splatbatch.monitor import notify
from splatbatch.scheduler import single
from splatbatch.trainers import TRAINERS

# hundreds of processes are started: none of them compiles the package anew, none starts threads that it has no use for
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # what pytest makes of each assert takes longer to make than to import
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

gc.disable()  # until all tests are collected

# a disk takes 10 ms for each fsync, and a night has dozens: what tests write lies in memory where there is room for it
MEMORY, ROOM_BYTES = Path("/dev/shm"), 6 << 30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize >= ROOM_BYTES and not room.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# what commands of tests have read of files is none of the user's
CACHE = tempfile.mkdtemp(prefix="splatbatch-cache-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
os.environ["SPLATBATCH_CACHE"] = CACHE

# a shell that starts us in the background has Ctrl-C ignored, nohup the end of the terminal, also by all that we start:
# tests send both
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# 200 ms for an example, hypothesis's own limit, is nothing on a machine that has other work
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("all", deadline=None, max_examples=25)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile("quick")

collect_ignore = [] if gpus() else ["gpu"]

ONE_WORKER = {
    "tests/report/test_external_night.py": "external night",
    "tests/splats/test_ply.py": "gsply",
    "tests/splats/test_preview.py": "gsply",
    **{f"tests/training/test_{name}_kernels.py": "kernels" for name in ("blend", "list", "loss", "project", "step")},
    "tests/training/test_kernel_rendering.py": "kernels",
}
"""Files whose tests share what a process takes seconds to load or to compile."""
HANGS_SECONDS = 1200
"""The slowest test takes half of it on a busy machine; a long one has ten times that."""
ENGINES = ("slurm",)
"""Those whose site takes long to put up."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="Run the tests that are marked all, too, as CI does.")
    parser.addoption("--long", action="store_true", help="Run those that are marked all or long: about an hour.")
    parser.addoption("--cost", type=int, metavar="N", help="Name the N tests that took most CPU seconds, and the sum.")
    parser.addoption("--engines", action="store_true", help="Run those of engines, long ones too; they must be here.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("long")
    elif config.getoption("--all"):
        settings.load_profile("all")
    if shown := config.getoption("--cost"):
        config.pluginmanager.register(Cost(shown))


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests are no garbage: looking them through took a tenth of the time of collecting them
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Fail a test that hangs: it would hold up all others until CI is ended. What it waits in is shown."""
    signal.signal(signal.SIGALRM, _fail_for_hanging)
    signal.alarm(HANGS_SECONDS * (10 if item.get_closest_marker("long") else 1))
    try:
        return (yield)
    finally:
        signal.alarm(0)


def _fail_for_hanging(*_: object) -> None:
    pytest.fail("it hangs")


def pytest_unconfigure() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out test by test, but for those that share what takes seconds to make: one worker runs them all."""
    from xdist.scheduler import LoadScopeScheduling

    files = (ROOT / "tests").rglob("test_*.py")
    whole = {str(path.relative_to(ROOT)) for path in files if 'scope="module"' in path.read_text()}

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            for engine in ENGINES:
                if path == f"tests/cluster/test_{engine}.py" or f"[{engine}" in nodeid:
                    return engine
            return ONE_WORKER.get(path, path if path in whole else nodeid)

    return Scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = {item for item in items if is_asked_for(item, config)}
    config.hook.pytest_deselected(items=[item for item in items if item not in asked])
    items[:] = [item for item in items if item in asked]
    items.sort(key=lambda item: item.get_closest_marker("all") is None)  # what takes long ends beside the rest
    for item in items:
        # lines are counted of the gate, which is to reach nine tenths, and of trainings: elsewhere counting is dear
        if is_slow(item) and item.path.parent.name != "training":
            item.add_marker(pytest.mark.no_cover)


def is_asked_for(item: pytest.Item, config: pytest.Config) -> bool:
    """Return whether a test runs by these options, on this machine."""
    if item.get_closest_marker("gpu") and not gpus():
        return False
    if config.getoption("--engines") and item.path.parent == ROOT / "tests/cluster":
        return True
    if item.get_closest_marker("long"):
        return bool(config.getoption("--long"))
    goes_on = config.getoption("--all") or config.getoption("--long")
    return bool(goes_on) if is_slow(item) else not (goes_on and item.get_closest_marker("part"))


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is marked all, and is not the case of it that runs all the same."""
    if not (slow := item.get_closest_marker("all")):
        return False
    quick = slow.kwargs.get("but", ())
    return not (hasattr(item, "callspec") and item.callspec.id in ((quick,) if isinstance(quick, str) else quick))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the long tests say that they did."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, words in report.user_properties:
                if name == "figure":
                    terminalreporter.write_line(f"figure: {words} ({report.nodeid.rpartition('::')[2]})")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End commands that take turns with the test before its fixtures go, on which they stand."""
    command_line.end_all()


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of the gate that sleeps or starts a process."""
    item = request.node
    WATCH.has_started = False
    if is_slow(item) or any(item.get_closest_marker(mark) for mark in EXEMPT if mark != "all"):
        yield
        return
    WATCH.seen = Counter()
    try:
        yield
    finally:
        seen, WATCH.seen = WATCH.seen, None
    if path := os.environ.get("QUICK_LOG"):
        with Path(path).open("a") as file:
            file.writelines(f"{item.nodeid}\t{num}\t{what}\n" for what, num in seen.items())
    if seen:
        told = "\n".join(f"{what}, {num} times" for what, num in seen.most_common(5))
        pytest.fail(f"a test of the gate takes no time; mark it `all`, or as a journey or contract:\n{told}", False)


@pytest.fixture
def batch(tmp_path: Path) -> FakeBatch:
    return FakeBatch(tmp_path)


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge, publish and certify in the process of the test."""
    monkeypatch.setattr(single, "make", make_here)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock that goes on where this process would wait; commands in it have one anyway."""
    with CLOCK.of_commands():
        yield CLOCK


@pytest.fixture
def told_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep notifications in the file that their command names last."""
    monkeypatch.setattr(notify, "Hook", ToldHere)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the fake trainer train a scene that is no FakeBatch; what a test writes here is its script."""
    path = tmp_path / "script.json"
    path.write_text("{}")
    monkeypatch.setenv(SCRIPT_VARIABLE, str(path))
    monkeypatch.setitem(TRAINERS, "gsplat", FakeTrainer)
    return path


@pytest.fixture
def real_photos() -> Path:
    folder = SHARED / "data" / "caliterra-small"
    if not folder.is_dir():
        pytest.skip("the real photographs (shared/data/caliterra-small) are not here")
    return folder
