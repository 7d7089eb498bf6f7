"""WHERE workers run: an engine starts them, here or on a cluster; no task, log or result passes through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from splatbatch.cluster.engine import Engine
from splatbatch.config import Executor
from splatbatch.errors import ExecutorError


def _local(settings: Executor) -> Engine:
    from splatbatch.cluster.local import LocalEngine

    return LocalEngine(settings)


def _slurm(settings: Executor) -> Engine:
    from splatbatch.cluster.slurm import SlurmEngine

    return SlurmEngine(settings)


ENGINES: Mapping[str, Callable[[Executor], Engine]] = {"local": _local, "slurm": _slurm}
"""By `executor.engine`; each imports what it needs when it is asked for."""


def open_engine(settings: Executor, name: str = "") -> Engine:
    """Return the engine of a config, or, by its name, the one that was used earlier.

    Raises:
        ExecutorError: this version has no such engine.
    """
    wanted = name or settings.engine
    if wanted not in ENGINES:
        raise ExecutorError(f"executor.engine: {wanted}: this version cannot use it", f"Known: {', '.join(ENGINES)}.")
    return ENGINES[wanted](settings)
