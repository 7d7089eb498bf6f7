"""What home and workers leave for each other in a store: bundles, claims, signs of life, results, and what is closed.

Claims are hints: some stores let two win, and a lost reply tells the winner that it has lost. So an owner's token is
read back. Training twice is waste; accepting twice cannot happen, since only home accepts.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from splatbatch.errors import CutOffError, StoreError
from splatbatch.files import MIB, MOST_JSON_BYTES
from splatbatch.json_text import parse
from splatbatch.output.records.record import TypedRecord
from splatbatch.transfer.blobs import FileRef, at_once
from splatbatch.transfer.bundle import Bundle, sealed, unsealed, why_left
from splatbatch.transfer.store import Store, read_whole
from splatbatch.transfer.traffic import store_at

BUNDLES, CLAIMS, CLOSED, RESULTS, LATER, WORKERS = "bundles", "claims", "closed", "results", "later", "workers"
_BUNDLE = re.compile(r"[0-9a-f]{32}")
"""Of all that may lie in bundles/, the name of a bundle."""
FOLLOWING = ("renders", "tb", "inspection")
"""Folders of an attempt that come home after its splat; nothing else does."""
HERE = frozenset({"cancel", ".ballast", "ahead.json", "result.json", "scene"})
"""What of an attempt's folder stays with its worker: home makes a result.json of its own, and has the photographs."""
LEFT = ".left"
"""Suffix of the name that an owner adds to its claim when it lets the task go."""
REFUSED = ".refused"
"""Suffix of the name by which home says that a result is damaged: it counts for nothing."""
BEAT_S = 10.0
SILENCE_S = 180.0
"""So long unchanged, a worker counts as gone, by the clock of whoever looks."""
FINAL = ("trained", "failed")
"""Outcomes after which nobody else is to try: home decides."""
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
    """results/<bundle>.<outcome>.<hash>: what came of a bundle with one worker."""

    bundle: str = ""
    task: str = ""
    worker: str = ""
    host: str = ""
    version: str = ""
    outcome: str = ""
    """"trained", "failed", "stopped" (to be gone on with), "unfit" (this machine, or this program, cannot)."""
    why: str = ""
    attempts: tuple[TransferredAttempt, ...] = ()
    has_more: bool = False
    """Pictures follow."""

    @property
    def pieces(self) -> list[FileRef]:
        """The files of all attempts."""
        return [piece for one in self.attempts for piece in one.pieces]


@dataclass(frozen=True)
class Owner:
    """The newest claim of a bundle."""

    generation: int = 0
    worker: str = ""
    token: str = ""
    is_left: bool = False


@dataclass(frozen=True)
class StoreListing:
    """A store as it was looked at."""

    bundles: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    owners: Mapping[str, Owner] = field(default_factory=dict)
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of results that count, by bundle."""
    later: frozenset[str] = frozenset()
    """Names of what came after a result: its own name stands before the last dot."""
    signs: Mapping[str, WorkerStatus] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    def outcomes(self, bundle: str) -> list[str]:
        """Return what has come of a bundle so far."""
        return [name.split(".")[1] for name in self.results.get(bundle, ())]

    def is_free_of(self, owner: Owner) -> bool:
        """Return whether whoever has claimed a bundle has let it go, or has said good-bye."""
        sign = self.signs.get(owner.worker)
        return owner.is_left or (sign is not None and (sign.has_ended or sign.token != owner.token))

    def is_open(self, bundle: str) -> bool:
        """Return whether somebody should still train it."""
        return bundle not in self.closed and not set(FINAL) & set(self.outcomes(bundle))


def look(url: str, known: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Look at a store; return it as JSON. A reader does this.

    Args:
        url: of the store.
        known: owners of claims that were read before, by the names of the claims.
    """
    store = store_at(url)
    folders = (BUNDLES, CLAIMS, CLOSED, RESULTS, LATER, WORKERS)
    names = dict(zip(folders, at_once(store.names, folders), strict=True))
    names[BUNDLES] = {name: size for name, size in names[BUNDLES].items() if _BUNDLE.fullmatch(name)}
    newest: dict[str, int] = {}
    for name in names[CLAIMS]:
        bundle, _, rest = name.partition(".")
        number = rest.removesuffix(LEFT)
        if number.isdecimal():
            newest[bundle] = max(newest.get(bundle, 0), int(number))
    final = [one for one in names[RESULTS] if one.split(".")[1:2] in _FINAL and f"{one}{REFUSED}" not in names[RESULTS]]
    over = {*names[CLOSED], *(one.partition(".")[0] for one in final if not one.endswith(REFUSED))}
    wanted = [f"{bundle}.{number}" for bundle, number in newest.items()]
    unread = [name for name in wanted if name not in known and name.partition(".")[0] not in over]
    owners = dict(zip(unread, at_once(partial(_owner, store), unread), strict=True))
    signs = [one for one in at_once(partial(_sign, store), sorted(names[WORKERS])) if one]
    listed = {folder: sorted(names[folder]) for folder in folders if folder != WORKERS}
    return {**listed, "owners": owners, "signs": signs}


