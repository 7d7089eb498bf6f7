"""A process about the whole scene, run as an attempt: on a slot that is free, supervised, its end told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from splatbatch.config import Config
from splatbatch.errors import ExecutorError
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.protocol import Executor, Handle, Key, Seen, Slot, verdict
from splatbatch.machine.slots import Slots
from splatbatch.outcome import Exit, Lost
from splatbatch.scheduler import judge
from splatbatch.scheduler.judge import Order
from splatbatch.store.attempt_folder import Attempt, AttemptFolder
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.results import batch_name

POLL_S = 0.05
PATIENCE_S = 10.0
"""After the grace: then SIGKILL."""


@dataclass(frozen=True)
class Errand:
    """What is to be run about the whole scene."""

    name: str
    """In the key of the attempt."""
    home: PatchFolder
    """Where its attempts lie."""
    prepare: Callable[[AttemptFolder], tuple[str, ...]]
    """Writes what the process reads; returns its command."""


@dataclass(frozen=True)
class Hooks:
    """What is asked and called while it runs."""

    stop: Callable[[], str] = lambda: ""
    """Asked whether to stop, and why."""
    beat: Callable[[], None] = lambda: None


def run(config: Config, errand: Errand, hooks: Hooks = Hooks()) -> tuple[AttemptFolder, Exit]:
    """Run a process to its end; the output lock must be held.

    Raises:
        ExecutorError: no slot becomes free, or there is none here.
        OSError: the attempt's folder cannot be made.
    """
    with contextlib.closing(LocalExecutor(config.executor, config.training.device)) as executor:
        slot = _free_slot(executor, config, hooks)
        errand.home.path.mkdir(parents=True, exist_ok=True)
        with judge.next_attempt(errand.home) as folder:
            key = f"{batch_name(OutputFolder(config.output.folder))}.{errand.name}.a{folder.number}"
            order = Order(key, errand.prepare(folder), slot)
            judge.write_job(Attempt(errand.name, folder), order, config.limits)
        handle = executor.submit(key, folder)
        end = _end_of(executor, (key, handle), folder, config.limits.grace_s, hooks)
        judge.tidy(folder)
        return folder, end


def _free_slot(executor: Executor, config: Config, hooks: Hooks) -> Slot:
    """Return a slot whose GPU is free, as soon as one is."""
    slots = Slots(executor.slots(), config.cooldown, executor.shared_mib)
    while not isinstance(offered := slots.offer(None, now := time.monotonic()), Slot):
        slots.give_up_overdue(now)
        if not len(slots) or hooks.stop():
            raise ExecutorError(f"no slot became free: {offered.reason}", "See cooldown.longest_s, and nvidia-smi.")
        hooks.beat()
        time.sleep(POLL_S)
    return offered


def _end_of(
    executor: Executor, running: tuple[Key, Handle], folder: AttemptFolder, grace_s: float, hooks: Hooks
) -> Exit:
    handles, kill_at = dict([running]), float("inf")
    while True:
        seen: Seen = executor.poll(handles)[running[0]]
        if (end := verdict(folder.read_exit(), seen)) is not None:
            return end
        if hooks.stop() and kill_at == float("inf"):
            executor.cancel(handles)
            kill_at = time.monotonic() + grace_s + PATIENCE_S
        if time.monotonic() > kill_at:
            executor.kill(handles)
            return folder_end(folder)
        hooks.beat()
        time.sleep(POLL_S)


def folder_end(folder: AttemptFolder) -> Exit:
    """Return what an attempt that was ended by SIGKILL has told."""
    told = folder.read_exit()
    return told.end if told else Lost("it did not listen, and was ended by SIGKILL")
