"""Who has trained a batch, where and when: what report.json and the pages say of workers and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatbatch.files import Record
from splatbatch.store.claims.workers import LOCAL, Watcher
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.run import WorkerRecord

HEADINGS = ("worker", "node", "job", "since", "attempts", "trained", "in training", "is training")


def workers_of(output: OutputFolder, patches: Sequence[Record]) -> list[Record]:
    """Return those who have made attempts, or are at work, in the order of their nodes.

    Keys: worker (its name), node (the name of its host), job (of its engine), since, attempts (how many), trained (of
    these), seconds (in training processes), patches (what it has trained), running (what it trains), has_ended.
    """
    watcher = Watcher(output)
    living = {one.worker for one in watcher.living()}
    made: dict[str, list[Record]] = {name: [] for name in living}
    for patch in patches:
        for attempt in patch["attempts"]:
            made.setdefault(attempt["worker"] or LOCAL, []).append({**attempt, "patch": patch["patch"]})
    found = [_worker(watcher.read(name) or WorkerRecord(name), made[name], name in living) for name in sorted(made)]
    return sorted(found, key=lambda one: (one["node"], one["worker"]))


def _worker(record: WorkerRecord, attempts: Sequence[Record], lives: bool) -> Record:
    nodes = [one["node"] for one in attempts if one["node"]]
    trained = [one["patch"] for one in attempts if one["outcome"] == "trained"]
    return {
        "worker": record.worker,
        "node": nodes[-1] if nodes else record.host,
        "job": record.job,
        "since": record.since,
        "attempts": len(attempts),
        "trained": len(trained),
        "seconds": sum(one["seconds"] or 0.0 for one in attempts),
        "patches": list(dict.fromkeys(trained)),
        "running": [one["patch"] for one in attempts if one["outcome"] is None] if lives else [],
        "has_ended": not lives,
    }


def nodes_of(patches: Iterable[Record]) -> list[str]:
    """Return the names of the hosts on which attempts were made: where it is one, no page names it."""
    return sorted({attempt["node"] for patch in patches for attempt in patch["attempts"] if attempt["node"]})


def starts_of(runs: Sequence[Record], gap_s: float = 0.0) -> list[float]:
    """Return when runs began that came more than `gap_s` after the end of all before them; so long apart they are two.

    One without an end was killed, nobody knows when.
    """
    known = sorted((run["started_at"], run["ended_at"] or 0.0) for run in runs if run["started_at"] is not None)
    starts: list[float] = []
    until = 0.0
    for start, end in known:
        starts += [start] if not starts or start >= until + gap_s else []
        until = max(until, start, end)
    return starts
