"""Facts that `explain` shows: the history of a patch, the diagnosis of any log, and the log of an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from splatbatch.config import find_config, load
from splatbatch.config.load import has_config
from splatbatch.errors import ConfigError, OutputError
from splatbatch.failures.causes import title
from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.settings import SettingDifference
from splatbatch.failures.signatures import site_signatures
from splatbatch.fields import mapping
from splatbatch.files import MIB, open_regular, read_regular
from splatbatch.outcome import Diagnosis, Exited
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.ledger import events
from splatbatch.output.log_ends import read_ends
from splatbatch.output.records.attempt import JobSpec
from splatbatch.report.build import OfAttempt, attempts_of
from splatbatch.report.facts import ReportedAttempt
from splatbatch.run.status import current_states
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import leaves, settings_of
from splatbatch.tasks.status import PatchStatus
from splatbatch.tasks.task import Task, single_task
from splatbatch.text import plain_text

OF_ATTEMPTS: tuple[type[OfAttempt], ...] = get_args(OfAttempt)
MOST_LOG_BYTES = 256 * MIB
"""Size in bytes of the largest log that is read; a larger one is refused. A supervisor keeps 16 MiB of a program's
output."""


@dataclass(frozen=True)
class ExplainedAttempt(ReportedAttempt):
    """An attempt as in the report, compared with the current YAML."""

    unlike_yaml: dict[str, Any] = field(default_factory=dict)
    """Settings of the attempt that differ from the current YAML, by full name. Without any, or if they are unknown,
    those that --set and rungs changed for it; empty: none, or its folder is gone."""


@dataclass(frozen=True)
class ExplainOutput:
    """Output of `explain PATCH --json`: the state of a patch and all its attempts.

    `set_otherwise` are the settings in which the patch differs from its batch.
    """

    patch: str
    status: PatchStatus
    cause_in_words: str
    set_otherwise: tuple[SettingDifference, ...]
    attempts: tuple[ExplainedAttempt, ...]


def explain_task(batch: Batch, task: Task) -> ExplainOutput:
    """Return the state of a task and all its attempts, as `explain --json` prints them; nothing is written.

    The batch must be opened for this task alone.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
        OSError: a mask was removed during the audit.
    """
    (status,) = current_states(batch)
    return ExplainOutput(task.name, status, title(status.cause), task.requested_settings.differences, attempts_at(task))


def attempts_at(task: Task) -> tuple[ExplainedAttempt, ...]:
    """Return the attempts at a task, first to last, from its ledger and its folders; () without any.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the record of the accepted splat.
    """
    history = [event for event in events(task.output, *OF_ATTEMPTS) if event.patch == task.name]
    folders = {folder.number: folder for folder in task.home.attempts()}
    today = settings_of(task.recipe)
    found = []
    for attempt in attempts_of(task.home, history):
        facts = dict(vars(attempt))
        if folder := folders.get(attempt.number):
            facts["num_gaussians"] = attempt.num_gaussians or folder.last_progress().num_gaussians
            facts["unlike_yaml"] = _unlike_yaml(folder, today)
        found.append(ExplainedAttempt(**facts))
    return tuple(found)


def _unlike_yaml(attempt: AttemptFolder, today: Mapping[str, object]) -> dict[str, Any]:
    recipe = attempt.read_settings().recipe
    if program := mapping(recipe.get("program")):  # only names of variables are compared, as in `today`
        recipe = {**recipe, "program": {**program, "env": sorted(mapping(program.get("env")))}}
    settings = leaves(recipe)
    differing = {key: settings[key] for key, value in leaves(today).items() if settings.get(key, value) != value}
    return differing or (attempt.read_job() or JobSpec()).changes


def diagnose_log_file(log: Path, exit_code: int | None, config: Path | None) -> Diagnosis:
    """Return the diagnosis of any log file, also that of another program's training.

    Args:
        log: the log file.
        exit_code: exit code of the program; None: unknown.
        config: YAML that names a file with your own failure signatures; None: the default YAML. Without any YAML only
            the built-in signatures are tried.

    Raises:
        ConfigError: the log, the YAML or its file of signatures cannot be read, or has mistakes.
    """
    signatures = site_signatures(load(find_config(config)).failures) if has_config(config) else ()
    try:
        open_regular(log).close()
    except OSError as error:
        raise ConfigError(f"{log}: cannot be read ({error.strerror})", "Name the log file of a training.") from error
    return diagnose(Evidence(None if exit_code is None else Exited(exit_code), *read_ends(log), own=signatures))


def attempt_of(batch: Batch, name: str, number: int | None) -> AttemptFolder:
    """Return the attempt at a patch with a number; None: the latest attempt.

    The batch must be opened for this patch alone.

    Raises:
        ConfigError: there is no such attempt, or the patch has several variants.
    """
    attempts = batch.output.patch(single_task(batch.tasks, name).name).attempts()
    if chosen := [folder for folder in attempts if number in (None, folder.number)]:
        return chosen[-1]
    have = ", ".join(str(folder.number) for folder in attempts) or "none"
    raise ConfigError(f"{name}: no attempt {number} (there are: {have})", f"See `splatbatch explain {name}`.")


def log_of(folder: AttemptFolder) -> str:
    """Return the log of an attempt as plain text, without control characters.

    Raises:
        OutputError: the log cannot be read, or is larger than `MOST_LOG_BYTES`.
    """
    try:
        return plain_text(read_regular(folder.log, MOST_LOG_BYTES).decode(errors="replace"))
    except OSError as error:
        message = f"{folder.log}: cannot be read ({error.strerror})"
        raise OutputError(message, "Check its permissions; `splatbatch explain` shows what else is known.") from error
