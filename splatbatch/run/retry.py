"""Checks of patches and settings before and after `retry`."""

from __future__ import annotations

from splatbatch.errors import ConfigError
from splatbatch.outcome import Trained
from splatbatch.output.records.result import Result
from splatbatch.run.context import RunSummary
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.patch_state import UpToDate

TO_RETRY = ("failed", "stopped")
"""States of the patches that `retry --failed` trains."""


def check_due(batch: Batch) -> None:
    """Check that no patch is up to date under the requested changes; called before a retry without --force.

    Raises:
        ConfigError: a patch is up to date and was trained with these settings.
        LaterFormatError: a later version of splatbatch wrote the record of a splat.
    """
    standing = batch.standing("content")
    effective = {task.name: task.requested_settings.recipe_hash for task in batch.tasks}
    done = [
        name
        for name, wanted in effective.items()
        if isinstance(found := standing.state(name), UpToDate)
        and (not batch.changes or wanted == (found.result or Result()).trained_from.effective)
    ]
    if done:
        how = ", with these settings" if batch.changes else ""
        raise ConfigError(f"{', '.join(done)}: already trained and up to date{how}", "Add --force to train again.")


def check_savable(batch: Batch) -> None:
    """Check that the settings of --set can be saved into the YAML, before a patch is trained with them.

    Raises:
        ConfigError: no setting is given, a patch is a variant of a sweep, or the batch has no YAML file.
    """
    if not batch.changes:
        raise ConfigError("retry --save: there is nothing to save without --set", "Add --set KEY=VALUE.")
    batch.file  # noqa: B018 - for its error
    if variants := [task.name for task in batch.tasks if task.id.variant]:
        raise ConfigError(
            f"retry --save: {variants[0]} is a variant of a sweep", "Write its settings into `sweep` in the YAML."
        )


def kept_with_changes(ended: RunSummary) -> list[str]:
    """Return the patches that this run trained with the settings of --set, and whose accepted splat has these settings.

    Empty without --set.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the record of a splat.
    """
    batch = ended.batch
    trained = [name for name in batch.names if isinstance(ended.run.outcomes.get(name), Trained)]
    changes = {name: (batch.output.patch(name).read_result() or Result()).changes for name in trained}
    return [name for name in trained if batch.changes and batch.changes.items() <= changes[name].items()]
