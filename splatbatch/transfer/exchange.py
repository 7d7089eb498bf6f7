"""The files by which home and workers communicate in a store: bundles, claims, worker status, results, closings.

Home is the batch whose tasks travel. Claims are hints: some stores let two workers win, and a lost reply tells the
winner that it has lost. So a worker reads back the token in its claim. Two workers may train the same task, but only
home accepts splats, so no task is accepted twice.

A courier is a helper process that makes the calls to a store, so that its caller never hangs; see `transfer.courier`.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from splatbatch.errors import CutOffError, StoreError
from splatbatch.files import MIB, MOST_JSON_BYTES, object_in
from splatbatch.output.records.record import TypedRecord
from splatbatch.transfer.blobs import FileRef, at_once
from splatbatch.transfer.bundle import Bundle
from splatbatch.transfer.courier import Courier
from splatbatch.transfer.store import Store, read_whole

BUNDLES, CLAIMS, CLOSED, RESULTS, WORKERS = "bundles", "claims", "closed", "results", "workers"
_BUNDLE = re.compile(r"[0-9a-f]{32}")
"""Pattern of a bundle's name in bundles/; other files there are ignored."""
HERE = frozenset({"cancel", ".ballast", "ahead.json", "result.json", "scene"})
"""Names in an attempt's folder that are never sent: home writes its own result.json, and has the photographs."""
REFUSED = ".refused"
"""Suffix of the file with the reason that home puts beside a result that it refuses; such a result is ignored."""
BEAT_S = 10.0
"""Pause between two heartbeats of a worker in a store, in seconds."""
SILENCE_S = 180.0
"""Seconds after which a worker whose status has not changed counts as dead, by the clock of the observer."""
FINAL = ("trained", "failed")
"""Outcomes of a result after which no other worker tries the task: home decides what is next."""
MOST_HANDLINGS = 8
"""Most claims in vain of a bundle; after these no worker claims the bundle again, and home gives it up."""


@dataclass(frozen=True)
class WorkerStatus(TypedRecord):
    """workers/<name> in a store: a worker's heartbeat and what the worker trains; rewritten every 10 s (`BEAT_S`)."""

    worker: str = ""
    """Name of the worker; empty in a blank record, as of a missing or damaged file."""
    token: str = ""
    """Random text that tells the worker from every other one."""
    host: str = ""
    version: str = ""
    """Version of splatbatch that the worker runs."""
    since: str = ""
    """Local date and time at which the worker started, as 2026-01-31 22:15:00."""
    sequence: int = 0
    """Number of heartbeats; it grows while the worker lives."""
    has_ended: bool = False
    """Whether the worker has ended, so that its claims are free."""
    bundle: str = ""
    """Hash of the bundle that the worker trains; empty: the worker trains none at the moment."""
    task: str = ""
    """Name of the bundle's task, as "p0@base"; empty without a bundle."""
    phase: str = ""
    """Phase of the latest attempt at the bundle, see `ProgressLine.phase`; empty: none yet."""
    step: int | None = None
    """Latest step of that attempt; None: none yet."""


@dataclass(frozen=True)
class TransferredAttempt(TypedRecord):
    """An attempt in the result of a worker, with references to its files (`pieces`)."""

    number: int = 0
    """Number that the worker gave the attempt; home gives it another one."""
    pieces: tuple[FileRef, ...] = ()


@dataclass(frozen=True)
class TransferResult(TypedRecord):
    """results/<bundle>.<claim>.<outcome>.<hash> in a store: the result of one worker's training of a bundle."""

    bundle: str = ""
    """Hash of the bundle; empty: the result cannot be read."""
    task: str = ""
    worker: str = ""
    version: str = ""
    """Version of splatbatch that the worker ran."""
    outcome: str = ""
    """One of: trained, failed, stopped (another worker may resume it), unfit (the worker's machine cannot train it),
    damaged (files of the bundle are damaged or missing in the store)."""
    why: str = ""
    """Why the task failed, was unfit or damaged; empty for the other outcomes."""
    attempts: tuple[TransferredAttempt, ...] = ()

    @property
    def pieces(self) -> list[FileRef]:
        """The files of all attempts, as references to blobs."""
        return [piece for one in self.attempts for piece in one.pieces]


