"""The status of every patch for display, read from the output folder: on any machine, with or without an active run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from splatbatch.errors import LaterFormatError
from splatbatch.failures.causes import title
from splatbatch.fields import number
from splatbatch.isolated import crash_of
from splatbatch.machine.orphans import has_died
from splatbatch.outcome import INTERNAL_FAULT
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import UNTIL, AttemptEnded, PatchRejected, TaskUnit
from splatbatch.output.folders import is_standby_only, latest_number
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import MEASURING, JobSpec, ProgressLine
from splatbatch.output.records.result import Result
from splatbatch.output.retention import ACCEPT
from splatbatch.scene.patches import list_names, natural_key
from splatbatch.tasks.counts import count_patches, words_for
from splatbatch.tasks.patch_state import UNCOMPARED, GivenUp, Missing, RejectedByAudit, UpToDate

if TYPE_CHECKING:
    from splatbatch.tasks.freshness import FreshnessChecker

State = Literal["trained", "done", "running", "failed", "stopped", "refused", "stale", "waiting"]
STATES: tuple[State, ...] = get_args(State)
"""States in the order in which summaries name them."""
MADE: tuple[State, ...] = ("trained", "done")
"""States of a task whose product is up to date: the splat of a patch, or the product of a stage."""
MOST_INTERESTING: tuple[State, ...] = ("running", "failed", "refused", "stopped", "stale", "waiting", *MADE)
"""States, the most interesting first: if there is no room for all patches, those of the last states are left out."""
WITH_SPLAT = ("trained", "stale")
"""States in which the figures of the accepted splat are shown."""
LINES_LOOKED_AT = 10
"""Number of latest progress lines by which the present speed of a training is measured."""
LOST = "The process that watched it was killed, or the machine went down: `splatbatch train` continues the training."
INSIST = f" (The patch is {UNTIL}; `splatbatch retry {{patch}}` trains it anyway.)"


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Status of one patch, with the figures of its splat or of its running attempt.

    A figure is None, or 0 for a step, where it is not measured or does not apply; a text is empty. A lost attempt,
    whose supervisor has died, keeps the figures of its last moments.
    """

    patch: str
    state: State
    attempt: str = ""
    """Attempt that runs, that made the splat, or that ended last, as "attempt-01"; empty: none, or not read.

    "attempt-00": the task failed or was given up before any attempt began.
    """
    phase: str = ""
    """Phase of the attempt as in its progress, such as "train"; empty: unknown, or none.

    "start": before its first progress line. "done": with a splat. "standby": the patch waits, and its next attempt is
    being prepared.
    """
    step: int = 0
    """Latest step of the running attempt, last step of the splat or of the ended attempt; 0: none, or unknown."""
    max_steps: int = 0
    """Last step of the training, as far as it is known now; 0: unknown, or the last attempt ended without a splat."""
    planned_steps: int | None = None
    """Number of steps planned at first, while a training ends early; None: it does not end early, or does not run."""
    ended_early: tuple[str, ...] = ()
    """Sentences on an early end: its step, the time saved, and how far the hold-out figures are too good.

    Empty: none.
    """
    loss: float | None = None
    """Latest recorded loss of the running attempt; None: none is recorded, or no attempt runs."""
    psnr_covered: float | None = None
    """PSNR on covered pixels of held-out photographs, in dB: the figure that decides; None: not measured."""
    covered_share: float | None = None
    """Share of covered pixels in the held-out photographs, 0 to 1; None: not measured."""
    covered_set: str = ""
    """Hash of the covered pixels; figures with different hashes must not be compared. Empty: unknown."""
    psnr: float | None = None
    """PSNR on all pixels of the original held-out photographs, in dB; None: not measured."""
    psnr_even: float | None = None
    """PSNR on all pixels of the colour-corrected held-out photographs, in dB; None: not measured, or no correction."""
    ssim: float | None = None
    initial_psnr: float | None = None
    """PSNR on held-out photographs before the first step, in dB; None: not measured."""
    training_psnr: float | None = None
    """PSNR on a few of the photographs that the splat was trained on, in dB; None: not measured."""
    lpips: float | None = None
    num_gaussians: int | None = None
    seconds: float | None = None
    """Seconds that the attempt took, or has taken so far; while a splat is measured, seconds of this phase alone."""
    cause: str = ""
    """Cause of a failure, or words on why the task was stopped, given up or is stale; empty: none.

    "audit": the audit refused the patch; "lost": the supervisor of the attempt has died.
    """
    advice: str = ""
    """What to do about a failure, or the error of the audit if the patch was refused; empty: nothing is known."""
    evidence: tuple[str, ...] = ()
    """Lines by which the cause of a failure was found; empty: none."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of the splat that were changed by --set, rungs or a deadline, by full name; empty: none."""
    warnings: tuple[str, ...] = ()
    """Warnings on the splat and on later attempts, or that a stale splat is kept; empty: none."""
    splat: str = ""
    """Path of the accepted splat, if its figures are shown; else empty."""
    steps_per_s: float | None = None
    """Present speed of the running attempt; None: unknown, or no attempt runs."""
    eta_s: float | None = None
    """Seconds until the last step of the running attempt; None: unknown, or no attempt runs."""
    given_up: bool = False
    """Whether the patch failed for good.

    `train` tries it again only if settings, inputs, program or machine have changed.
    """
    gpu_used_mib: int | None = None
    """Memory in use on the GPU of the running attempt, by all programs; None: unknown, no GPU, or no attempt runs."""
    gpu_temperature_c: int | None = None
    node: str = ""
    worker: str = ""
    """Worker that trains the patch, or trained it; `node` is the host of that worker. Empty: unknown."""
    noun: TaskUnit = "patch"
    """Unit of the task: a patch, or a stage of a reconstruction."""

    @property
    def is_made(self) -> bool:
        """Whether the product of the task is up to date."""
        return self.state in MADE

    @property
    def why(self) -> str:
        """State and cause in words: "failed: GPU memory ran out (cuda_oom)"; the state alone without a cause."""
        return f"{self.state}: {title(self.cause)}" if self.cause else self.state

    def in_words(self) -> str:
        """Return state, cause and advice in words; cause and advice are left out where there are none."""
        return f"{self.why}. {self.advice}" if self.advice else self.why


