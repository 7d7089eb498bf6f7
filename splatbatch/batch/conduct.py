"""A batch trained from its first attempt to its last, and what a run that died has left of it taken over."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping

from splatbatch import config as configuration
from splatbatch.attempt import Attempt, AttemptFolder
from splatbatch.batch import attempts, needs, results, twins
from splatbatch.batch.batch import Batch
from splatbatch.batch.endings import Ending, settle
from splatbatch.batch.folder import never_went
from splatbatch.batch.ledger import Ledger, judged_attempts
from splatbatch.batch.runner import Runner
from splatbatch.batch.work import Work
from splatbatch.executors import open_executor, verdict
from splatbatch.executors.protocol import Seen
from splatbatch.files import read_json, sweep, write_text
from splatbatch.outcome import Outcome, Trained
from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer
from splatbatch.trainers.usable import check_usable


def run(batch: Batch, ledger: Ledger, *, stop: Callable[[], str], beat: Callable[[], None]) -> Mapping[str, Outcome]:
    """Train the patches of a batch; the output lock must be held.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
    """
    check_usable(batch.recipes())
    with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
        write_text(batch.output.config, configuration.to_yaml(batch.config))
        ledger.write(
            "batch_started",
            patches=[patch.name for patch in batch.patches],
            slots=[slot.name for slot in executor.slots()],
            changes=dict(batch.changes),
        )
        expected = needs.needs(batch.config, batch.patches, batch.changes)
        needs.record(expected, batch.config, ledger)
        twins.let_go(executor, results.batch_name(batch.output), ledger, batch.config.limits.grace_s, beat)
        works = [
            Work(patch, dict(batch.changes), num_steps=recipe.training.max_steps, need=expected.get(patch.name))
            for patch, recipe in zip(batch.patches, batch.recipes(), strict=True)
        ]
        outcomes = Runner(batch.config, executor, ledger).run(works, stop=stop, beat=beat)
    trained = sum(isinstance(outcome, Trained) for outcome in outcomes.values())
    ledger.write("batch_ended", trained=trained, of=len(batch.patches), stopped=stop())
    return outcomes


def adopt(batch: Batch, ledger: Ledger, beat: Callable[[], None] = lambda: None) -> None:
    """Settle attempts whose parent died before it could, and accept what they trained; nothing is trained twice.

    Those that still run are stopped first; those that never started are barred from starting late.

    Raises:
        ExecutorError: an attempt may still run, and the engine that could tell cannot be asked here.
    """
    settled = judged_attempts(batch.output.ledger)
    left = [
        (patch, folder)
        for patch in batch.patches
        for folder in batch.output.patch(patch.name).attempts()
        if (patch.name, folder.number) not in settled and not (folder.cancel.exists() and not folder.start.exists())
    ]
    if any(not folder.exit.exists() for _, folder in left):
        with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
            twins.let_go(executor, results.batch_name(batch.output), ledger, batch.config.limits.grace_s, beat)
    for patch, folder in left:
        sweep(batch.output.patch(patch.name).path)
        attempts.tidy(folder)
        if never_went(folder):
            shutil.rmtree(folder.path, ignore_errors=True)
        elif folder.start.exists():
            _adopt_attempt(batch, patch, folder, ledger)
        else:
            folder.cancel.touch()


def _adopt_attempt(batch: Batch, patch: Patch, folder: AttemptFolder, ledger: Ledger) -> None:
    end = verdict(read_json(folder.exit), heartbeat_moves=False, seen=Seen("gone", "the run that started it has died"))
    if end is None:
        return
    job = read_json(folder.job) or {}
    attempt = Attempt(patch.name, folder, job.get("changes") or {}, job.get("depends_on") or {})
    outcome = attempts.judge(folder, open_trainer(batch.config.recipe(patch.name, attempt.changes)), end)
    # what it trained counts only if it is what would be trained today
    accepted = attempt.depends_on == vars(results.fingerprint(patch, batch.config.recipe(patch.name)))
    settle(Ending(attempt, end, outcome), batch.output.patch(patch.name), ledger, adopted=True, accepted=accepted)
