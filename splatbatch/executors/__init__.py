"""WHERE an attempt runs. An engine starts the supervisor somewhere; all else are files."""

from splatbatch.config import Executor as ExecutorConfig
from splatbatch.executors.local import LocalExecutor
from splatbatch.executors.place import chosen_cards, is_on_cpu
from splatbatch.executors.protocol import Executor, Handle, Job, Key, Seen, Slot
from splatbatch.executors.verdict import verdict

__all__ = ["Executor", "Handle", "Job", "Key", "Seen", "Slot", "chosen_cards", "is_on_cpu", "open_executor", "verdict"]


def open_executor(config: ExecutorConfig, device: str) -> Executor:
    """Return the executor of a config for a training device (`auto`, `cuda`, `cpu`).

    Raises:
        ExecutorError: it cannot run here.
    """
    return LocalExecutor(config, chosen_cards(config, device))
