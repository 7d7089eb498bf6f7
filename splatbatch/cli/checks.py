"""Commands before a training: `verify-dims`, `plan`, `doctor`, and `config`, which shows settings and schemas."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer
from typer import Argument, Exit, Option

from splatbatch.cli.app import app, config_app, the_batch, the_one
from splatbatch.cli.options import BatchArgument, ConfigOption, JsonOption, PatchArguments, named
from splatbatch.cli.stdout import (
    open_console,
    print_facts,
    print_json,
    print_line,
    print_table,
    print_text,
    print_warnings,
)
from splatbatch.errors import ConfigError, SceneError
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.config.schedule import Schedule
    from splatbatch.run.plan import BatchPlan
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.tasks.batch import Batch
    from splatbatch.trainers.catalog import TrainerList

AUDIT_WORTHS = (9, 3, 4, 2, 7, 5, 8)
"""Worth of each column of the audit table: on a narrow terminal the columns of least worth are left out."""


@app.command("verify-dims")
def verify_dims(
    patches: PatchArguments = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
    strict: Annotated[bool, Option("--strict", help="Treat warnings as errors.")] = False,
    deep: Annotated[bool, Option("--deep", help="Decode every photograph and mask, to find damaged files.")] = False,
    fix: Annotated[
        Optional[Literal["scale", "crop"]],
        Option(metavar="HOW", help="Write corrected models to --out; HOW is scale or crop."),
    ] = None,
    out: Annotated[Optional[Path], Option(metavar="DIR", help="Folder for the corrected models.")] = None,
    colors: Annotated[
        bool, Option("--colors", help="Decode the photographs and list those that differ in brightness or tint.")
    ] = False,
) -> None:
    """Check that photographs and masks match the cameras of every patch, and check the COLMAP models."""
    from functools import partial

    from splatbatch.monitor.messages import PipeWriter
    from splatbatch.run.prepare import VerifyOutput
    from splatbatch.tasks.audits import audit_for_all
    from splatbatch.tasks.batch import PendingTasks, open_batch
    from splatbatch.tasks.shared_decisions.colors import in_words, solve
    from splatbatch.tasks.shared_decisions.frame import choose_frame, note, spans_of

    if bool(fix) != bool(out):
        raise ConfigError("--fix and --out belong together", "For example --fix scale --out FOLDER.")
    batch = open_batch(config, patches)
    audit = audit_for_all(batch, deep=deep, advance=partial(PipeWriter().advance, "verify-dims", unit="models"))
    if fix and out:
        return fix_models(batch, audit, fix, out, as_json=json_)
    frame = choose_frame(batch, PendingTasks(batch.tasks, lambda: spans_of([audit])))
    tones = solve(batch, batch.tasks, None)[1] if colors else {}
    if json_:
        found = {name or "all": one.to_record() for name, one in tones.items()} if colors else None
        print_json(VerifyOutput(**vars(audit.facts()), frame=frame, colors=found))
    else:
        print_audit(audit)
        if told := note(frame, audit.patches):
            print_line(told)
        for name, one in tones.items():
            for line in in_words(one):
                print_line(f"colours{f' of {name}' if name else ''}: {line}")
    is_unlike = strict and any(one.outliers or one.left_alone or one.problem for one in tones.values())
    raise Exit(SceneError.exit_code if is_unlike else audit.exit_code(strict=strict))


def print_audit(audit: Audit) -> None:
    """Print the tables and findings of an audit; on a narrow terminal without the columns of least worth."""
    from rich.table import Table

    from splatbatch.monitor.table import drop_columns
    from splatbatch.scene.audit.table import render

    console = open_console()
    for part in render(audit):
        console.print(drop_columns(part, AUDIT_WORTHS, console.width) if isinstance(part, Table) else part)


def fix_models(batch: Batch, audit: Audit, how: Literal["scale", "crop"], out: Path, *, as_json: bool) -> None:
    """Write a corrected copy of every model and a YAML that trains them; print the changes and the remaining errors.

    If all photographs match, nothing is written.

    Raises:
        Exit: always: with code 3 if the audit of the copies finds errors, else 0.
        SceneError: a model cannot be corrected safely, or `out` is not empty or cannot be written.
        ConfigError: the YAML cannot be read, or its copy cannot be written.
        OSError: the audit of the copies cannot be started.
    """
    from splatbatch.run.prepare import fix_cameras

    repaired, config, audited = fix_cameras(batch, audit, how, out)
    code = 0 if audited is None or audited.is_well else SceneError.exit_code
    if as_json:
        records = [one.to_record() for one in repaired]
        told = audited and {"exit_code": audited.code, "said": audited.said}
        print_json({"config": str(config) if repaired else None, "repaired": records, "audit": told})
        raise Exit(code)
    for one in repaired:
        print_text(one.in_words())
    if audited is None:
        print_line("All photographs match their cameras: nothing to repair, nothing written.")
    elif code:
        print_text(audited.said)
        print_line(f"{config}: corrected copies written, but the errors above remain; fix them before training")
    else:
        print_line(f"{config}: corrected copies written. Next: splatbatch train --config {shlex.quote(str(config))}")
    raise Exit(code)


@app.command()
def plan(patches: PatchArguments = [], config: ConfigOption = None, json_: JsonOption = False) -> None:
    """Show which patches would be trained, why, with which schedule, and how long training would take."""
    from splatbatch.tasks.batch import open_batch

    print_plan(open_batch(config, patches), as_json=json_)


def print_plan(batch: Batch, *, as_json: bool = False) -> None:
    """Print the plan of a batch: what `train` would do with each patch and why, the schedule, and the expected time.

    Optional extras that the YAML needs and this machine lacks are named on stderr.

    Raises:
        ConfigError, SceneError, LaterFormatError: there can be no plan; see `splatbatch.run.plan.plan`.
        ExecutorError, TrainerError: `train` could not train the patches here, or would refuse; the plan is printed
            first.
        OSError: a mask was removed during the audit.
    """
    from splatbatch.doctor.preflight import lacking_extras
    from splatbatch.run.plan import plan as run
    from splatbatch.tasks.estimates import check_place

    found = run(batch)
    if as_json:
        print_json(found.facts())
    else:
        show_plan(found)
    print_warnings(f"{one.check}: {one.message}. {one.remedy}" for one in lacking_extras(batch.config))
    if found.to_train:
        check_place(found.batch.only(found.to_train), found.forecast)


def show_plan(found: BatchPlan) -> None:
    """Print a plan as lines of text: decisions, overlap, memory, schedules and shared decisions.

    The expected time follows if a patch is to be trained.

    Raises:
        ExecutorError: CUDA_VISIBLE_DEVICES names only GPUs that do not exist.
    """
    from splatbatch.output.events import UNTIL
    from splatbatch.run.plan import decision_on
    from splatbatch.tasks.estimates import tight
    from splatbatch.tasks.patch_state import GivenUp
    from splatbatch.tasks.shared_decisions.decide import decisions_in_words

    for name, state in found.states.items():
        print_line(f"{name}: {UNTIL if isinstance(state, GivenUp) else decision_on(state)}: {state.reason}")
    for name, words in found.overlap.items():
        print_line(f"{name}: {words}")
    for name, need in found.footprints.items():
        print_line(f"{name}: expected: {need.in_words()}")
    for name, reason in tight(found.footprints, found.batch.config).items():
        print_line(f"{name}: {reason}")
    schedules = map(_schedule_in_words, found.schedules.values())
    for line in (*dict.fromkeys(schedules), *decisions_in_words(found.batch, found.to_train)):
        print_line(line)
    if found.to_train:
        print_line(found.forecast.in_words())


def _schedule_in_words(at: Schedule) -> str:
    """Return a schedule in words: each event with its step, without events that never happen."""
    events = [
        plural(at.max_steps, "step"),
        f"refining every {at.refine_every} from step {at.refine_start} to {at.refine_stop}",
        f"photographs in full size by step {at.full_size_at}",
        f"opacities reset every {at.reset_every} to step {at.reset_stop}" if at.reset_every else "",
        f"pruning at step {at.prune_at}" if at.prune_at else "",
        f"harmonics of another degree every {at.sh_every}",
        f"learning rates times {at.gain:.3g}, of means {at.means_gain:.3g}, of opacities 1" if at.gain != 1 else "",
    ]
    return "; ".join(filter(None, events))


@app.command()
def doctor(
    folder: BatchArgument = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
    warm: Annotated[
        bool, Option("--warm", help="Compile the GPU kernels now instead of with the first patch.")
    ] = False,
    trainers: Annotated[
        bool, Option("--trainers", help="Only list the trainers and what each is missing on this machine.")
    ] = False,
) -> None:
    """Check whether this machine can train, also with the settings of a batch, and say how to fix problems."""
    from splatbatch.config import find_config, has_config
    from splatbatch.doctor.checks import DoctorOutput
    from splatbatch.doctor.examination import examine
    from splatbatch.report.viewer.viewer import viewer_gz
    from splatbatch.tasks.batch import open_batch
    from splatbatch.trainers.catalog import TrainerList, trainers_here

    config = the_batch(config, folder)
    if trainers:
        listed = TrainerList(trainers_here(find_config(config) if has_config(config) else None))
        return print_facts(listed, show_trainers, as_json=json_)
    findings = []
    batch = open_batch(config) if has_config(config) else None
    for finding in examine(batch, build=warm, has_viewer=bool(viewer_gz())):
        findings.append(finding)
        if not json_:
            remedy = f"\n{'':8}   -> {finding.remedy}" if finding.remedy else ""
            print_text(f"{finding.state:8} {finding.check}: {finding.message}{remedy}")
    found = DoctorOutput(tuple(findings))
    if json_:
        print_json(found)
    raise Exit(found.exit_code)


def show_trainers(found: TrainerList) -> None:
    """Print splatbatch's own trainer, those of the YAML and the presets as a table, with what each lacks here."""
    headings = ("trainer", "from", "here")
    rows = ((one.name, one.file or one.origin, "; ".join(one.missing) or "found") for one in found.trainers)
    print_table(headings, headings, rows)