@dataclass(frozen=True)
class BundleState(TypedRecord):
    """State of a bundle, by its claims, results and closing (the mark that home needs it no more) in the store."""

    is_closed: bool = False
    generation: int = 0
    """Number of the newest claim of the bundle; 0: the bundle was never claimed."""
    results: dict[str, str] = field(default_factory=dict)
    """Outcome of each result, by the name of the result; results that home has refused are left out."""
    worker: str = ""
    """Name of the worker with the newest claim; empty: there is none, or the claim cannot be read. Only read, like the
    next two fields, while the bundle is open."""
    is_free: bool = True
    """Whether the bundle has no worker, or its worker has sent a result, has ended, or lost its name to a later one."""
    sequence: int = -1
    """Number of the worker's latest heartbeat; -1: none yet."""

    @property
    def is_final(self) -> bool:
        """Whether a result is "trained" or "failed", so that no other worker tries the bundle."""
        return not set(FINAL).isdisjoint(self.results.values())

    @property
    def is_open(self) -> bool:
        """Whether a worker should still train the bundle: it is not closed by home, and has no final result."""
        return not (self.is_closed or self.is_final)

    @property
    def num_in_vain(self) -> int:
        """Number of claims, without those of workers that were told to stop: these say nothing about the bundle."""
        return self.generation - [*self.results.values()].count("stopped")


@dataclass(frozen=True)
class StoreListing(TypedRecord):
    """The bundles of a store, by hash, and its workers, by name, at one moment."""

    bundles: dict[str, BundleState] = field(default_factory=dict)
    signs: dict[str, WorkerStatus] = field(default_factory=dict)

    def state(self, bundle: str) -> BundleState:
        """Return the state of a bundle, by its hash; a bundle that was packed after this listing is open and free."""
        return self.bundles.get(bundle) or BundleState()


def listing(courier: Courier) -> StoreListing:
    """Return the current bundles and workers of a store.

    Raises:
        StoreError: the store refuses access.
        StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
    """
    return StoreListing.from_record(courier.ask(list_store))


def list_store(store: Store) -> dict[str, Any]:
    """Return a `StoreListing` of a store as a JSON object; runs in the courier process.

    Raises:
        StoreError: the store refuses access.
        CutOffError: the store does not answer.
    """
    bundles, claims, closed, results, workers = at_once(store.names, (BUNDLES, CLAIMS, CLOSED, RESULTS, WORKERS))
    numbered = (name.partition(".") for name in claims)
    numbers = sorted((int(number), bundle) for bundle, _dot, number in numbered if number.isdecimal())
    generations = {bundle: number for number, bundle in numbers}  # the newest comes last
    brought: dict[str, dict[str, str]] = {}
    for name in sorted(results):
        if name.count(".") == 3 and f"{name}{REFUSED}" not in results:
            bundle, _claim, outcome, _hash = name.split(".")
            brought.setdefault(bundle, {})[name] = outcome
    ended = {name.rsplit(".", 2)[0] for name in results}
    shown = at_once(partial(_sign, store), [f"{WORKERS}/{name}" for name in sorted(workers)])
    signs = {one.worker: one for one in shown if one.worker}

    def state(name: str) -> BundleState:
        one = BundleState(name in closed, generations.get(name, 0), brought.get(name, {}))
        if one.generation and one.is_open:
            claim = f"{name}.{one.generation}"
            owner = _sign(store, f"{CLAIMS}/{claim}")
            sign = signs.get(owner.worker) or replace(owner, sequence=-1)
            is_free = sign.has_ended or sign.token != owner.token or claim in ended
            one = replace(one, worker=owner.worker, is_free=is_free, sequence=sign.sequence)
        return one

    ours = sorted(filter(_BUNDLE.fullmatch, bundles))
    return StoreListing(dict(zip(ours, at_once(state, ours), strict=True)), signs).to_record()


def _sign(store: Store, place: str) -> WorkerStatus:
    """Return the worker status in a status file or a claim; an empty one if the file is missing or damaged."""
    try:
        return WorkerStatus.from_record(object_in(read_whole(store, place, MIB)))
    except OSError:
        return WorkerStatus()


