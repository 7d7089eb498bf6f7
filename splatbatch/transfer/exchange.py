"""What home and workers leave for each other in a store: bundles, claims, signs of life, results, and what is closed.

Claims are hints: some stores let two win, and a lost reply tells the winner that it has lost. So an owner's token is
read back. Training twice is waste; accepting twice cannot happen, since only home accepts.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from splatbatch.errors import CutOffError, StoreError
from splatbatch.files import MIB, MOST_JSON_BYTES, object_in
from splatbatch.output.records.record import TypedRecord
from splatbatch.transfer.blobs import FileRef, NewFile, at_once
from splatbatch.transfer.bundle import Bundle
from splatbatch.transfer.courier import Courier
from splatbatch.transfer.store import Store, read_whole

BUNDLES, CLAIMS, CLOSED, RESULTS, WORKERS = "bundles", "claims", "closed", "results", "workers"
_BUNDLE = re.compile(r"[0-9a-f]{32}")
"""Of all that may lie in bundles/, the name of a bundle."""
FOLLOWING = ("renders", "tb", "inspection")
"""Folders of an attempt that are sent after its splat, and come home when they are there."""
HERE = frozenset({"cancel", ".ballast", "ahead.json", "result.json", "scene"})
"""What of an attempt's folder stays with its worker: home makes a result.json of its own, and has the photographs."""
LEFT = ".left"
"""Suffix of the name that an owner adds to its claim when it lets the task go."""
REFUSED = ".refused"
"""Suffix of the name by which home says that a result is damaged: it counts for nothing."""
BEAT_S = 10.0
SILENCE_S = 180.0
"""So long unchanged, a worker counts as gone, by the clock of the observer."""
FINAL = ("trained", "failed")
"""Outcomes after which no other worker is to try: home decides."""
MOST_HANDLINGS = 8
"""So often a bundle may be let go, or its worker vanish, until it is left to home."""


@dataclass(frozen=True)
class WorkerStatus(TypedRecord):
    """workers/<name>: that a worker lives, and what it is at; rewritten every few seconds."""

    worker: str = ""
    token: str = ""
    host: str = ""
    version: str = ""
    since: str = ""
    sequence: int = 0
    has_ended: bool = False
    bundle: str = ""
    """Its hash; empty: it trains nothing at the moment."""
    task: str = ""
    phase: str = ""
    step: int | None = None
    max_steps: int = 0


@dataclass(frozen=True)
class TransferredAttempt(TypedRecord):
    """An attempt that a worker brings."""

    number: int = 0
    """As the worker counts them."""
    pieces: tuple[FileRef, ...] = ()


@dataclass(frozen=True)
class TransferResult(TypedRecord):
    """results/<bundle>.<outcome>.<hash>: the result of a bundle with one worker."""

    bundle: str = ""
    task: str = ""
    worker: str = ""
    version: str = ""
    outcome: str = ""
    """"trained", "failed", "stopped" (to be gone on with), "unfit" (this machine, or this program, cannot)."""
    why: str = ""
    attempts: tuple[TransferredAttempt, ...] = ()

    @property
    def pieces(self) -> list[FileRef]:
        """The files of all attempts."""
        return [piece for one in self.attempts for piece in one.pieces]


@dataclass(frozen=True)
class BundleState(TypedRecord):
    """How far a bundle is, by what lies in the store beside it."""

    is_closed: bool = False
    generation: int = 0
    """Of its newest claim; 0: it was never claimed."""
    results: dict[str, str] = field(default_factory=dict)
    """Outcomes of those that count, by their names."""
    worker: str = ""
    """Its owner, which made that claim. This and what follows is read only while it is open."""
    is_free: bool = True
    """It has no owner, or that has let it go or ended."""
    sequence: int = -1
    """How often its owner has shown that it lives; -1: never yet."""

    @property
    def is_final(self) -> bool:
        """Whether no other worker is to try."""
        return not set(FINAL).isdisjoint(self.results.values())

    @property
    def is_open(self) -> bool:
        """Whether a worker should still train it."""
        return not (self.is_closed or self.is_final)


@dataclass(frozen=True)
class StoreListing(TypedRecord):
    """A store as it was looked at."""

    bundles: dict[str, BundleState] = field(default_factory=dict)
    signs: dict[str, WorkerStatus] = field(default_factory=dict)

    def state(self, bundle: str) -> BundleState:
        """Return how far a bundle is; one that was packed since is open."""
        return self.bundles.get(bundle) or BundleState()


def listing(courier: Courier) -> StoreListing:
    """Return a store as it is now.

    Raises:
        StoreError: the store refuses us.
        StopRequested: the wait was ended.
    """
    return StoreListing.from_record(courier.ask(list_store))