def read_status(
    output: OutputFolder,
    names: Iterable[str] = (),
    in_full: int | None = None,
    standing: FreshnessChecker | None = None,
) -> tuple[PatchStatus, ...]:
    """Return the status of patches in natural order (p2 before p10).

    A patch whose files cannot be read counts as failed.

    Args:
        output: the output folder.
        names: names of the patches of the batch, begun or not; without `standing` all folders found are added.
        in_full: number of patches, the most interesting ones, of which all figures are read; None: all.
        standing: freshness checker of the batch. None, as where the scene is elsewhere: any existing product counts as
            up to date.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
    """
    endings, folders = standing.endings if standing else TaskHistory(output), _folders(output)
    patches = sorted(dict.fromkeys([*names, *(() if standing else folders)]), key=natural_key)
    with endings.as_of_now():
        found = [
            _status_or_fault(name, partial(_status, output, name, endings, standing, is_begun=name in folders))
            for name in patches
        ]
    if standing:
        nouns = {name: task.noun for name, task in standing.tasks.items() if task.noun != "patch"}
        found = [replace(one, noun=nouns[one.patch]) if one.patch in nouns else one for one in found]
    chosen = most_interesting(found, len(found) if in_full is None else in_full)
    wanted = [one for one in chosen if one.state in WITH_SPLAT or one.attempt]
    figures = {one.patch: _status_or_fault(one.patch, partial(_with_figures, output, one)) for one in wanted}
    return tuple(figures.get(one.patch, one) for one in found)


def _status_or_fault(name: str, look: Callable[[], PatchStatus]) -> PatchStatus:
    """Return the status of a patch; an error over its files becomes a failure of this patch, so that all are shown."""
    try:
        return look()
    except LaterFormatError:
        raise  # it concerns the whole output folder, not one patch
    except Exception as error:  # noqa: BLE001 - its files may hold anything
        return PatchStatus(name, "failed", cause=INTERNAL_FAULT, advice=crash_of(error).words)


def _folders(output: OutputFolder) -> set[str]:
    try:
        with os.scandir(output.path / "patches") as entries:
            return {entry.name for entry in entries if entry.is_dir()}
    except OSError:
        return set()


def most_interesting(statuses: Sequence[PatchStatus], room: int) -> Sequence[PatchStatus]:
    """Return at most `room` patches, chosen by state: running ones first, made ones last; their order is kept."""
    if len(statuses) <= room:
        return statuses
    order = {state: place for place, state in enumerate(MOST_INTERESTING)}
    chosen = {status.patch for status in sorted(statuses, key=lambda status: order[status.state])[:room]}
    return [status for status in statuses if status.patch in chosen]