@dataclass
class StoreWatch:
    """Remembers since when the state of each bundle has not changed, over several listings; never reads the store."""

    _moved: dict[str, tuple[BundleState, float]] = field(default_factory=dict)

    def is_dead(self, name: str, one: BundleState) -> bool:
        """Return whether a bundle has no living worker, so that another worker may claim the bundle.

        The bundle is free, or its state has been the same for `SILENCE_S` seconds in the calls of this method.

        Args:
            name: hash of the bundle.
            one: its state in the latest listing.
        """
        before, since = self._moved.get(name, (None, 0.0))
        if one != before:
            since = time.monotonic()
            self._moved[name] = one, since
        return one.is_free or time.monotonic() - since > SILENCE_S

    def state_of(self, name: str, one: BundleState) -> str:
        """Return the state of a bundle: "trained", "failed", "closed", "waiting", "silent" or "at work".

        trained, failed: a result says so. closed: home has closed it without such a result. waiting: no worker has it.
        silent: its state has been the same for `SILENCE_S` seconds. at work: a worker has it.

        Args:
            name: hash of the bundle.
            one: its state in the latest listing.
        """
        if one.is_final:
            return next(outcome for outcome in FINAL if outcome in one.results.values())
        if one.is_closed:
            return "closed"
        if one.is_free:
            return "waiting"
        return "silent" if self.is_dead(name, one) else "at work"

    def due(self, seen: StoreListing, me: str, unfit: frozenset[str] = frozenset()) -> list[str]:
        """Return the hashes of the bundles that a worker may claim; empty if there are none.

        They are open, have no living worker, and fewer than `MOST_HANDLINGS` claims in vain.

        Their order differs from worker to worker, so that not all workers claim the same bundle.

        Args:
            seen: the latest listing.
            me: name of the worker.
            unfit: hashes of bundles that the worker cannot train.
        """
        free = [
            name
            for name, one in seen.bundles.items()
            if one.is_open and name not in unfit and one.num_in_vain < MOST_HANDLINGS and self.is_dead(name, one)
        ]
        return sorted(free, key=lambda one: _digest(f"{me} {one}".encode()))


def claim(store: Store, bundle: str, generation: int, sign: WorkerStatus) -> bool:
    """Claim a bundle for a worker; return whether the claim in the store then holds the worker's token.

    Runs in the courier process.

    Args:
        store: the store.
        bundle: hash of the bundle.
        generation: number of the claim: the newest one plus 1.
        sign: status of the worker.

    Raises:
        StoreError: the store refuses the claim.
        CutOffError: the store does not answer.
    """
    place = f"{CLAIMS}/{bundle}.{generation}"
    store.write(place, json.dumps({"worker": sign.worker, "token": sign.token}).encode(), once=True)
    return _sign(store, place).token == sign.token  # the answer to `write` may be wrong or lost


def read_sealed(store: Store, place: str) -> dict[str, Any] | None:
    """Return a bundle or a result, if its contents match the hash in its name.

    An empty object if there is no such file; None if the file was altered or cannot be read. Runs in the courier
    process.

    Args:
        store: the store.
        place: folder and name in the store.

    Raises:
        CutOffError: the store does not answer.
    """
    try:
        content = read_whole(store, place, MOST_JSON_BYTES)
    except FileNotFoundError:
        return {}
    except CutOffError:
        raise
    except StoreError:
        return None
    return object_in(content) if re.split("[/.]", place)[-1] == _digest(content) else None


def result_at(courier: Courier, name: str) -> TransferResult:
    """Return a result, by its name; a blank record if the result was altered, is missing, or cannot be read.

    Raises:
        StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
    """
    return TransferResult.from_record(courier.ask(read_sealed, f"{RESULTS}/{name}"))


def bundles_at(courier: Courier, names: Sequence[str]) -> dict[str, Bundle]:
    """Return bundles by their hashes; one that was altered, is missing or cannot be read is blank, without a home.

    Raises:
        StopRequested: a stop was requested during the wait. Other errors: see `Courier.run`.
    """
    records = courier.run((read_sealed, (f"{BUNDLES}/{name}",)) for name in names)
    return {name: Bundle.from_record(record) for name, record in zip(names, records, strict=True)}


def heartbeat(store: Store, sign: WorkerStatus) -> str:
    """Write the status of a worker into a store; return the hash of its bundle if home has closed that bundle, else "".

    Runs in the courier process.

    Raises:
        StoreError: the store refuses the file.
        CutOffError: the store does not answer.
    """
    store.write(f"{WORKERS}/{sign.worker}", json.dumps(sign.to_record()).encode())
    return sign.bundle if sign.bundle and sign.bundle in store.names(CLOSED) else ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def put_sealed(store: Store, begins: str, record: TypedRecord) -> str:
    """Put a bundle or a result into a store, to which its blobs were sent before; return the hash of its contents.

    The hash ends the name of the file. Runs in the courier process.

    Args:
        store: the store.
        begins: the folder, and the beginning of the name.
        record: the bundle or the result.

    Raises:
        StoreError: the store refuses the file.
        CutOffError: the store does not answer.
    """
    content = json.dumps(record.to_record(), sort_keys=True, allow_nan=False).encode()
    store.write(begins + _digest(content), content)
    return _digest(content)
