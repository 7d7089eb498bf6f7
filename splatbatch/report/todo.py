"""Derives from a report's facts what the user should do or look at, with a command for each. Files are not read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from splatbatch.failures.advice import IF_NOT, OR_TRY, TRY
from splatbatch.failures.causes import title
from splatbatch.groups import grouped
from splatbatch.outcome import NOT_MADE
from splatbatch.output.records.run import DONE, TodoItem
from splatbatch.output.retention import ACCEPT
from splatbatch.report.facts import Report, ReportedPatch
from splatbatch.report.scene import why_it_steps
from splatbatch.tasks.status import INSIST, done_in_words
from splatbatch.text import plural

MOST_NAMED = 12
"""Most patches that a command without --set names; for more, it names none and so is about all that are due."""
OF_ONE = ("explain", "accept")
"""Commands that take one patch; if several patches share an item, the command names the first."""
DARK_EDGE_DB = 1.0
"""Loss of PSNR in dB of the merged scene from which dark edges are suspected.

It is measured on photographs that see no seam, which is the border between two patches.
The drone scene caliterra at reduced size, cut in 2, lost 2.0 dB after 500 steps, and 0.1 dB with
`training.border: none`. At full size it lost at most 0.8 dB."""
ONLY_LOOKS = ("splatbatch verify-dims", "splatbatch view scene")
"""Commands about the batch that change nothing, so that they may be run while it is being trained."""


def todo(report: Report, *, is_at_work: bool = False, again: str = "") -> tuple[TodoItem, ...]:
    """Return the items to do, then those worth a look; patches with the same trouble share an item, stages do not.

    Empty if nothing is to be done or looked at. Commands name the YAML by `-c` if its path is known.

    Args:
        report: the facts.
        is_at_work: whether a run trains the batch; then only commands that change nothing are named. So it is also if
            a patch of the report is running.
        again: command that completes a reconstruction, named also during a run; empty for a batch of training.
    """
    if again:
        return tuple(_of_stages(report, again))
    is_running = is_at_work or bool(report.counts.get("running"))
    troubles = ((patch, _of_patch(patch, is_running=is_running)) for patch in report.patches)
    groups = grouped((trouble, patch.patch) for patch, its in troubles for trouble in its)
    items = [_item(trouble, names, report.config_file) for trouble, names in groups.items()]
    of_batch = (one for one in _of_batch(report) if not is_running or one.command in ONLY_LOOKS)
    items += [_item(trouble, [], report.config_file) for trouble in of_batch]
    return tuple(sorted(items, key=lambda item: item.kind != "do"))


def _of_stages(report: Report, again: str) -> Iterator[TodoItem]:
    """Yield an item for each failed or stopped stage; stages that only wait for a failed one are left out."""
    for stage in report.patches:
        if stage.state == "failed" and stage.cause != NOT_MADE:
            yield TodoItem("do", (stage.patch,), _failure(stage), again)
        elif stage.state == "stopped":
            yield TodoItem("do", (stage.patch,), stage.why, again)


def verdict(report: Report) -> str:
    """Return the outcome of a batch in sentences, as "7 of 9 patches trained, 1 in training. 2 things to do"."""
    said = done_in_words(report.patches)
    if sweep := report.sweep:
        said += f": {plural(len(sweep.patches), 'patch', 'es')} x {plural(len(sweep.variants), 'setting')}"
    if running := report.counts.get("running"):
        said += f", {running} in training"
    num_to_do = sum(item.kind == "do" for item in report.todo)
    return f"{said}. {plural(num_to_do, 'thing') if num_to_do else 'Nothing'} to do"


def _of_patch(patch: ReportedPatch, *, is_running: bool) -> Iterator[TodoItem]:
    match patch.state:
        case "refused":
            again = "" if is_running else " && splatbatch train PATCH"
            yield _reason("do", patch.advice, f"splatbatch verify-dims PATCH{again}")
        case "failed":
            yield _reason("do", _failure(patch), "splatbatch explain PATCH" if is_running else _next_step(patch))
        case "trained":
            yield from _of_product(patch, is_running=is_running)
        case _ if is_running:
            return
        case "stopped":
            yield _reason("do", patch.why, "splatbatch train PATCH")
        case "stale":
            yield _reason("do", f"its splat is out of date: {patch.cause}", "splatbatch train PATCH")
        case "waiting":
            yield _reason("do", "not trained yet", "splatbatch train PATCH")


def _reason(kind: Literal["do", "look"], what: str, command: str) -> TodoItem:
    """Return an item without patches; `command` has PATCH in place of their names."""
    return TodoItem(kind, (), what, command)


def _failure(patch: ReportedPatch) -> str:
    """Return why a patch failed and the advice, without the command to type, which the item has already."""
    told, suspect, _ = _advice(patch).partition(OR_TRY)
    told = f"{told}." if suspect else told.partition(TRY)[0].strip()
    return ": ".join(filter(None, (title(patch.cause), told)))


def _advice(patch: ReportedPatch) -> str:
    """Return the advice for an attempt, without the sentence about the patch that follows it."""
    return patch.advice.replace(INSIST.format(patch=patch.patch), "").strip()


def _next_step(patch: ReportedPatch) -> str:
    """Return the first `retry` that the advice names; without one `train`, or `explain` for a patch given up."""
    name, advice = shlex.quote(patch.patch), _advice(patch)
    typed = advice.partition(OR_TRY)[2].partition(IF_NOT)[0] or advice.partition(TRY)[2]
    steps = [step.strip().replace(f" {name}", " PATCH", 1) for step in typed.split("; ")]
    if retry := next((step for step in steps if step.startswith("splatbatch retry ")), ""):
        return retry
    if not patch.given_up:
        return "splatbatch train PATCH"
    return next((step for step in steps if step.startswith("splatbatch explain ")), "splatbatch explain PATCH")


def _of_product(patch: ReportedPatch, *, is_running: bool) -> Iterator[TodoItem]:
    """Yield items worth a look about a trained patch: a choice between splats, outliers, warnings."""
    last = patch.attempts[-1] if patch.attempts else None
    said, _, command = last.choice.partition(f": {ACCEPT}") if last else ("", "", "")
    number = command.partition("--attempt ")[2].partition("`")[0]
    is_done = any(one.is_kept and number == str(one.number) for one in patch.attempts)
    if last and said and not is_done and not (last.is_kept and (is_running or not command)):
        offered = f"accept PATCH --attempt {number}" if command and not is_running else "explain PATCH"
        yield _reason("look", said if last.is_kept else f"attempt {last.number}: {said}", f"splatbatch {offered}")
    if odd := (*patch.outliers, *(one for one in patch.warnings if ACCEPT not in one)):
        yield _reason("look", "; ".join(odd), "splatbatch explain PATCH")


def _of_batch(report: Report) -> Iterator[TodoItem]:
    audit, scene = report.audit, report.scene
    for one in report.afterwards:
        if one.state != DONE:
            yield _reason("do", one.words, one.command)
    if audit and audit["warnings"]:
        warnings = plural(len(audit["warnings"]), "warning")
        yield _reason("look", f"the audit of photographs and models gave {warnings}", "splatbatch verify-dims")
    if not scene or not scene.cores:
        return
    steps = [f"{seam.name} ({why_it_steps(seam)})" for seam in scene.seams if seam.grade == "step"]
    if scene.is_stale:
        yield _reason("look", "the scene was merged again: measure it again", "splatbatch evaluate")
    lost = -(scene.evaluation.within.gain_db or 0.0) if scene.evaluation else 0.0
    if lost >= DARK_EDGE_DB and not scene.is_stale:
        yield _reason(
            "look",
            f"away from the seams between patches, the PSNR of the merged scene is {lost:.1f} dB below that of the "
            "patches' own splats: ground at the edge of the scene may be dark. Train more steps, or set "
            "training.border: none",
            "splatbatch view scene",
        )
    if steps:
        yield _reason(
            "look",
            f"a step is visible at {plural(len(steps), 'seam')} between patches: {', '.join(steps)}",
            "splatbatch view scene",
        )


def _item(trouble: TodoItem, names: list[str], config: str) -> TodoItem:
    """Return an item with its patches; its command can be copied into a shell in any folder, if the YAML is known."""
    command = _command(trouble.command, names)
    if config:
        command = " && ".join(f"{part} -c {shlex.quote(config)}" for part in command.split(" && "))
    return TodoItem(trouble.kind, tuple(names), trouble.what, command)


def _command(command: str, names: Sequence[str]) -> str:
    """Return the command with PATCH replaced by the patches; if it cannot name them all, it is about all due ones."""
    if "PATCH" not in command:
        return command
    can_be_typed = all(name.isprintable() for name in names)
    if any(verb in command for verb in OF_ONE):
        return command.replace("PATCH", _quoted(names[0])) if can_be_typed else "splatbatch status"
    if can_be_typed and (len(names) <= MOST_NAMED or "--set" in command):
        return command.replace("PATCH", " ".join(map(_quoted, names)))
    return command.replace("retry PATCH", "retry --failed").replace(" PATCH", "")


def _quoted(name: str) -> str:
    """Return a name quoted for a shell; a name that begins with "-" is written as --patch=NAME."""
    return f"--patch={shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
