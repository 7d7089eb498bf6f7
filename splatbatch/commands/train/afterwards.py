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

from splatbatch.commands.train.interruption import Interrupted, Interruption
from splatbatch.errors import BusyError, SplatbatchError
from splatbatch.failures.causes.words import spelled
from splatbatch.plain_text import counted, one_line
from splatbatch.scene.partition.record import partition_of
from splatbatch.store.folders.published import Publication
from splatbatch.store.records.afterwards import DONE, LEFT_OUT, PARTLY, Afterwards
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.partition import partition_for
from splatbatch.tasks.scene.usable import look
from splatbatch.tasks.status import read_status

LOOK_S = 0.5
TURN_S = 1800.0
"""So long somebody else may take who is merging or publishing the same just now."""
MOST_NAMED = 12
AGAIN, TRAIN = "splatbatch publish", "splatbatch train"


@dataclass(frozen=True)
class Night:
    """A batch that nothing trains any more."""

    batch: Batch
    code: int
    """Exit code of the training."""
    interruption: Interruption


T = TypeVar("T")
After = Callable[[Night], Sequence[Afterwards]]


@dataclass(frozen=True)
class Lacking:
    """What cannot be published, by name with the reasons, and what can."""

    names: tuple[str, ...]
    lacking: Mapping[str, str]

    def in_words(self) -> str:
        """Return what is lacking: "p1: failed (cuda out of memory)"."""
        named = [f"{name}: {why}" for name, why in [*self.lacking.items()][:MOST_NAMED]]
        more = [f"and {len(self.lacking) - MOST_NAMED} more"] if len(self.lacking) > MOST_NAMED else []
        return "; ".join([*named, *more])


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


def inspection_left_out(batch: Batch) -> Sequence[Afterwards]:
    """Return that nobody has inspected what workers have trained, where the YAML asks for it."""
    from splatbatch.commands.quality.inspect import not_inspected

    found = not_inspected(batch.whole(), "workers do not inspect")
    batch.output.note_afterwards("inspect", found)
    return (found,) if found else ()


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
    from splatbatch.commands.publish.publish import run, show

    batch = open_batch(night.batch.path)  # with what the night has settled
    settings = batch.config.publish
    is_scene = not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None
    may_lack = allow_missing or settings.allow_missing
    found = _scene(batch) if is_scene else _patches(batch)
    if found.lacking and (not found.names or (is_scene and not may_lack)):
        hint = "; publish.allow_missing: true publishes the scene with holes" if is_scene and found.names else ""
        before = f"; {settings.folder} is as it was" if Publication.read(settings.folder) else ""
        return left_out("publish", f"not published: {found.in_words()}{hint}{before}", TRAIN)
    if is_scene and merges:
        _in_turn(lambda: _merge(batch, may_lack=may_lack))
    done = _in_turn(lambda: run(batch, ["scene"] if is_scene else list(found.names)))
    show(done)
    files = f"{counted(len(done.outputs), 'output')} in {settings.folder}"
    if not found.lacking:
        return Afterwards("publish", DONE, one_line(f"published: {files}"), "", time.time())
    what = "published with holes" if is_scene else f"published: {', '.join(found.names[:MOST_NAMED])}"
    words = f"{what}: {files}; not published: {found.in_words()}"
    return Afterwards("publish", PARTLY, one_line(words), TRAIN, time.time())


def _scene(batch: Batch) -> Lacking:
    """Return which parts of a scene it can be merged from, and why not from others."""
    candidates, _ = look(batch, partition_for(batch))
    lacking = {one.name: one.lacking for one in candidates if one.lacking}
    return Lacking(tuple(one.name for one in candidates if one.core and not one.lacking), lacking)


def _patches(batch: Batch) -> Lacking:
    """Return the patches that are trained and fresh, and how the others stand."""
    own = [task.name for task in batch.tasks if not task.patch.is_backdrop]
    statuses = read_status(batch.output, batch.names, standing=batch.standing("content"))
    lacking = {
        one.patch: f"{one.state}: {spelled(one.cause)}" if one.cause else f"{one.state}"
        for one in statuses
        if one.patch in own and one.state != "trained"
    }
    return Lacking(tuple(name for name in own if name not in lacking), lacking)


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