def list_store(store: Store) -> dict[str, Any]:
    """Look at a store; return it as JSON. A courier does this."""
    bundles, claims, closed, results, workers = at_once(store.names, (BUNDLES, CLAIMS, CLOSED, RESULTS, WORKERS))
    generations: dict[str, int] = {}
    for name in claims:
        bundle, _dot, number = name.removesuffix(LEFT).partition(".")
        if number.isdecimal():
            generations[bundle] = max(generations.get(bundle, 0), int(number))
    brought: dict[str, dict[str, str]] = {}
    for name in sorted(results):
        if name.count(".") == 2 and f"{name}{REFUSED}" not in results:
            bundle, outcome, _hash = name.split(".")
            brought.setdefault(bundle, {})[name] = outcome
    shown = at_once(partial(_sign, store), [f"{WORKERS}/{name}" for name in sorted(workers)])
    signs = {one.worker: one for one in shown if one.worker}

    def state(name: str) -> BundleState:
        generation = generations.get(name, 0)
        one = BundleState(name in closed, generation, brought.get(name, {}))
        if not (generation and one.is_open):
            return one
        claim = f"{name}.{generation}"
        owner = _sign(store, f"{CLAIMS}/{claim}")
        sign = signs.get(owner.worker)
        is_gone = sign is not None and (sign.has_ended or sign.token != owner.token)
        is_free, sequence = is_gone or f"{claim}{LEFT}" in claims, sign.sequence if sign else -1
        return replace(one, worker=owner.worker, is_free=is_free, sequence=sequence)

    ours = sorted(filter(_BUNDLE.fullmatch, bundles))
    states = dict(zip(ours, at_once(state, ours), strict=True))
    return StoreListing(states, signs).to_record()


def _sign(store: Store, place: str) -> WorkerStatus:
    """Return the sign of a worker, or what a claim says of one; either may go, or be torn, at any moment."""
    try:
        return WorkerStatus.from_record(object_in(read_whole(store, place, MIB)))
    except OSError:
        return WorkerStatus()


class StoreWatch:
    """Remembers for how long the owners of bundles have not moved; it does not access the store."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[BundleState, float]] = {}

    def is_dead(self, name: str, one: BundleState) -> bool:
        """Return whether a bundle is free, or its owner has been silent for so long that it counts as gone."""
        before, since = self._moved.get(name, (None, 0.0))
        if one != before:
            since = time.monotonic()
            self._moved[name] = one, since
        return one.is_free or time.monotonic() - since > SILENCE_S

    def state_of(self, name: str, one: BundleState) -> str:
        """Return how far a bundle is: trained, failed, closed, waiting, silent, at work."""
        for outcome in FINAL:
            if outcome in one.results.values():
                return outcome
        if one.is_closed:
            return "closed"
        if one.is_free:
            return "waiting"
        return "silent" if self.is_dead(name, one) else "at work"

    def due(self, seen: StoreListing, me: str, unfit: frozenset[str] = frozenset()) -> list[str]:
        """Return the bundles that a worker may claim, in an order of its own, so that not all want the same."""
        free = [
            name
            for name, one in seen.bundles.items()
            if one.is_open and name not in unfit and one.generation < MOST_HANDLINGS and self.is_dead(name, one)
        ]
        return sorted(free, key=lambda one: _digest(f"{me} {one}".encode()))


def is_following(piece: FileRef) -> bool:
    """Return whether a file of an attempt comes home after its splat."""
    return piece.name.partition("/")[0] in FOLLOWING


def claim(store: Store, bundle: str, generation: int, sign: WorkerStatus) -> bool:
    """Claim a bundle for a worker; return whether it is its own now. A courier does this."""
    place = f"{CLAIMS}/{bundle}.{generation}"
    store.write(place, json.dumps({"worker": sign.worker, "token": sign.token}).encode(), once=True)
    return _sign(store, place).token == sign.token  # whatever the store has answered, or lost on its way


def read_sealed(store: Store, place: str) -> dict[str, Any] | None:
    """Return a bundle or a result, by folder and name: empty where there is none, None where it was altered.

    A courier does this.

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
    name = place.rpartition("/")[2].rpartition(".")[2]
    return object_in(content) if _digest(content) == name else None


def result_at(courier: Courier, name: str) -> TransferResult:
    """Return a result; an empty one where it was altered, or is gone. It raises as `listing`."""
    return TransferResult.from_record(courier.ask(read_sealed, f"{RESULTS}/{name}"))


def outline(store: Store, bundle: str) -> tuple[str, str, int]:
    """Return task, home and steps of a bundle; of one that was altered its name alone. A courier does this."""
    found = Bundle.from_record(read_sealed(store, f"{BUNDLES}/{bundle}"))
    return found.task or bundle, found.home, found.max_steps


def makes_once(store: Store, sign: WorkerStatus) -> bool:
    """Show that a worker lives; return whether the store keeps two from making one file. A courier does this."""
    store.write(*_sign_file(sign), once=True)
    return not store.write(*_sign_file(sign), once=True)


def heartbeat(store: Store, sign: WorkerStatus) -> str:
    """Show that a worker lives; return what it trains if that is closed by now. A courier does this."""
    store.write(*_sign_file(sign))
    return sign.bundle if sign.bundle and sign.bundle in store.names(CLOSED) else ""


def _sign_file(sign: WorkerStatus) -> NewFile:
    return f"{WORKERS}/{sign.worker}", json.dumps(sign.to_record()).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def bundle_file(bundle: Bundle) -> NewFile:
    """Return the manifest of a bundle as it is put into a store, once all its blobs are there."""
    return _sealed(f"{BUNDLES}/", bundle)


def result_file(result: TransferResult) -> NewFile:
    """Return the result of a bundle as it is put into a store, once the blobs of its splats are there."""
    return _sealed(f"{RESULTS}/{result.bundle}.{result.outcome}.", result)


def _sealed(begins: str, record: TypedRecord) -> NewFile:
    """Return a record as it lies in a store: its name ends with its hash."""
    content = json.dumps(record.to_record(), sort_keys=True, allow_nan=False).encode()
    return begins + _digest(content), content
