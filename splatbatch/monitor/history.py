"""A patch's whole story: every attempt, why it ended, which lines show it, what was changed, what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator

from splatbatch.fields import mapping, number, text, texts, whole
from splatbatch.files import Record
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import events
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.status import PatchStatus, read_status


def tell(output: OutputFolder, patch: str, standing: Standing | None = None) -> Iterator[str]:
    """Yield the story of a patch line by line, from the ledger and the files; last how it stands now."""
    history = [event for event in events(output.ledger) if event.get("patch") == patch]
    if not history:
        yield f"{patch}: nothing has happened yet"
    for event in history:
        yield from _chapter(event, output)
    now = read_status(output, [patch], standing=standing)
    yield from (_now(one) for one in now if one.patch == patch)


def _now(status: PatchStatus) -> str:
    cause = f": {status.cause}" if status.cause else ""
    return f"now: {status.state}{cause}{f', {status.splat}' if status.splat else ''}"


def _chapter(event: Record, output: OutputFolder) -> Iterator[str]:
    at, slot = _moment(number(event.get("t")) or 0.0), text(event.get("slot"))
    reason = text(event.get("reason"))
    match event["event"]:
        case "attempt_started":
            yield f"{at}  attempt {_attempt(event)} on {slot}{_with(event)}"
        case "gate":
            yield f"  its slot was not fit for {number(event.get('waited_s')) or 0:.1f} s before: {reason}"
        case "attempt_ended":
            yield from _end(event, output)
        case "retry":
            yield f"  then: again after {number(event.get('wait_s')) or 0:.0f} s{_with(event)}{_witnesses(event)}"
        case "gave_up":
            yield f"  then: given up: {reason}{_witnesses(event)}"
        case "accepted" | "restored" as how:
            yield f"{at}  {how}: {text(event.get('attempt'))}"
        case "refused":
            yield f"{at}  refused by the audit: {reason}"
        case _:
            pass


def _end(event: Record, output: OutputFolder) -> Iterator[str]:
    diagnosis, seconds = mapping(event.get("diagnosis")), number(event.get("seconds")) or 0.0
    where = f"in phase {text(event.get('phase')) or 'start'}, step {whole(event.get('step')) or 0}"
    match event.get("outcome"):
        case "trained":
            yield f"  trained: {whole(event.get('num_gaussians')) or 0:,} Gaussians in {seconds:.0f} s"
            yield from (f"  {choice}" for choice in texts(event.get("choice")))
            yield from (f"  warning: {warning}" for warning in texts(event.get("warnings")))
        case "failed":
            yield f"  failed: {text(diagnosis.get('cause'))} {where}, after {seconds:.0f} s"
            yield from (f"    | {line}" for line in texts(diagnosis.get("evidence")))
            yield f"  advice: {text(diagnosis.get('advice'))}"
            yield f"  log: {output.patch(str(event['patch'])).path / f'attempt-{_attempt(event):02d}' / 'train.log'}"
        case _:
            yield f"  stopped {where}: {text(event.get('reason'))}"


def _attempt(event: Record) -> int:
    return whole(event.get("attempt")) or 0


def _moment(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return "at no time that there is"


def _with(event: Record) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in mapping(event.get("changes")).items())
    return f" with {changes}" if changes else ""


def _witnesses(event: Record) -> str:
    names = texts(event.get("trained_in_between"))
    return f" ({', '.join(names)} trained in between: the GPU is not to blame)" if names else ""
