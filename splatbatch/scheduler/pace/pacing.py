"""What the loop does at the word of its pacer: standbys of another pace end, attempts that are far off begin again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatbatch.machine.protocol import Executor, Key
from splatbatch.machine.slots import Slots
from splatbatch.scheduler.launch import Launcher
from splatbatch.scheduler.pace.pacer import Waiting
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.running import Running, ask_to_end
from splatbatch.scheduler.standby import Standbys


@dataclass(frozen=True)
class Pacing:
    """Asks the pacer in every round."""

    executor: Executor
    launcher: Launcher
    slots: Slots
    standbys: Standbys

    def look(self, now: float, queue: Queue, running: Mapping[Key, Running]) -> None:
        """Look at how it goes, and do what follows."""
        ready = [one.task for one in self.standbys.everyone().values()]
        pace = self.launcher.pacer.paces
        again = self.launcher.pacer.look(now, Waiting(queue, ready, len(self.slots) * self.slots.seats), running)
        if self.launcher.pacer.paces != pace:
            for task in reversed(self.standbys.retire()):
                queue.put_back(task)
        for key in again:
            running[key].begins_again = True
        ask_to_end(self.executor, {key: running[key] for key in again})
