"""What follows a batch's training: merged and published as far as may be; what is left out is told, and why.

Whatever comes of it, the exit code stays that of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import typer

from splatbatch.errors import BusyError, SplatbatchError
from splatbatch.night.interruption import Interrupted, Interruption
from splatbatch.plain_text import counted, one_line
from splatbatch.publish.source import publishable
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import spell
from splatbatch.store.folders.published import Publication
from splatbatch.store.records.afterwards import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.partition import partition_for
from splatbatch.tasks.scene.usable import look

LOOK_S = 0.5
TURN_S = 1800.0
"""So long somebody else may take who is merging or publishing the same just now."""
MOST_NAMED = 12
TRAIN = "splatbatch train"


@dataclass(frozen=True)
class Night:
    """A batch that nothing trains any more."""

    batch: Batch
    code: int
    """Exit code of the training."""
    interruption: Interruption


T = TypeVar("T")
After = Callable[[Night], Sequence[Afterwards]]


def publish_as_asked(night: Night) -> Sequence[Afterwards]:
    """Merge a scene that was cut into patches, and publish it, or the patches that are trained, if the YAML says so."""
    return publish_after(night, merges=True)


def publish_after(night: Night, *, merges: bool, allow_missing: bool = False) -> Sequence[Afterwards]:
    """Publish if the YAML asks for it; what came of it is written down, also that nothing was published, and why.

    Args:
        night: what was trained.
        merges: a scene that was cut into patches is merged first.
        allow_missing: publish the scene with holes, also if the YAML does not say so.
    """
    output = night.batch.output
    if not night.batch.config.publish.formats:
        output.note_afterwards("publish", None)
        return ()
    found = guarded("publish", night.interruption, lambda: _publish(night, merges=merges, allow_missing=allow_missing))
    output.note_afterwards("publish", found)
    return (found,)


def follow(night: Night, inspected: Afterwards | None, after: After) -> tuple[Afterwards, ...]:
    """Do what follows the training; return what came of all of it, the inspection too, and keep that for the report."""
    night.batch.output.forget_afterwards()
    night.batch.output.note_afterwards("inspect", inspected)
    return (*([inspected] if inspected else []), *after(night))


def inspection_left_out(batch: Batch) -> Afterwards | None:
    """Return that nobody has inspected what workers have trained, where the YAML asks for it."""
    from splatbatch.commands.quality.inspect import not_inspected

    return not_inspected(batch.whole(), "workers do not inspect")


def guarded(what: str, interruption: Interruption, make: Callable[[], Afterwards], *, asks: bool = False) -> Afterwards:
    """Return what came of something, or why nothing did: it was interrupted, it cannot be done, or a fault is ours.

    Args:
        what: of `KINDS`.
        interruption: whether somebody wants us to end.
        make: does it.
        asks: it asks for interruptions by itself, and ends with `typer.Exit`; else a signal ends it where it is.
    """
    words, again = f"not {SAID[what]}", f"splatbatch {what}"
    try:
        with nullcontext() if asks else interruption.ends_at_once():
            if not interruption.signal:
                return make()
    except (Interrupted, typer.Exit):
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


def _publish(night: Night, *, merges: bool, allow_missing: bool) -> Afterwards:
    """Publish what may be published.

    Raises:
        SplatbatchError: it cannot be done; what could be written is there.
    """
    from splatbatch.commands.publish.publish import run, run_as, show, wish_of

    batch = open_batch(night.batch.path)  # with what the night has settled
    wish = wish_of(batch)
    is_scene = not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None
    if is_scene:
        lacking, is_empty = _lacking_in_scene(batch)
        if lacking and (is_empty or not (allow_missing or batch.config.publish.allow_missing)):
            hint = "" if is_empty else "; publish.allow_missing: true publishes the scene with holes"
            return _nothing(batch, lacking, hint)
        if merges:
            _in_turn(lambda: _merge(batch, may_lack=bool(lacking)))
        done, what = _in_turn(lambda: run(batch, ["scene"])), "published with holes" if lacking else "published"
    else:
        splats, lacking = publishable(batch)
        if not splats:
            return _nothing(batch, lacking)
        done, what = _in_turn(lambda: run_as(batch, splats, wish)), f"published: {spell([one.name for one in splats])}"
    show(done)
    words = f"{what}: {counted(len(done.outputs), 'output')} in {batch.config.publish.folder}"
    if not lacking:
        return Afterwards("publish", DONE, one_line(words), "", time.time())
    return Afterwards("publish", PARTLY, one_line(f"{words}; not published: {_listed(lacking)}"), TRAIN, time.time())


def _nothing(batch: Batch, lacking: Mapping[str, str], hint: str = "") -> Afterwards:
    """Return that nothing was published."""
    folder = batch.config.publish.folder
    before = f"; {folder} is as it was" if Publication.read(folder) else ""
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


def _merge(batch: Batch, *, may_lack: bool) -> None:
    from splatbatch.commands.scene import merge as merging

    merging.merge(batch.path, merging.MergeOptions(allow_missing=may_lack), as_json=False)


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
