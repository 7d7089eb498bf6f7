"""Accepting the splat of another attempt as the product of its patch."""

from __future__ import annotations

from splatbatch.errors import ConfigError
from splatbatch.hashing import sha256_of
from splatbatch.isolated import ENDLESS
from splatbatch.monitor.messages import print_err
from splatbatch.output import results
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import Accepted
from splatbatch.output.exclusive import hold
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.result import Result
from splatbatch.run.context import write_the_report
from splatbatch.run.explain import attempt_of
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.tasks.task import single_task
from splatbatch.tasks.upkeep import ContentHasher


def accept(batch: Batch, name: str, number: int) -> Result:
    """Make the splat of an attempt the product of its patch, as if trained with the current settings and inputs.

    So the patch counts as up to date, and `train` keeps the splat until settings or inputs change. The ledger and the
    report record the acceptance.

    Args:
        batch: the batch, opened for this patch alone.
        name: the name of the patch, for messages.
        number: the number of the attempt.

    Returns:
        The record of the splat that is accepted.

    Raises:
        ConfigError: there is no such attempt, the patch has several variants, or the splat is missing or has changed.
        OutputError: another run holds the output folder, or a later version of splatbatch wrote the attempt's record.
        OSError: the files of the patch cannot be written.
    """
    task = single_task(batch.tasks, name)
    folder = batch.output.patch(task.name)
    attempt = attempt_of(batch, name, number)
    with hold(batch.output, batch.plan_hash, print_err):
        result = _manifest(folder, attempt, task.name)
        results.pin_to_inputs(folder, result, fingerprint(task.patch, task.recipe))
        Ledger(batch.output.ledger).write(Accepted(task.name, number))
        contents = ContentHasher(batch)  # so that a copy of the photographs is recognized later
        contents.want(task.name)
        contents.finish(ENDLESS)
    whole = batch.whole()
    write_the_report(whole, whole.standing())
    return result


def _manifest(folder: PatchFolder, attempt: AttemptFolder, name: str) -> Result:
    """Return the manifest of an attempt's splat, after comparing its SHA-256 with the file.

    Raises:
        ConfigError: the attempt left no splat, or the file is missing or has changed.
    """
    folder.read_result()  # for its errors: a result of a later version is not overwritten
    left = attempt.read_result()
    hint = f"See `splatbatch explain {name}`, or train the patch again: `splatbatch retry {name}`."
    which = f"accept {name}: attempt {attempt.number}"
    if left is None:
        raise ConfigError(f"{which} has no valid splat: {attempt.result} does not exist", hint)
    if not attempt.splat.exists():
        raise ConfigError(f"{which}: its splat file is missing: {attempt.splat}", hint)
    if sha256_of(attempt.splat) != left.sha256:
        raise ConfigError(
            f"{which}: its splat file has changed: the SHA-256 of {attempt.splat} differs from {attempt.result}", hint
        )
    return left