_FINAL = [[one] for one in FINAL]


def _owner(store: Store, name: str) -> tuple[str, str]:
    found = _json_in(store, f"{CLAIMS}/{name}")
    return str(found.get("worker", "")), str(found.get("token", ""))


def _sign(store: Store, name: str) -> dict[str, Any]:
    return _json_in(store, f"{WORKERS}/{name}")


def _json_in(store: Store, name: str) -> dict[str, Any]:
    """Return a small JSON object that may go, or be torn, at any moment."""
    try:
        found = parse(read_whole(store, name, MIB))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class StoreWatch:
    """Remembers what was seen of a store, so that it is known who moves; asks nobody itself."""

    def __init__(self) -> None:
        self.owners: dict[str, Sequence[Any]] = {}
        """Of claims that were read."""
        self._moved: dict[str, tuple[int, float]] = {}

    def take(self, told: Mapping[str, Any]) -> StoreListing:
        """Take in a look."""
        self.owners.update(told["owners"])
        signs = {one.worker: one for one in map(WorkerStatus.from_record, told["signs"])}
        now = time.monotonic()
        for name, sign in signs.items():
            if self._moved.get(name, (-1, 0.0))[0] != sign.sequence:
                self._moved[name] = (sign.sequence, now)
        owners: dict[str, Owner] = {}
        claims = set(told[CLAIMS])
        for name in claims:
            bundle, _, number = name.partition(".")
            if number.isdecimal() and int(number) > owners.get(bundle, Owner()).generation:
                worker, token = self.owners.get(name, ("", ""))
                owners[bundle] = Owner(int(number), worker, token, f"{name}{LEFT}" in claims)
        refused = {name.removesuffix(REFUSED) for name in told[RESULTS] if name.endswith(REFUSED)}
        results: dict[str, tuple[str, ...]] = {}
        for name in told[RESULTS]:
            if name.count(".") == 2 and name not in refused:
                bundle = name.partition(".")[0]
                results[bundle] = (*results.get(bundle, ()), name)
        known = (tuple(told[BUNDLES]), frozenset(told[CLOSED]), owners, results, frozenset(told[LATER]), signs)
        return StoreListing(*known, frozenset(refused))

    def silent_s(self, sign: WorkerStatus) -> float:
        """Return for how long a worker is known not to have moved."""
        return time.monotonic() - self._moved.get(sign.worker, (0, time.monotonic()))[1]

    def is_dead(self, owner: Owner, seen: StoreListing) -> bool:
        """Return whether whoever has claimed a bundle is known to be gone, or has let it go."""
        if seen.is_free_of(owner):
            return True
        sign = seen.signs.get(owner.worker)
        if sign is None:  # a claim whose worker never beat
            first = self._moved.setdefault(f"{owner.worker} {owner.token}", (0, time.monotonic()))[1]
            return time.monotonic() - first > SILENCE_S
        return self.silent_s(sign) > SILENCE_S

    def due(self, seen: StoreListing, me: str, unfit: frozenset[str] = frozenset()) -> list[str]:
        """Return the bundles that a worker may claim, in an order of its own, so that not all want the same."""
        free = [one for one in seen.bundles if seen.is_open(one) and one not in unfit and self._is_free(one, seen)]
        return sorted(free, key=lambda one: sealed({"worker": me, "bundle": one})[0])

    def _is_free(self, bundle: str, seen: StoreListing) -> bool:
        owner = seen.owners.get(bundle)
        return owner is None or (owner.generation < MOST_HANDLINGS and self.is_dead(owner, seen))


