"""Whether the kernel's OOM killer struck in our control group while the attempt ran."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = (  # cgroup v2, then v1
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


class OomWatch:
    """Compares the `oom_kill` counters of now with those at the start."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def struck(self) -> bool:
        """Return True if the counter has moved since."""
        return _oom_kills() > self._before


def _oom_kills() -> int:
    return sum(_counter(path) for path in (*_own_groups(), *_COUNTERS))


def _own_groups() -> list[Path]:
    """Return the event files of the control groups that this process is in (cgroup v2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    names = [line.split(":", 2)[2].lstrip("/") for line in lines if line.startswith("0::")]
    return [Path("/sys/fs/cgroup") / name / "memory.events" for name in names if name]


def _counter(path: Path) -> int:
    try:
        pairs = (line.split() for line in path.read_text().splitlines())
        return sum(int(value) for key, value in pairs if key == "oom_kill")
    except (OSError, ValueError):
        return 0
