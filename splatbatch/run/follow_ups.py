"""What follows a batch's training: merged and published as far as may be; what is left out is told, and why.

Whatever comes of it, the exit code stays that of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from splatbatch.errors import SplatbatchError, in_full
from splatbatch.isolated import StopRequested, WaitHooks, answer
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.publication import Publication
from splatbatch.output.records.run import DONE, LEFT_OUT, PARTLY, FollowUpJob, FollowUpResult, FollowUpSettings
from splatbatch.run.follow_up_process import LogForwarder, making
from splatbatch.run.interruption import Interruption
from splatbatch.run.products import MergedScene
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import list_names
from splatbatch.scheduler import single
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.exclusive_output import in_turn
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.merge_candidates import look
from splatbatch.tasks.scene.partition import partition_for
from splatbatch.tasks.task import Task
from splatbatch.text import list_some, one_line, plural

MOST_NAMED = 12
TRAIN = "splatbatch train"


Show = Callable[[Any], None]
"""Hears of what was made: what was merged, evaluated or published, and how a night has ended."""
Alone = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Holds the output folder so that nobody trains into it; gives what shows that we live."""


@dataclass(frozen=True)
class FinishedBatch:
    """A batch that nothing trains any more, and what makes more of it."""

    batch: Batch
    code: int
    """Exit code of the training."""
    interruption: Interruption
    show: Show
    alone: Alone
    say: Callable[[str], None]
    """Says what happens, with its time."""
    tick: Callable[[], None] = lambda: None
    """Shows that we live; called many times a second."""
    ledger: Ledger = single.UNWRITTEN

    def make(self, task: Task, beat: Callable[[], None] = lambda: None, *, alone: bool = True) -> AttemptFolder:
        """Make the product of a task; return the attempt that has made it.

        Args:
            task: whose product is made of splats.
            beat: called meanwhile, many times a second.
            alone: nobody may train meanwhile.

        Raises:
            SplatbatchError: it could not be made.
        """
        with ExitStack() as stack:
            stop, beats = self.interruption.reason, [self.tick, beat]
            if alone:
                beats.append(in_turn(lambda: stack.enter_context(self.alone()), stop))

            def live() -> None:
                for one in beats:
                    one()

            return single.make(self.batch.config, task, RunHooks(stop, live), "", self.ledger)

    def making(self, told: FollowUpSettings) -> FollowUpJob:
        """Make the merged scene, or a publication; return what came of it.

        Raises:
            SplatbatchError: it could not be made; what could be written of a publication is there.
        """
        task = making(self.batch, told)
        relay = LogForwarder(task.home(self.batch.output), self.say)
        return FollowUpJob.read(self.make(task, relay.look, alone=told.what == "merge").metrics) or FollowUpJob()

    def merge(self, *, allow_missing: bool, clean: bool = False) -> None:
        """Merge the scene, and show what came of it.

        Raises:
            SplatbatchError: it could not be merged.
        """
        told = FollowUpSettings("merge", allow_missing=allow_missing, clean=clean)
        self.show(MergedScene.of(self.batch, told, self.making(told)))


After = Callable[[FinishedBatch], Sequence[FollowUpResult]]


def publish_as_asked(trained: FinishedBatch) -> Sequence[FollowUpResult]:
    """Merge a scene that was cut into patches, and publish it, or the patches that are trained, if the YAML says so."""
    return publish_after(trained, merges=True)


def publish_after(trained: FinishedBatch, *, merges: bool, allow_missing: bool = False) -> Sequence[FollowUpResult]:
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


def follow(trained: FinishedBatch, inspected: FollowUpResult | None, after: After) -> tuple[FollowUpResult, ...]:
    """Do what follows the training; return what came of all of it, the inspection too, and keep that for the report."""
    trained.batch.output.forget_afterwards()
    trained.batch.output.note_afterwards("inspect", inspected)
    return (*([inspected] if inspected else []), *after(trained))


SAID = {"inspect": "inspected", "merge": "merged", "evaluate": "evaluated", "publish": "published"}


def guarded(what: str, interruption: Interruption, make: Callable[[], FollowUpResult]) -> FollowUpResult:
    """Return what came of something, or why nothing did: it was interrupted, it cannot be done, or a fault is ours.

    Args:
        what: of `KINDS`.
        interruption: whether somebody wants us to end.
        make: does it.
    """
    words, again = f"not {SAID[what]}", f"splatbatch {what}"
    try:
        if not interruption.signal:
            return make()
    except StopRequested:
        pass
    except (SplatbatchError, OSError) as error:
        if not interruption.signal:
            return left_out(what, f"{words}: {in_full(error)}", again)
    except Exception as error:  # noqa: BLE001 - a fault of ours after the training must not hide how that went
        return left_out(what, f"{words}: internal fault: {type(error).__name__}: {error}", again)
    return left_out(what, f"{words}: interrupted ({interruption.reason()})", TRAIN)


def left_out(what: str, words: str, command: str) -> FollowUpResult:
    """Return that something was left out."""
    return FollowUpResult(what, LEFT_OUT, one_line(words), command, time.time())


def _publish(trained: FinishedBatch, *, merges: bool, allow_missing: bool) -> FollowUpResult:
    """Publish what may be published.

    Raises:
        SplatbatchError: it cannot be done; what could be written is there.
    """
    from splatbatch.publish.publish import PublishRequest

    batch = open_batch(trained.batch.path)  # with what the night has settled
    PublishRequest.of(batch)  # for its errors, before a scene is merged
    if not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None:
        patience = WaitHooks(trained.tick, trained.interruption.reason, trained.say)
        lacking, is_empty = answer(_lacking_in_scene, batch, patience).result("start")
        if lacking and (is_empty or not (allow_missing or batch.config.publish.allow_missing)):
            hint = "" if is_empty else "; set `publish.allow_missing: true` to publish the scene with holes"
            return _nothing(batch, lacking, hint)
        if merges:
            trained.merge(allow_missing=bool(lacking))
        trained.making(FollowUpSettings("publish", names=("scene",), waits=True))
        what = "published with holes" if lacking else "published"
    else:
        found = trained.making(FollowUpSettings("publish", waits=True))
        lacking = found.lacking
        if not found.names:
            return _nothing(batch, lacking)
        what = f"published: {list_names(found.names)}"
    trained.show(done := Publication.of(batch.config.publish.folder) or Publication())
    words = f"{what}: {plural(len(done.outputs), 'output')} in {batch.config.publish.folder}"
    if not lacking:
        return FollowUpResult("publish", DONE, one_line(words), "", time.time())
    return FollowUpResult(
        "publish", PARTLY, one_line(f"{words}; not published: {_listed(lacking)}"), TRAIN, time.time()
    )


def _nothing(batch: Batch, lacking: Mapping[str, str], hint: str = "") -> FollowUpResult:
    """Return that nothing was published."""
    folder = batch.config.publish.folder
    before = f"; {folder} is unchanged" if Publication.of(folder) else ""
    return left_out("publish", f"not published: {_listed(lacking)}{hint}{before}", TRAIN)


def _lacking_in_scene(batch: Batch) -> tuple[dict[str, str], bool]:
    """Return which parts of a scene it cannot be merged from, and why, and whether it has no others."""
    candidates, _ = look(batch, partition_for(batch))
    is_empty = not any(one.core and not one.lacking for one in candidates)
    return {one.name: one.lacking for one in candidates if one.lacking}, is_empty


def _listed(lacking: Mapping[str, str]) -> str:
    """Return what is lacking: "p1: failed: a package is missing"."""
    return list_some((f"{name}: {why}" for name, why in lacking.items()), MOST_NAMED, "; ")