def is_following(piece: FileRef) -> bool:
    """Return whether a file of an attempt comes home after its splat."""
    return piece.name.partition("/")[0] in FOLLOWING


def claim(url: str, asked: tuple[str, int, str, str, bool]) -> dict[str, Any]:
    """Claim a bundle; return its manifest, or nothing where another has it. A reader does this.

    One that is left to others is returned, and not claimed.

    Args:
        url: of the store.
        asked: the bundle, the generation of the claim, the worker, its token, and whether it runs no commands.

    Raises:
        StoreError: the manifest was altered.
    """
    bundle, generation, worker, token, only_builtin = asked
    record = read_manifest(url, bundle)
    if why_left(Bundle.from_record(record), only_builtin=only_builtin):
        return record
    store, name = store_at(url), f"{bundle}.{generation}"
    store.write(f"{CLAIMS}/{name}", json.dumps({"worker": worker, "token": token}).encode(), once=True)
    is_ours = _owner(store, name)[1] == token  # whatever the store has answered, or lost on its way
    return record if is_ours else {}


def read_manifest(url: str, bundle: str) -> dict[str, Any]:
    """Return the manifest of a bundle; nothing where there is none. A reader does this.

    Raises:
        StoreError: it was altered.
    """
    try:
        return unsealed(bundle, read_whole(store_at(url), f"{BUNDLES}/{bundle}", MOST_JSON_BYTES))
    except FileNotFoundError:
        return {}


def outline(url: str, bundle: str) -> tuple[str, str, int]:
    """Return task, home and steps of a bundle; of one that was altered its name alone. A reader does this.

    Raises:
        CutOffError: the store does not answer.
    """
    try:
        found = Bundle.from_record(read_manifest(url, bundle))
    except CutOffError:
        raise
    except StoreError:
        found = Bundle()
    return found.task or bundle, found.home, found.max_steps


def read_result(url: str, place: str) -> dict[str, Any]:
    """Return a result, given as folder and name; nothing where it was altered, or is gone. A reader does this.

    Raises:
        CutOffError: the store does not answer.
    """
    try:
        return unsealed(place.rpartition(".")[2], read_whole(store_at(url), place, MOST_JSON_BYTES))
    except CutOffError:
        raise
    except (FileNotFoundError, StoreError):
        return {}


def heartbeat(url: str, sign: Mapping[str, Any]) -> str:
    """Show that a worker lives; return what it trains if that is closed by now. A reader does this."""
    store, one = store_at(url), WorkerStatus.from_record(sign)
    store.write(f"{WORKERS}/{one.worker}", json.dumps(sign).encode())
    return one.bundle if one.bundle and one.bundle in store.names(CLOSED) else ""


def note(url: str, file: tuple[str, str]) -> None:
    """Write a small file, given as name and text. A reader does this."""
    store_at(url).write(file[0], file[1].encode())


def put_bundle(url: str, bundle: Bundle) -> str:
    """Write a manifest, once all its blobs are there; return its name. A reader does this."""
    name, content = sealed(bundle.to_record())
    store_at(url).write(f"{BUNDLES}/{name}", content)
    return name


def put_result(url: str, told: tuple[TransferResult, str]) -> str:
    """Write what came of a bundle, once its blobs are there; return its name. A reader does this.

    Args:
        url: of the store.
        told: what came of it; and the name of what was written before, of which this is the rest: pictures, say.
    """
    returned, first = told
    digest, content = sealed(returned.to_record())
    name = f"{first}.{digest}" if first else f"{returned.bundle}.{returned.outcome}.{digest}"
    store_at(url).write(f"{LATER if first else RESULTS}/{name}", content)
    return name


def makes_once(url: str, token: str) -> bool:
    """Return whether a store keeps two from making one file; it is tried out. A reader does this."""
    store, name = store_at(url), f"probe/{token}"
    try:
        return store.write(name, b"first", once=True) and not store.write(name, b"second", once=True)
    finally:
        store.delete(name)
