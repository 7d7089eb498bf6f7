"""`train` and `retry`: the commands that train."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import typer

from splatbatch import config as configuration
from splatbatch.batch import conduct
from splatbatch.batch import plan as planning
from splatbatch.batch.batch import Batch, open_batch, refusals
from splatbatch.batch.ledger import Ledger
from splatbatch.batch.lock import OutputLock
from splatbatch.batch.metrics import MetricsFile
from splatbatch.batch.narrate import open_narrator
from splatbatch.batch.notify import Notifier
from splatbatch.batch.status import PatchStatus, read_status, summary
from splatbatch.commands.look import print_plan
from splatbatch.errors import ConfigError, SceneError, SplatbatchError
from splatbatch.report import write_report


class Interruption:
    """Whether somebody wants us to stop, and the exit code that says so."""

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP on purpose: leave it so
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def reason(self) -> str:
        """Return why to stop; empty to go on."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def exit_code(self) -> int:
        """Return 130 after Ctrl-C, 143 after SIGTERM (128 + the signal)."""
        return 128 + self.signal

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number


def train(config: Path | None, names: Sequence[str], only: Sequence[str], *, verify: bool, dry_run: bool) -> None:
    """Train what is not trained; exit with 0 if every patch is, with 1 if not."""
    batch = open_batch(config, names, conditions=only)
    if dry_run:
        print_plan(batch, as_json=False)
        return
    _train(batch, verify=verify, force=False)


@dataclass(frozen=True)
class RetryOptions:
    """What `retry` was asked."""

    failed: bool
    assignments: tuple[str, ...]
    force: bool
    only: tuple[str, ...] = ()


def retry(config: Path | None, names: Sequence[str], options: RetryOptions) -> None:
    """Train named or failed patches again.

    Raises:
        ConfigError: no patch is named, or a named one is trained and fresh.
    """
    changes = dict(configuration.parse_change(assignment) for assignment in options.assignments)
    batch = open_batch(config, names, changes, options.only)
    if options.failed:
        states = {status.patch: status.state for status in read_status(batch.output, in_full=0)}
        batch = batch.only(patch.name for patch in batch.patches if states.get(patch.name) in ("failed", "stopped"))
        if not batch.patches:
            typer.echo("no failed patch to retry", err=True)
            return
    elif not names and not options.only:
        raise ConfigError("retry: no patch named", "Name one with --patch p5, or take all failed ones with --failed.")
    fresh = [decision.patch for decision in batch.decisions({}) if isinstance(decision, planning.Skip)]
    if fresh and not options.force:
        raise ConfigError(f"{', '.join(fresh)}: trained and fresh already", "Add --force to train it again.")
    _train(batch, verify=True, force=options.force)


def _train(batch: Batch, *, verify: bool, force: bool) -> None:
    interruption = Interruption()
    names = [patch.name for patch in batch.patches]
    batch.output.create()
    notifier, metrics = Notifier(batch.config.notify, batch.output, names), MetricsFile(batch.output, names)
    with OutputLock(batch.output.lock) as lock, open_narrator(batch.output, names) as narrator:
        ledger = Ledger(batch.output.ledger, narrator.tell, notifier.tell)
        conduct.adopt(batch, ledger, lock.beat)
        decisions = batch.decisions({}, force=force)
        if planning.to_train(decisions):
            todo = batch.only(planning.to_train(decisions))
            refused = _gate(todo, ledger) if verify else _ungated(ledger)
            todo = todo.only(name for name in planning.to_train(decisions) if name not in refused)

            def beat() -> None:
                lock.beat()
                narrator.beat()
                metrics.beat()
                for reason in notifier.beat():
                    ledger.write("notify_failed", reason=reason)

            if todo.patches:
                conduct.run(todo, ledger, stop=interruption.reason, beat=beat)
    code = _conclude(batch, names)
    metrics.finish()
    for reason in notifier.finish(summary(_statuses(batch, names)), interruption.reason()):
        typer.echo(f"not told: {reason}", err=True)
    raise typer.Exit(interruption.exit_code if interruption.signal else code)


def _write_report(batch: Batch, names: Sequence[str]) -> None:
    """Write the report; that it cannot be must not hide how the batch went, nor keep anybody from being told."""
    try:
        write_report(batch.output, names, batch.config.variants.values(), batch.config.output.previews_mib)
    except OSError as error:
        typer.echo(f"the report could not be written ({error.strerror})", err=True)
    except Exception:  # noqa: BLE001 - a mistake of ours, over files that anybody may have changed
        typer.echo(f"the report could not be written:\n{traceback.format_exc()}", err=True)


def _gate(batch: Batch, ledger: Ledger) -> Mapping[str, str]:
    """Audit patches before they are trained; return those that must not be, each with the reason."""
    audits = batch.audits()
    refused = refusals(batch, audits)
    warnings = [f"{one.patch}: {one.subject}: {one.message}" for audit, _ in audits for one in audit.warnings()]
    ledger.write("audit", verified=True, refused=refused, warnings=list(dict.fromkeys(warnings)))
    for name, reason in refused.items():
        ledger.write("refused", patch=name, reason=reason)
    if len(refused) == len(batch.patches):
        typer.echo("every patch is refused by the audit: see `splatbatch verify-dims`", err=True)
    return refused


def _ungated(ledger: Ledger) -> Mapping[str, str]:
    ledger.write("audit", verified=False, refused={}, warnings=[])
    return {}


def _statuses(batch: Batch, names: Sequence[str]) -> list[PatchStatus]:
    return [one for one in read_status(batch.output, names) if one.patch in set(names)]


def _conclude(batch: Batch, names: Sequence[str]) -> int:
    """Write the report, say how it went, and return 0 if every patch is trained, 3 if every one was refused, else 1."""
    _write_report(batch, names)
    statuses = _statuses(batch, names)
    typer.echo(summary(statuses))
    for one in statuses:
        if one.state != "trained":
            typer.echo(f"  {one.patch}: {one.state}{f': {one.cause}' if one.cause else ''}. {one.advice}")
        for warning in one.warnings:
            typer.echo(f"  {one.patch}: warning: {warning}")
    typer.echo(f"report: {batch.output.report('html')}")
    states = {one.state for one in statuses}
    if states == {"refused"}:
        return SceneError.exit_code
    return 0 if states == {"trained"} else SplatbatchError.exit_code
