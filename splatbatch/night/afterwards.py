"""What follows a batch's training: merged and published as far as may be; what is left out is told, and why.

Whatever comes of it, the exit code stays that of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from splatbatch.errors import BusyError, Interrupted, SplatbatchError
from splatbatch.night import products
from splatbatch.night.interruption import Interruption
from splatbatch.plain_text import counted, one_line
from splatbatch.publish.publish import Wish
from splatbatch.publish.source import publishable, published
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import spell
from splatbatch.store.records.publication import Publication
from splatbatch.store.records.run import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.partition import partition_for
from splatbatch.tasks.scene.usable import look

LOOK_S = 0.5
TURN_S = 1800.0
"""So long somebody else may take who is merging or publishing the same just now."""
MOST_NAMED = 12
TRAIN = "splatbatch train"


Show = Callable[[Any], None]
"""Hears of what was made as soon as it is there: what was merged, evaluated or published, and how a night has ended."""


@dataclass(frozen=True)
class Trained:
    """A batch that nothing trains any more."""

    batch: Batch
    code: int
    """Exit code of the training."""
    interruption: Interruption
    show: Show


T = TypeVar("T")
After = Callable[[Trained], Sequence[Afterwards]]


def publish_as_asked(trained: Trained) -> Sequence[Afterwards]:
    """Merge a scene that was cut into patches, and publish it, or the patches that are trained, if the YAML says so."""
    return publish_after(trained, merges=True)


def publish_after(trained: Trained, *, merges: bool, allow_missing: bool = False) -> Sequence[Afterwards]:
    """Publish if the YAML asks for it; what came of it is written down, also that nothing was published, and why.

    Args:
        trained: what was trained.
        merges: a scene that was cut into patches is merged first.
        allow_missing: publish the scene with holes, also if the YAML does not say so.
    """
    output = trained.batch.output
    if not trained.batch.config.publish.formats:
        output.note_afterwards("publish", None)
        return ()
    publish = partial(_publish, trained, merges=merges, allow_missing=allow_missing)
    found = guarded("publish", trained.interruption, publish)
    output.note_afterwards("publish", found)
    return (found,)


def follow(trained: Trained, inspected: Afterwards | None, after: After) -> tuple[Afterwards, ...]:
    """Do what follows the training; return what came of all of it, the inspection too, and keep that for the report."""
    trained.batch.output.forget_afterwards()
    trained.batch.output.note_afterwards("inspect", inspected)
    return (*([inspected] if inspected else []), *after(trained))


def guarded(what: str, interruption: Interruption, make: Callable[[], Afterwards], *, asks: bool = False) -> Afterwards:
    """Return what came of something, or why nothing did: it was interrupted, it cannot be done, or a fault is ours.

    Args:
        what: of `KINDS`.
        interruption: whether somebody wants us to end.
        make: does it.
        asks: it asks for interruptions by itself; else a signal ends it where it is.
    """
    words, again = f"not {SAID[what]}", f"splatbatch {what}"
    try:
        with nullcontext() if asks else interruption.ends_at_once():
            if not interruption.signal:
                return make()
    except Interrupted:
        pass
    except (SplatbatchError, OSError) as error:
        hint = f" ({error.hint})" if isinstance(error, SplatbatchError) and error.hint else ""
        return left_out(what, f"{words}: {error}{hint}", again)
    except Exception as error:  # noqa: BLE001 - a fault of ours after the training must not hide how that went
        return left_out(what, f"{words}: internal fault: {type(error).__name__}: {error}", again)
    return left_out(what, f"{words}: interrupted ({interruption.reason()})", TRAIN)


SAID = {"inspect": "inspected", "merge": "merged", "evaluate": "evaluated", "publish": "published"}


def left_out(what: str, words: str, command: str) -> Afterwards:
    """Return that something was left out."""
    return Afterwards(what, LEFT_OUT, one_line(words), command, time.time())


def _publish(trained: Trained, *, merges: bool, allow_missing: bool) -> Afterwards:
    """Publish what may be published.

    Raises:
        SplatbatchError: it cannot be done; what could be written is there.
    """
    batch = open_batch(trained.batch.path)  # with what the night has settled
    wish = Wish.of(batch)
    is_scene = not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None
    if is_scene:
        lacking, is_empty = _lacking_in_scene(batch)
        if lacking and (is_empty or not (allow_missing or batch.config.publish.allow_missing)):
            hint = "" if is_empty else "; publish.allow_missing: true publishes the scene with holes"
            return _nothing(batch, lacking, hint)
        if merges:
            trained.show(_in_turn(lambda: products.merge(batch, products.MergeOptions(allow_missing=bool(lacking)))))
        done = _in_turn(lambda: products.publish(batch, published(batch, ["scene"]), wish))
        what = "published with holes" if lacking else "published"
    else:
        splats, lacking = publishable(batch)
        if not splats:
            return _nothing(batch, lacking)
        done = _in_turn(lambda: products.publish(batch, splats, wish))
        what = f"published: {spell([one.name for one in splats])}"
    trained.show(done)
    words = f"{what}: {counted(len(done.outputs), 'output')} in {batch.config.publish.folder}"
    if not lacking:
        return Afterwards("publish", DONE, one_line(words), "", time.time())
    return Afterwards("publish", PARTLY, one_line(f"{words}; not published: {_listed(lacking)}"), TRAIN, time.time())


def _nothing(batch: Batch, lacking: Mapping[str, str], hint: str = "") -> Afterwards:
    """Return that nothing was published."""
    folder = batch.config.publish.folder
    before = f"; {folder} is as it was" if Publication.of(folder) else ""
    return left_out("publish", f"not published: {_listed(lacking)}{hint}{before}", TRAIN)


def _lacking_in_scene(batch: Batch) -> tuple[dict[str, str], bool]:
    """Return which parts of a scene it cannot be merged from, and why, and whether it has no others."""
    candidates, _ = look(batch, partition_for(batch))
    is_empty = not any(one.core and not one.lacking for one in candidates)
    return {one.name: one.lacking for one in candidates if one.lacking}, is_empty


def _listed(lacking: Mapping[str, str]) -> str:
    """Return what is lacking: "p1: failed: a package is missing"."""
    named = [f"{name}: {why}" for name, why in [*lacking.items()][:MOST_NAMED]]
    return "; ".join([*named, *([f"and {len(lacking) - MOST_NAMED} more"] if len(lacking) > MOST_NAMED else [])])


def _in_turn(call: Callable[[], T]) -> T:
    """Do something once nobody else is at it: of several workers, and the `train` that follows them, each publishes."""
    give_up_at = time.monotonic() + TURN_S
    while True:
        try:
            return call()
        except BusyError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(LOOK_S)
