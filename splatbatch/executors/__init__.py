"""WHERE an attempt runs. An engine starts the supervisor somewhere; all else are files."""

from splatbatch import gpu
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.executors.local import LocalExecutor
from splatbatch.executors.protocol import Executor, Handle, Job, Key, Seen, Slot
from splatbatch.executors.verdict import verdict

__all__ = ["Executor", "Handle", "Job", "Key", "Seen", "Slot", "open_executor", "verdict"]


def open_executor(config: ExecutorConfig, device: str) -> Executor:
    """Return the executor of a config for a training device (`auto`, `cuda`, `cpu`).

    Raises:
        ExecutorError: it cannot run here.
    """
    on_cpu = device == "cpu" or config.gpus == () or (device == "auto" and config.gpus == "auto" and not gpu.gpus())
    return EXECUTORS[config.kind](config, on_cpu=on_cpu)


EXECUTORS = {"local": LocalExecutor}