def summary(statuses: Sequence[PatchStatus]) -> str:
    """Return the result of a batch in one line: "7 of 8 patches trained; failed: p5".

    States without patches are left out.
    """
    line = done_in_words(statuses)
    for state in STATES[len(MADE) :]:
        names = [status.patch for status in statuses if status.state == state]
        line += f"; {state}: {list_names(names)}" if names else ""
    return line


def done_in_words(statuses: Sequence[PatchStatus], what: str | None = None) -> str:
    """Return the number of up-to-date products in words: "3 of 4 patches trained", or "7 of 7 stages done".

    Args:
        statuses: statuses of all tasks.
        what: noun in the plural; None: the noun of the tasks.
    """
    done = {one.patch: one.is_made for one in statuses}
    words = words_for(done, noun_of(statuses))
    what = f"{words.one}{words.plural}" if what is None else what
    return f"{count_patches(done, what)} {words.done}"


def noun_of(statuses: Sequence[PatchStatus]) -> TaskUnit:
    """Return the unit in which the tasks of a batch are counted; "patch" without tasks."""
    return next((one.noun for one in statuses), "patch")


def _status(
    output: OutputFolder, name: str, endings: TaskHistory, standing: FreshnessChecker | None, *, is_begun: bool
) -> PatchStatus:
    """Return the status of a patch; without figures if it is trained, see `_with_figures`."""
    folder = output.patch(name)
    files = folder.files() if is_begun else []
    attempt = None if endings.is_judged(name, latest_number(files)) else folder.latest(files)
    if attempt and not attempt.has_exited() and attempt.job.exists():
        stands_by, died = is_standby_only(attempt), has_died(attempt)
        if stands_by and not died:
            return PatchStatus(name, "waiting", phase="standby")
        if not stands_by:
            running = _running(name, attempt)
            return replace(running, state="stopped", cause="lost", advice=LOST) if died else running
    last = endings.last(name)
    if standing and name in standing.tasks:
        return _assess(standing, name, last)
    if folder.is_accepted(files):
        return PatchStatus(name, "trained")
    if isinstance(last, PatchRejected):
        return PatchStatus(name, "refused", cause="audit", advice=last.reason)
    return _ended(name, last) if last else PatchStatus(name, "waiting")


def _assess(standing: FreshnessChecker, name: str, last: AttemptEnded | PatchRejected | None) -> PatchStatus:
    """Return the status of a patch that does not run now, by the same rules as `plan` and `train`."""
    state, failed = standing.state(name, standing.rejection(name)), None
    if isinstance(last, AttemptEnded) and last.outcome in ("failed", "stopped"):
        failed = _ended(name, last)
    match state:
        case UpToDate():
            warnings = _since(state.result or Result(), last)
            warnings += (f"{UNCOMPARED}: run `splatbatch plan` to compare them",) if state.is_uncompared else ()
            return PatchStatus(name, "trained" if standing.tasks[name].noun == "patch" else "done", warnings=warnings)
        case RejectedByAudit():
            return PatchStatus(name, "refused", cause="audit", advice=state.reason)
        case GivenUp():
            failed = failed or _ended(name, AttemptEnded(name, None, ""))
            advice = f"{failed.advice}{INSIST.format(patch=name)}".strip()
            earlier = _of_an_earlier_splat(state.result, state.why_due)
            return replace(failed, given_up=True, cause=failed.cause or state.reason, advice=advice, warnings=earlier)
        case _ if failed:
            return replace(failed, warnings=_of_an_earlier_splat(state.result, state.reason))
        case Missing():
            return PatchStatus(name, "waiting")
        case _:
            return PatchStatus(name, "stale", cause=state.reason)


def _since(result: Result, last: AttemptEnded | PatchRejected | None) -> tuple[str, ...]:
    """Return warnings that the last attempt failed, or that its splat was not taken and can be accepted."""
    if not isinstance(last, AttemptEnded):
        return ()
    attempt, why = f"attempt {last.attempt or 0}", f": {title(last.cause)}" if last.cause else ""
    is_failed = last.outcome in ("failed", "stopped")
    failed = (f"{attempt} {last.outcome}{why}; the splat of {result.attempt} is kept",) if is_failed else ()
    is_open = ACCEPT in last.choice and f"--attempt {result.number}`" not in last.choice
    return (*failed, f"{attempt}: {last.choice}") if is_open else failed


