"""Commands on the state of patches: `status`, `report`, `explain`, and in a browser `serve`, `view`."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from typer import Exit, Option

from splatbatch.cli.app import app, is_store, open_folder, open_one, open_splats, the_one
from splatbatch.cli.options import (
    BatchArgument,
    ConfigOption,
    JsonOption,
    PortOption,
    WorkedArguments,
    named,
)
from splatbatch.cli.stdout import open_console, print_facts, print_json, print_line, print_table, print_text
from splatbatch.errors import ConfigError, TrainerError
from splatbatch.groups import grouped
from splatbatch.text import assignments, clock, one_line, plain_text, plural

if TYPE_CHECKING:
    from splatbatch.cluster.workers import RequestedWorkers
    from splatbatch.outcome import Diagnosis
    from splatbatch.output.attempt_folder import AttemptFolder
    from splatbatch.output.workers import Watcher
    from splatbatch.run.explain import ExplainedAttempt
    from splatbatch.run.status import Status
    from splatbatch.run.travel import StoreFacts
    from splatbatch.tasks.batch import Batch
    from splatbatch.tasks.task import Task

REDRAW_S = 2.0
LINES_EVERY_S = 60.0
LOOK_S = 0.5
ENGINE_S = 8.0
"""Pause in seconds between two queries of an engine."""
ADVISED = ("failed", "refused")
"""States of a patch for which `status` prints the reason and advice."""
MOST_NAMED = 8
ACTIONS = {
    "ok": "nothing to do",
    "retry": "retry with the same settings",
    "degrade": "retry with other settings",
    "fail": "a retry will not help",
}


@app.command()
def status(
    patches: WorkedArguments = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Keep showing the status until training ends.")] = False,
    verify: Annotated[
        bool, Option("--verify", help="Check contents of splats and photographs, not only size and time.")
    ] = False,
) -> None:
    """Show the state and progress of every patch, also while a batch runs."""
    for option, is_given in {"--json": json_, "--verify": verify}.items():
        if watch and is_given:
            message = f"status: --watch and {option} exclude each other"
            raise ConfigError(message, f"Run `status {option}` as often as needed.")
    if patches and is_store(patches[0]):
        from splatbatch.run.travel import status_of

        return print_facts(status_of(patches[0]), show_store, as_json=json_)
    from splatbatch.monitor.table import num_shown
    from splatbatch.run.status import standings
    from splatbatch.tasks.batch import open_batch

    if watch:
        return watch_status(open_batch(config, patches))
    gc.disable()  # one look, then the process ends: to go through its records again and again took a quarter of it
    batch = open_batch(config, patches)
    found, lines = standings(batch, verify=verify, in_full=None if json_ else num_shown(len(batch.tasks)))
    if json_:
        return print_json(found)
    show_status(found, lines)


def show_store(found: StoreFacts) -> None:
    """Print the state of each bundle of a store, and how many workers there are."""
    for one in found.bundles:
        step = f", step {one.step} of {one.max_steps}" if one.step is not None else ""
        who = f" by {one.worker}{step}" if one.worker else ""
        often = f"; started {plural(one.claims, 'time')}" if one.claims > 1 else ""
        print_line(f"{one.task}: {one.state}{who}{often}")
    at_work = sum(bool(one.bundle) for one in found.workers)
    print_line(f"{plural(len(found.bundles), 'bundle')}, {plural(len(found.workers), 'worker')}, {at_work} at work")


def show_status(found: Status, of_workers: Sequence[str]) -> None:
    """Print the patches as a table, then failures with reasons, warnings, workers, and the expected time."""
    from splatbatch.monitor.table import num_shown, status_view
    from splatbatch.run.status import describe_workers

    console, statuses = open_console(), found.patches
    console.print(status_view(statuses, console.width, num_shown(len(statuses))))
    lines = alike((one.patch, one.in_words()) for one in statuses if one.state in ADVISED)
    lines += alike((one.patch, warning) for one in statuses for warning in one.warnings)
    crew = describe_workers(found.run, [one for one in found.workers if not one.is_frozen])
    to_go = f" About {clock(found.eta_s)} to go." if crew and found.eta_s is not None else ""
    last = f"{found.summary}. Running: {' and '.join(crew) or 'none'}.{to_go}"
    for line in (*lines, *of_workers, last):
        console.print(one_line(line), markup=False)


def alike(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each message on patches; patches with the same message share a line.

    `told` are pairs of a patch and a message; messages count as the same if they differ in the patch's name alone.
    """
    from splatbatch.scene.patches import list_names

    lots = grouped((words.replace(f" {patch}", " PATCH"), patch) for patch, words in told)
    return [
        f"{list_names(names, MOST_NAMED)}: {words.replace(' PATCH', f' {names[0]}')}" for words, names in lots.items()
    ]


