"""The history of a patch as text: every attempt, how it ended, evidence, changed settings, advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from splatbatch.failures.causes import title
from splatbatch.output.events import (
    Accepted,
    AttemptEnded,
    AttemptStarted,
    GaveUp,
    PatchRejected,
    Restored,
    RetryScheduled,
    SlotNotReady,
)
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import events
from splatbatch.tasks.status import PatchStatus
from splatbatch.text import assignments, moment

OfPatch = AttemptStarted | SlotNotReady | AttemptEnded | RetryScheduled | GaveUp | Accepted | Restored | PatchRejected
"""Events of a patch that its history tells."""
OF_PATCHES: tuple[type[OfPatch], ...] = get_args(OfPatch)


def tell_history(output: OutputFolder, status: PatchStatus) -> Iterator[str]:
    """Yield the history of a patch as lines, from the ledger and the files; the last line is its present state.

    A patch without events gives a line that says so, and its state. Ledgers that cannot be read count as empty.

    Args:
        output: the output folder.
        status: present status of the patch.
    """
    history = [event for event in events(output, *OF_PATCHES) if event.patch == status.patch]
    if not history:
        yield f"{status.patch}: nothing has happened yet"
    for event in history:
        yield from _in_words(event, output)
    now = replace(status, advice="" if _is_told(status.advice, history) else status.advice).in_words()
    yield f"now: {now}{f', {status.splat}' if status.splat else ''}"


def _is_told(advice: str, history: Sequence[OfPatch]) -> bool:
    """Return whether the current advice has been printed already, with a failed attempt or a rejection."""
    told = [event.diagnosis.advice for event in history if isinstance(event, AttemptEnded) and event.diagnosis]
    told += [event.reason for event in history if isinstance(event, PatchRejected)]
    return any(one and one in advice for one in told)


def _in_words(event: OfPatch, output: OutputFolder) -> Iterator[str]:
    at = moment(event.t or 0.0)
    match event:
        case AttemptStarted():
            yield f"{at}  attempt {event.attempt or 0} on {event.slot}{with_changes(event)}"
        case SlotNotReady():
            yield f"  before, its GPU or CPU slot was not ready for {event.waited_s or 0:.1f} s: {event.reason}"
        case AttemptEnded():
            yield from _end(event, output)
        case RetryScheduled():
            yield f"  then: retry after {event.wait_s or 0:.0f} s{with_changes(event)}{_witnesses(event)}"
        case GaveUp():
            yield f"  then: {event.in_words()}{_witnesses(event)}"
        case Accepted() | Restored():
            yield f"{at}  {event.name}: {'' if event.attempt is None else event.attempt}"
        case PatchRejected():
            yield f"{at}  refused by the audit: {event.reason}"


def _end(event: AttemptEnded, output: OutputFolder) -> Iterator[str]:
    diagnosis, seconds = event.diagnosis, event.seconds or 0.0
    where = f"in phase {event.phase or 'start'}, step {event.step or 0}"
    if event.outcome == "trained":
        yield f"  trained: {event.num_gaussians or 0:,} Gaussians in {seconds:.0f} s"
        yield from ([f"  {event.ended_early}"] if event.ended_early else [])
        yield from ([f"  {event.choice}"] if event.choice else [])
        yield from (f"  warning: {warning}" for warning in event.warnings or ())
    elif event.is_well:
        yield f"  done in {seconds:.0f} s"
    elif diagnosis:
        yield f"  failed: {title(diagnosis.cause)} {where}, after {seconds:.0f} s"
        yield from (f"    | {line}" for line in diagnosis.evidence)
        yield f"  advice: {diagnosis.advice}"
        yield f"  log: {output.patch(event.patch).attempt(event.attempt or 0).log}"
    else:
        yield f"  stopped {where}: {event.reason or ''}"


def with_changes(event: AttemptStarted | RetryScheduled) -> str:
    """Return what an attempt changes as the end of a sentence, " with A=B" or ", on another GPU"; empty for nothing."""
    if isinstance(event, RetryScheduled) and event.how:
        return f", {event.how}"
    return f" with {assignments(event.changes)}" if event.changes else ""


def _witnesses(event: RetryScheduled | GaveUp) -> str:
    names = ", ".join(event.trained_in_between or ())
    return f" ({names} trained in between: the GPU is not to blame)" if names else ""