def _of_an_earlier_splat(result: Result | None, reason: str) -> tuple[str, ...]:
    return (f"the splat of {result.attempt} is kept, though it is stale: {reason}",) if result else ()


def _running(name: str, attempt: AttemptFolder) -> PatchStatus:
    lines, sample = attempt.read_progress(), attempt.last_gpu_sample()
    last = next(reversed(lines), ProgressLine())
    of_step = next((line for line in reversed(lines) if line.loss is not None), ProgressLine())
    measured = next((line for line in reversed(lines) if line.psnr is not None), ProgressLine())
    step, max_steps, per_s = last.step or 0, last.max_steps or 0, steps_per_s(lines)
    return PatchStatus(
        name,
        "running",
        attempt=attempt.path.name,
        phase=last.phase or "start",
        step=step,
        max_steps=max_steps,
        planned_steps=last.planned_steps,
        loss=of_step.loss,
        psnr_covered=measured.psnr_covered,
        psnr=measured.psnr,
        psnr_even=measured.psnr_even,
        ssim=measured.ssim,
        num_gaussians=of_step.num_gaussians,
        # no progress is written in this phase: its seconds are counted instead
        seconds=time.time() - last.t if last.phase == MEASURING and last.t is not None else last.seconds,
        steps_per_s=per_s,
        eta_s=eta_s(step, max_steps, per_s),
        gpu_used_mib=sample.used_mib,
        gpu_temperature_c=sample.temperature_c,
    )


def _with_figures(output: OutputFolder, status: PatchStatus) -> PatchStatus:
    """Return a status with the figures of the patch's splat; without a splat, with node and worker of its attempt."""
    folder = output.patch(status.patch)
    if status.state not in WITH_SPLAT:
        attempt = AttemptFolder(folder.path / status.attempt)
        return replace(status, node=attempt.read_start().host, worker=(attempt.read_job() or JobSpec()).claim.worker)
    result = folder.read_result() or Result()
    final, early = result.metrics.final, result.metrics.early_stopping
    return replace(
        status,
        attempt=result.attempt,
        phase="done",
        step=result.step or 0,
        max_steps=result.step or 0,
        psnr_covered=final.psnr_covered,
        covered_share=final.covered_share,
        covered_set=result.metrics.covered.hash,
        ended_early=(words,) if early and (words := early.in_words()) else (),
        psnr=final.psnr,
        psnr_even=final.psnr_even,
        ssim=final.ssim,
        initial_psnr=result.metrics.initial.psnr,
        training_psnr=final.training_psnr,
        lpips=final.lpips,
        num_gaussians=result.num_gaussians,
        seconds=result.seconds,
        changes=result.changes,
        warnings=(*status.warnings, *result.warnings),
        splat=str(folder.splat_of(result)),
        node=result.host,
        worker=result.worker,
    )


def _ended(name: str, event: AttemptEnded) -> PatchStatus:
    diagnosis, stopped = event.diagnosis, event.outcome == "stopped"
    return PatchStatus(
        name,
        "stopped" if stopped else "failed",
        attempt=f"{ATTEMPT_PREFIX}{event.attempt or 0:02d}",
        phase=event.phase or "",
        step=event.step or 0,
        seconds=event.seconds,
        cause=event.reason or "" if stopped else (diagnosis and diagnosis.cause) or "unknown",
        advice=diagnosis.advice if diagnosis and not stopped else "",
        evidence=diagnosis.evidence if diagnosis else (),
    )


def steps_per_s(lines: Sequence[ProgressLine]) -> float | None:
    """Return the steps per second over the latest progress lines with a loss.

    None with fewer than two such lines, or if no time passed between them.
    """
    latest = [line for line in lines if line.loss is not None][-LINES_LOOKED_AT:]
    known = [(line.t, line.step) for line in latest if line.t is not None and line.step is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return number(max(0.0, (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])))


def eta_s(step: int, max_steps: int, per_s: float | None) -> float | None:
    """Return the seconds until the last step.

    None while the speed is unknown or 0, before the first step, and beyond the last step.

    Args:
        step: latest step.
        max_steps: last step.
        per_s: steps per second; None: unknown.
    """
    return number((max_steps - step) / per_s) if per_s and 0 < step <= max_steps else None
