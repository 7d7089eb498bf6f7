"""One task made by itself, at the word of a command: by the loop of a batch, but what fails there is an error here."""

from __future__ import annotations

import contextlib

from splatbatch.config import Config
from splatbatch.errors import ExecutorError, SceneError, SplatbatchError, TrainerError
from splatbatch.files import read_tail
from splatbatch.machine.local import LocalExecutor
from splatbatch.outcome import Diagnosis, Exited, Failed, Stopped
from splatbatch.plain_text import one_line
from splatbatch.scheduler.loop import Runner
from splatbatch.scheduler.rounds import Rounds
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.tasks.task import Task

SAYS = "splatbatch: "
"""What a process of ours that knows why it ends says before the reason."""


def make(config: Config, task: Task, rounds: Rounds, verb: str) -> None:
    """Make the product of a task, which is no splat; the output lock must be held.

    Args:
        config: of the batch.
        task: whose product is small: it is made however little room there is.
        rounds: what is asked and called meanwhile.
        verb: begins the message of an error.

    Raises:
        SplatbatchError: it could not be made: why, and where the log of its process lies.
        ExecutorError: there is no slot for it here.
    """
    home = task.home(OutputFolder(config.output.folder))
    before = len(home.attempts())
    limits = config.limits.model_copy(update={"free_disk_mib": 0})
    with contextlib.closing(LocalExecutor(config.executor, config.training.device)) as executor:
        runner = Runner(config.model_copy(update={"limits": limits}), executor, Ledger(None))
        outcome = runner.run([task], rounds).get(task.name, Stopped(rounds.stop()))
    match outcome:
        case Failed(diagnosis=why):
            raise _failure(verb, home.attempts()[before:], why)
        case Stopped(reason=by):
            raise SplatbatchError(f"{verb}: stopped ({by}); nothing was measured", "Run it again.")
        case _:
            return


def _failure(verb: str, attempts: list[AttemptFolder], why: Diagnosis) -> SplatbatchError:
    """Return why a task came to nothing: its process knew, or it was diagnosed."""
    if not attempts:
        reason = one_line("; ".join(why.evidence) or why.advice)
        return ExecutorError(f"no slot became free: {reason}", "See cooldown.longest_s, and nvidia-smi.")
    folder = attempts[-1]
    place, told = f"The log of its process: {folder.log}", folder.read_exit()
    kinds = {kind.exit_code: kind for kind in (SceneError, TrainerError)}
    said = [line for line in read_tail(folder.log).splitlines() if line.startswith(SAYS)]
    if told and isinstance(told.end, Exited) and told.end.code in kinds and said:
        return kinds[told.end.code](f"{verb}: {said[-1].removeprefix(SAYS)}", place)
    if why.cause == "no_record":
        return SplatbatchError(f"{verb}: {why.advice}", place)
    evidence = f" ({one_line(why.evidence[-1])})" if why.evidence else ""
    advice = why.advice.partition(" Try: ")[0]  # what is to be typed is of a training
    return SplatbatchError(f"{verb}: {why.cause}: {advice}{evidence}", place)