@dataclass
class StatusWatcher:
    """Watcher of a batch for `status --watch`: the state of its patches, its workers, and the queue of the engine."""

    batch: Batch
    watcher: Watcher
    crew: RequestedWorkers
    _next_look: float = 0.0

    def is_at_work(self) -> bool:
        """Return whether a run or worker is at work on the batch, or an engine has waiting workers.

        The engine is asked at most every `ENGINE_S` seconds.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        from splatbatch.output.exclusive import holder

        if time.monotonic() >= self._next_look:
            self.crew.look()
            self._next_look = time.monotonic() + ENGINE_S
        living = any(not self.crew.is_dead(one.job) for one in self.watcher.living())
        return living or self.crew.lives() or holder(self.batch.output) is not None

    def is_over(self) -> bool:
        """Return whether the batch was begun, and no run or worker is at work on it any more.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        return not self.is_at_work() and any(ledger.exists() for ledger in self.batch.output.ledgers())

    def show(self) -> None:
        """Show a live table on a terminal, else print the table once a minute, until the batch is over.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        from splatbatch.monitor.table import live_view, status_view
        from splatbatch.output.claims import at_work, lines_of
        from splatbatch.run.status import states_in_view

        console = open_console()
        is_over, every_s = False, REDRAW_S if console.is_terminal else LINES_EVERY_S
        with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
            while not is_over:
                is_over, due = self.is_over(), time.monotonic() + every_s
                statuses = states_in_view(self.batch)
                lines = [Text(one_line(line)) for line in (*lines_of(at_work(self.watcher)), *self.crew.in_words())]
                if live:
                    view = live_view(statuses, console.size.width, console.size.height - len(lines))
                    live.update(Group(view, *lines), refresh=True)
                else:
                    now = time.strftime("%Y-%m-%d %H:%M:%S")
                    console.print(now, status_view(statuses, console.width), *lines, sep="\n")
                    sys.stdout.flush()
                while not is_over:
                    time.sleep(LOOK_S)
                    if time.monotonic() >= due or self.is_over():
                        break


def watch_status(batch: Batch) -> None:
    """Show a batch until it is over.

    After Ctrl-C the function returns; the training goes on.

    Raises:
        Exit: the batch is over; the code is 0 if every patch is trained, else 1.
        LaterFormatError: a later version of splatbatch wrote the output folder.
    """
    from splatbatch.cluster.workers import RequestedWorkers
    from splatbatch.output.workers import Watcher
    from splatbatch.run.status import states_in_view
    from splatbatch.tasks.status import summary

    watched = StatusWatcher(batch, Watcher(batch.output), RequestedWorkers(batch.output))
    with suppress(KeyboardInterrupt):
        watched.show()
        statuses = states_in_view(batch)
        print_line(summary(statuses))
        raise Exit(0 if all(one.is_made for one in statuses) else 1)
    if watched.is_at_work():
        print_line("Training continues; `splatbatch cancel` stops it.")


@app.command()
def report(folder: BatchArgument = None, config: ConfigOption = None, json_: JsonOption = False) -> None:
    """Write report.html, report.md and report.json, and print the report as text."""
    from splatbatch.report import to_markdown
    from splatbatch.run.api import write_report

    facts = write_report(open_folder(config, folder))
    if json_:
        return print_json(facts)
    typer.echo(plain_text(to_markdown(facts)), nl=False)


@app.command()
def explain(
    names: Annotated[
        list[str],
        named("[FOLDER] PATCH|LOGFILE", "Name of a patch of FOLDER, such as p5; or the log file of any training."),
    ] = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
    log: Annotated[bool, Option("--log", help="Print the log of an attempt instead.")] = False,
    attempt: Annotated[
        Optional[int], Option("--attempt", "-a", metavar="N", help="Number of the attempt; default: the latest.")
    ] = None,
    exit_code: Annotated[
        Optional[int], Option(metavar="N", help="Exit code of the program; -9 or 137 means killed.")
    ] = None,
) -> None:
    """Explain the history of a patch (attempts, evidence, changes, advice), or what went wrong in a log."""
    from splatbatch.run.explain import attempt_of, diagnose_log_file
    from splatbatch.tasks.batch import named_batch, open_batch

    config, chosen = named_batch(config, names)
    name = the_one(chosen)
    if log or attempt is not None:
        return print_log(name, attempt_of(open_batch(config, [name]), name, attempt))
    path = Path(name)
    if exit_code is not None or ((os.sep in name or path.exists()) and not path.is_dir()):
        return print_facts(diagnose_log_file(path, exit_code, config), show_diagnosis, as_json=json_)
    print_history(*open_one(config, [name]), as_json=json_)


def print_history(batch: Batch, task: Task, *, as_json: bool) -> None:
    """Print the whole history of a patch: its own settings, attempts, evidence, changes, advice.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
        OSError: a mask was removed during the audit.
    """
    from splatbatch.failures.settings import in_words
    from splatbatch.monitor.history import tell_history
    from splatbatch.run.explain import explain_task

    found = explain_task(batch, task)
    if as_json:
        return print_json(found)
    if found.set_otherwise:
        print_line(f"{task.name}: settings that differ from the batch: {in_words(found.set_otherwise)}")
    for line in tell_history(batch.output, found.status):
        print_text(plain_text(line).replace("\n", " "))
    print_attempts(found.attempts)


def show_diagnosis(found: Diagnosis) -> None:
    """Print the diagnosis of a log: cause, action, advice, and the lines that show it."""
    from splatbatch.failures.causes import title

    print_text(f"{title(found.cause)}, {ACTIONS[found.action]}: {found.advice}")
    for line in found.evidence:
        print_text(f"  | {line}")


def print_log(name: str, folder: AttemptFolder) -> None:
    """Print the log of an attempt; on stderr a note if the log is empty.

    Raises:
        OutputError: the log cannot be read, or is too large.
    """
    from splatbatch.run.explain import log_of

    text = log_of(folder)
    sys.stdout.write(text)
    if not text:
        print_line(f"{name}: the log of {folder.path.name} is empty; see `splatbatch explain {name}`", err=True)


def print_attempts(attempts: Sequence[ExplainedAttempt]) -> None:
    """Print the attempts at a patch as a table; nothing if there are none."""
    from splatbatch.failures.causes import in_words
    from splatbatch.monitor.table import figure

    if not attempts:
        return
    headings = ("attempt", "outcome", "changed settings", "covered dB", "PSNR dB", "SSIM", "Gaussians", "time", "")
    sets = {row.covered_set for row in attempts if row.is_kept}
    rows = []
    for row in attempts:
        outcome = f"{row.outcome}: {in_words(row.cause)}" if row.cause else row.outcome or "running"
        note = "kept" if row.is_kept else "" if row.has_splat or row.outcome != "trained" else "splat removed"
        note += (
            ", measured on different pixels"
            if row.psnr_covered is not None and sets and row.covered_set not in sets
            else ""
        )
        quality = (figure(row.psnr_covered), figure(row.psnr), figure(row.ssim, ".4f"))
        cells = (*quality, figure(row.num_gaussians, ",d"), clock(row.seconds), note.removeprefix(", "))
        rows.append((str(row.number), outcome, assignments(row.unlike_yaml), *cells))
    print_table(headings, ("outcome", "changed settings", ""), rows, worths=(10, 7, 6, 9, 8, 2, 3, 4, 5))


@app.command()
def serve(folder: BatchArgument = None, config: ConfigOption = None, port: PortOption = 8765) -> None:
    """Serve the live report of a batch to a browser on this machine until Ctrl-C."""
    from splatbatch.cli.server import LOOPBACK, LiveStatus, open_server

    server = open_server(port, LiveStatus(open_folder(config, folder).whole()).answer)
    number = server.server_port
    print_line(f"live report at {server.url} until Ctrl-C")
    print_line(
        f"From another machine: run `ssh -L {number}:{LOOPBACK}:{number} THIS_MACHINE`, then open this address there."
    )
    server.serve_until_interrupted()


@app.command()
def view(
    names: Annotated[list[str], named("PATCH|scene", "Patches, such as p5; or scene for the merged splat.")] = [],
    config: ConfigOption = None,
    port: PortOption = 8080,
) -> None:
    """Serve patches or the scene in 3D, with photographs, to a browser on this machine until Ctrl-C."""
    from splatbatch.cli.server import SplatPages, open_server
    from splatbatch.publish.joint_scene import view_together
    from splatbatch.publish.source import viewed
    from splatbatch.report.viewer.viewer import HOW, viewer_script

    batch, chosen = open_splats(config, names)
    shown = view_together(viewed(batch.whole(), chosen), batch.config.scene.crs or "")
    if not viewer_script():
        raise TrainerError("view: the viewer is not built", HOW["viewer"])
    server = open_server(port, SplatPages(shown).answer)
    what = ", ".join(splat.name for splat in shown.splats)
    print_line(f"{what}: serving {shown.facts.splat.num_gaussians:,} Gaussians at {server.url} until Ctrl-C")
    server.serve_until_interrupted()