@config_app.command("show")
def config_show(
    patch: Annotated[
        list[str], named("[FOLDER] [PATCH]", "Show the settings of this patch of FOLDER, such as p5.")
    ] = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Print the whole configuration with its defaults, or the settings of one patch."""
    from splatbatch import config as configuration
    from splatbatch.tasks.batch import named_batch, open_batch

    config, chosen = named_batch(config, patch)
    if chosen:
        batch = open_batch(config, [name := the_one(chosen)])
        own = [task.recipe for task in batch.tasks if task.name == name]  # none: a patch, whatever the sweep says
        shown: configuration.Config | configuration.Recipe = own[0] if own else batch.config.recipe(name)
    else:  # needs no files of the batch
        shown = configuration.load(configuration.find_config(config))
    if json_:
        return print_json(shown.model_dump(mode="json"))
    typer.echo(configuration.to_yaml(shown), nl=False)


@config_app.command("schema")
def config_schema(
    what: Annotated[
        str,
        Argument(
            metavar="COMMAND",
            help="Command, such as status or 'config show'; or partition.json. Default: the YAML.",
            show_default=False,
        ),
    ] = "config show",
) -> None:
    """Print the JSON Schema of the YAML, of the --json output of a command, or of a split's partition.json."""
    from splatbatch.cli.schema import schema_of

    print_json(schema_of(what))
