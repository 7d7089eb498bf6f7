"""A batch trained from its first attempt to its last, and what a run that died has left of it taken over."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping

from splatbatch import config as configuration
from splatbatch.config import Recipe
from splatbatch.doctor.preflight import preflight
from splatbatch.errors import ConfigError
from splatbatch.fields import mapping
from splatbatch.files import Record, is_out_of_space, read_json, sweep, write_text
from splatbatch.machine.local import open_executor
from splatbatch.machine.orphans import earlier_run
from splatbatch.machine.protocol import Seen
from splatbatch.machine.verdict import verdict
from splatbatch.outcome import Outcome, Trained
from splatbatch.scene.patches import Patch
from splatbatch.scheduler import judge
from splatbatch.scheduler.finalize import Ending, Rules, settle
from splatbatch.scheduler.loop import Runner
from splatbatch.scheduler.running import Work
from splatbatch.store.attempt_folder import Attempt, AttemptFolder
from splatbatch.store.layout import PatchFolder, never_went
from splatbatch.store.ledger import Ledger, judged_attempts
from splatbatch.tasks import footprints
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.fingerprint import fingerprint
from splatbatch.tasks.fingerprints.inputs import files_from_record, with_content
from splatbatch.tasks.forecast import check_place, forecast
from splatbatch.trainers import open_trainer
from splatbatch.trainers.usable import check_usable


def run(
    batch: Batch, ledger: Ledger, *, stop: Callable[[], str], beat: Callable[[], None], is_retry: bool = False
) -> Mapping[str, Outcome]:
    """Train the patches of a batch; the output lock must be held.

    Args:
        batch: what is trained.
        ledger: the history.
        stop: asked in every round; a reason ends what runs and starts nothing more.
        beat: called in every round.
        is_retry: what is accepted stays if it is better.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
    """
    check_usable(batch.recipes())
    names = [patch.name for patch in batch.patches]
    expected = footprints.needs(batch.config, batch.patches, batch.changes)
    outlook = forecast(batch, names, expected)
    check_place(batch, outlook)
    unwell = preflight(batch.config, dict(zip(names, batch.recipes(), strict=True)), expected)
    with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
        write_text(batch.output.config, configuration.to_yaml(batch.config))
        ledger.write(
            "batch_started",
            patches=names,
            slots=[slot.name for slot in executor.slots()],
            changes=dict(batch.changes),
        )
        ledger.write("forecast", **outlook.to_record(), text=outlook.in_words())
        for finding in unwell:
            ledger.write("unwell", check=finding.check, message=finding.message)
        footprints.record(expected, batch.config, ledger)
        earlier_run.stop_orphans(executor, batch.output, ledger, batch.config.limits.grace_s, beat)
        works = [
            Work(
                patch,
                dict(batch.changes),
                recipe.training.max_steps,
                expected.get(patch.name),
                asked=dict(batch.changes),
                is_retry=is_retry,
            )
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
    for patch in batch.patches:  # also of what was settled: its result is written again when more is known of it
        sweep(batch.output.patch(patch.name).path)
    settled = judged_attempts(batch.output.ledger)
    left = [
        (patch, folder)
        for patch in batch.patches
        for folder in batch.output.patch(patch.name).attempts()
        if (patch.name, folder.number) not in settled and not (folder.cancel.exists() and not folder.start.exists())
    ]
    if any(not folder.exit.exists() for _, folder in left):
        with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
            earlier_run.stop_orphans(executor, batch.output, ledger, batch.config.limits.grace_s, beat)
    for patch, folder in left:
        try:
            _adopt(batch, patch, folder, ledger)
        except OSError as error:
            if is_out_of_space(error):
                raise  # of others its patch is told when its turn comes


def _adopt(batch: Batch, patch: Patch, folder: AttemptFolder, ledger: Ledger) -> None:
    judge.tidy(folder)
    if never_went(folder):
        shutil.rmtree(folder.path, ignore_errors=True)
    elif folder.start.exists():
        _adopt_attempt(batch, patch, folder, ledger)
    else:
        folder.cancel.touch()


def _adopt_attempt(batch: Batch, patch: Patch, folder: AttemptFolder, ledger: Ledger) -> None:
    end = verdict(read_json(folder.exit), Seen(is_running=False, reason="the run that started it has died"))
    if end is None:
        return
    job = read_json(folder.job) or {}
    then = mapping(job.get("depends_on"))
    attempt = Attempt(patch.name, folder, mapping(job.get("changes")), then, bool(job.get("is_retry")))
    try:
        recipe = batch.config.recipe(patch.name, attempt.changes)
    except ConfigError:  # settings of another version, or of nobody: what they made is not what would be trained today
        then, recipe = {}, batch.config.recipe(patch.name)
    outcome = judge.judge(folder, open_trainer(recipe), end)
    # what it trained counts only if it is what would be trained today
    product = batch.output.patch(patch.name)
    counts = _is_of_today(then, patch, batch.config.recipe(patch.name)) and not _is_superseded(folder, product)
    settle(
        Ending(attempt, end, outcome), product, ledger, Rules(counts, batch.config.retry.keep == "better"), adopted=True
    )


def _is_superseded(folder: AttemptFolder, product: PatchFolder) -> bool:
    """Return whether a later attempt is accepted: the ledger has lost this one's end, which brings no splat back."""
    accepted = (read_json(product.result) or {}).get("attempt")
    return any(one.path.name == accepted and one.number > folder.number for one in product.attempts())


def _is_of_today(then: Record, patch: Patch, recipe: Recipe) -> bool:
    now, files = fingerprint(patch, recipe), files_from_record(then.get("files"))
    same_hashes = (then.get("recipe"), then.get("inputs")) == (now.recipe, now.inputs)
    return same_hashes and not with_content(now.files, files, patch, recipe)[1]
