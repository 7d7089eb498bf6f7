"""A patch's whole story: every attempt, why it ended, which lines show it, what was changed, what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator

from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import events
from splatbatch.files import Record


def tell(output: OutputFolder, patch: str) -> Iterator[str]:
    """Yield the story of a patch line by line, from the ledger and the files."""
    history = [event for event in events(output.ledger) if event.get("patch") == patch]
    if not history:
        yield f"{patch}: nothing has happened yet"
    for event in history:
        yield from _chapter(event, output)
    if output.patch(patch).splat.exists():
        yield f"now: trained, {output.patch(patch).splat}"


def _chapter(event: Record, output: OutputFolder) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(event.get("t", 0))))
    match event["event"]:
        case "attempt_started":
            yield f"{at}  attempt {event.get('attempt')} on {event.get('slot')}{_with(event)}"
        case "gate":
            yield f"  its slot was not fit for {float(event.get('waited_s') or 0):.1f} s before: {event.get('reason')}"
        case "attempt_ended":
            yield from _end(event, output)
        case "retry":
            yield f"  then: again after {float(event.get('wait_s', 0)):.0f} s{_with(event)}{_witnesses(event)}"
        case "gave_up":
            yield f"  then: given up: {event.get('reason')}{_witnesses(event)}"
        case "refused":
            yield f"{at}  refused by the audit: {event.get('reason')}"
        case _:
            pass


def _end(event: Record, output: OutputFolder) -> Iterator[str]:
    diagnosis = event.get("diagnosis") or {}
    where = f"in phase {event.get('phase') or 'start'}, step {event.get('step') or 0}"
    match event.get("outcome"):
        case "trained":
            seconds = float(event.get("seconds") or 0)
            yield f"  trained: {int(event.get('num_gaussians') or 0):,} Gaussians in {seconds:.0f} s"
            yield from (f"  warning: {warning}" for warning in event.get("warnings") or ())
        case "failed":
            yield f"  failed: {diagnosis.get('cause')} {where}, after {float(event.get('seconds') or 0):.0f} s"
            yield from (f"    | {line}" for line in diagnosis.get("evidence") or ())
            yield f"  advice: {diagnosis.get('advice')}"
            number = int(event.get("attempt") or 0)
            yield f"  log: {output.patch(str(event['patch'])).path / f'attempt-{number:02d}' / 'train.log'}"
        case _:
            yield f"  stopped {where}: {event.get('reason', '')}"


def _with(event: Record) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in (event.get("changes") or {}).items())
    return f" with {changes}" if changes else ""


def _witnesses(event: Record) -> str:
    names = event.get("trained_in_between") or []
    return f" ({', '.join(names)} trained in between: the GPU is not to blame)" if names else ""
