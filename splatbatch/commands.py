"""What each command does, from its options to what it prints and its exit code."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import typer
from rich.console import Console

from splatbatch import config as configuration
from splatbatch.batch import batch as batches
from splatbatch.batch import plan as planning
from splatbatch.batch.attempts import LOG_TAIL_BYTES
from splatbatch.batch.batch import Batch, open_batch
from splatbatch.batch.diagnosis import diagnose_log
from splatbatch.batch.ledger import Ledger
from splatbatch.batch.lock import OutputLock, holder
from splatbatch.batch.narrate import open_narrator, status_table
from splatbatch.batch.report import summary, to_markdown, write_report
from splatbatch.batch.status import read_status
from splatbatch.batch.story import tell
from splatbatch.config.schedule import schedule
from splatbatch.errors import ConfigError, OutputError, SceneError, SplatbatchError
from splatbatch.scene.audit import Audit
from splatbatch.scene.patches import find_patches
from splatbatch.scene.template import config_for

PIPE_WIDTH = 200


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


def train(config: Path | None, names: Sequence[str], *, verify: bool, dry_run: bool) -> None:
    """Train what is not trained; exit with 0 if every patch is, with 1 if not."""
    batch = open_batch(config, names)
    if dry_run:
        _print_plan(batch, as_json=False)
        return
    _train(batch, verify=verify, force=False)


@dataclass(frozen=True)
class RetryOptions:
    """What `retry` was asked."""

    failed: bool
    assignments: tuple[str, ...]
    force: bool


def retry(config: Path | None, names: Sequence[str], options: RetryOptions) -> None:
    """Train named or failed patches again.

    Raises:
        ConfigError: no patch is named, or a named one is trained and fresh.
    """
    changes = dict(configuration.parse_change(assignment) for assignment in options.assignments)
    batch = open_batch(config, names, changes)
    if options.failed:
        states = {status.patch: status.state for status in read_status(batch.output)}
        batch = batch.only(patch.name for patch in batch.patches if states.get(patch.name) in ("failed", "stopped"))
        if not batch.patches:
            typer.echo("no failed patch to retry", err=True)
            return
    elif not names:
        raise ConfigError("retry: no patch named", "Name one with --patch p5, or take all failed ones with --failed.")
    fresh = [decision.patch for decision in batch.decisions({}) if isinstance(decision, planning.Skip)]
    if fresh and not options.force:
        raise ConfigError(f"{', '.join(fresh)}: trained and fresh already", "Add --force to train it again.")
    _train(batch, verify=True, force=options.force)


@dataclass(frozen=True)
class VerifyOptions:
    """What `verify-dims` was asked."""

    as_json: bool
    strict: bool
    fix: str
    out: Path | None


def verify_dims(config: Path | None, names: Sequence[str], options: VerifyOptions) -> None:
    """Audit the patches; exit with 3 if there are findings that matter. With --fix, write corrected models.

    Raises:
        ConfigError: --fix and --out do not fit together.
        SceneError: a model cannot be repaired honestly.
    """
    from splatbatch.scene.audit_table import render

    batch = open_batch(config, names)
    audit = batch.audit()
    if options.fix or options.out:
        _fix(batch, audit, options)
        return
    if options.as_json:
        _print_json(audit.to_record())
    else:
        console = _console()
        for part in render(audit):
            console.print(part)
    raise typer.Exit(audit.exit_code(strict=options.strict))


def _fix(batch: Batch, audit: Audit, options: VerifyOptions) -> None:
    """Write a corrected copy of every model, and say what changed and what it did to the reprojection errors."""
    from splatbatch.scene.repair import fix_models

    if options.fix not in ("scale", "crop") or options.out is None:
        raise ConfigError(f"--fix {options.fix}: should be scale or crop, with --out FOLDER for the corrected copies")
    how: Literal["scale", "crop"] = "scale" if options.fix == "scale" else "crop"
    repaired = fix_models(audit, batch.patches, batch.config.scene.source, how, options.out)
    for one in repaired:
        typer.echo(one.in_words())
    if not repaired:
        typer.echo("every photograph fits its camera: nothing to repair, nothing written")


def plan(config: Path | None, names: Sequence[str], *, as_json: bool) -> None:
    """Print what `train` would do."""
    _print_plan(open_batch(config, names), as_json=as_json)


def status(config: Path | None, names: Sequence[str], *, as_json: bool) -> None:
    """Print how far every patch is."""
    batch = open_batch(config, names)
    statuses = read_status(batch.output, [patch.name for patch in batch.patches])
    statuses = tuple(one for one in statuses if not names or one.patch in names)
    running = holder(batch.output.lock)
    if as_json:
        _print_json({"summary": summary(statuses), "run": running, "patches": [asdict(one) for one in statuses]})
        return
    console = _console()
    console.print(status_table(statuses))
    who = f"process {running['pid']} on {running['host']}" if running else "nobody"
    console.print(f"{summary(statuses)}. Running: {who}.", markup=False)


def logs(config: Path | None, name: str, number: int) -> None:
    """Print the log of an attempt."""
    batch = open_batch(config, [name])
    attempts = batch.output.patch(name).attempts()
    chosen = [folder for folder in attempts if number in (0, folder.number)]
    if not chosen:
        have = ", ".join(str(folder.number) for folder in attempts) or "none"
        raise ConfigError(f"{name}: no such attempt (there are: {have})", "Leave --attempt out for the latest.")
    try:
        sys.stdout.write(chosen[-1].log.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise OutputError(f"{chosen[-1].log}: cannot be read ({error.strerror})") from error


def explain(config: Path | None, name: str) -> None:
    """Print the whole story of a patch."""
    batch = open_batch(config, [name])
    for line in tell(batch.output, name):
        typer.echo(line)


def diagnose(log: Path, exit_code: int | None, *, as_json: bool) -> None:
    """Explain any log, also of another trainer.

    Raises:
        ConfigError: the log cannot be read.
    """
    try:
        text = log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{log}: cannot be read ({error.strerror})", "Name the log of a training.") from error
    found = diagnose_log(text, exit_code, None)
    if as_json:
        _print_json(asdict(found))
        return
    typer.echo(f"{found.cause} ({found.action}): {found.advice}")
    for line in found.evidence:
        typer.echo(f"  | {line}")


def report(config: Path | None, *, as_json: bool) -> None:
    """Write the report and print it."""
    batch = open_batch(config)
    batch.output.create()
    facts = write_report(batch.output, [patch.name for patch in batch.patches])
    if as_json:
        _print_json(facts)
    else:
        typer.echo(to_markdown(facts), nl=False)


def init(folder: Path, out: Path | None) -> None:
    """Write a commented config for what lies in a folder; an existing one is never overwritten."""
    target = out or folder / configuration.DEFAULT_CONFIG
    if not folder.is_dir():
        raise SceneError(f"{folder}: no such folder")
    if target.exists():
        raise ConfigError(f"{target} exists already", "Move it away, or choose another name with --out.")
    try:
        target.write_text(config_for(folder, target.resolve().parent), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror})") from error
    patches = find_patches(configuration.load(target).scene)
    typer.echo(f"{target}: {len(patches)} patches. Next: splatbatch verify-dims --config {target}")


def config_show(config: Path | None, name: str) -> None:
    """Print the resolved config, or what trains one patch."""
    batch = open_batch(config, [name] if name else [])
    typer.echo(configuration.to_yaml(batch.config.recipe(name) if name else batch.config), nl=False)


def _train(batch: Batch, *, verify: bool, force: bool) -> None:
    interruption = Interruption()
    names = [patch.name for patch in batch.patches]
    batch.output.create()
    with OutputLock(batch.output.lock) as lock, open_narrator(batch.output, names) as narrator:
        ledger = Ledger(batch.output.ledger, narrator.tell)
        batches.adopt(batch, ledger)
        decisions = batch.decisions({}, force=force)
        if planning.to_train(decisions):
            todo = batch.only(planning.to_train(decisions))
            refused = _gate(todo, ledger) if verify else _ungated(ledger)
            todo = todo.only(name for name in planning.to_train(decisions) if name not in refused)

            def beat() -> None:
                lock.beat()
                narrator.beat()

            if todo.patches:
                batches.run(todo, ledger, stop=interruption.reason, beat=beat)
    code = _conclude(batch, names)
    raise typer.Exit(interruption.exit_code if interruption.signal else code)


def _gate(batch: Batch, ledger: Ledger) -> Mapping[str, str]:
    """Audit patches before they are trained; return those that must not be, each with the reason."""
    audit = batch.audit()
    refused = batches.refusals(audit)
    warnings = [f"{finding.patch}: {finding.subject}: {finding.message}" for finding in audit.warnings()]
    ledger.write("audit", verified=True, refused=refused, warnings=warnings)
    for name, reason in refused.items():
        ledger.write("refused", patch=name, reason=reason)
    if len(refused) == len(batch.patches):
        typer.echo("every patch is refused by the audit: see `splatbatch verify-dims`", err=True)
    return refused


def _ungated(ledger: Ledger) -> Mapping[str, str]:
    ledger.write("audit", verified=False, refused={}, warnings=[])
    return {}


def _conclude(batch: Batch, names: Sequence[str]) -> int:
    """Write the report, say how it went, and return 0 if every patch is trained, 3 if every one was refused, else 1."""
    write_report(batch.output, names)
    statuses = [one for one in read_status(batch.output, names) if one.patch in set(names)]
    typer.echo(summary(statuses))
    for one in statuses:
        if one.state != "trained":
            typer.echo(f"  {one.patch}: {one.state}{f': {one.cause}' if one.cause else ''}. {one.advice}")
    typer.echo(f"report: {batch.output.report('md')}")
    states = {one.state for one in statuses}
    if states == {"refused"}:
        return SceneError.exit_code
    return 0 if states == {"trained"} else SplatbatchError.exit_code


def _print_plan(batch: Batch, *, as_json: bool) -> None:
    decisions = batch.decisions(batches.refusals(batch.audit()))
    steps = {patch.name: asdict(schedule(batch.config.recipe(patch.name))) for patch in batch.patches}
    if as_json:
        rows = [
            {"decision": type(one).__name__.lower(), **asdict(one), "schedule": steps[one.patch]} for one in decisions
        ]
        _print_json({"patches": rows})
        return
    for one in decisions:
        typer.echo(f"{one.patch}: {type(one).__name__.lower()}: {one.reason}")
    for text in dict.fromkeys(_schedule_line(one) for one in steps.values()):
        typer.echo(text)


def _schedule_line(steps: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in steps.items())


def _console() -> Console:
    """Return a console on stdout; a pipe gets no escape codes, whatever FORCE_COLOR claims, and no cut columns."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPE_WIDTH)


def _print_json(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(record, indent=1, default=str) + "\n")
