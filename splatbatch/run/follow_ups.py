"""Follow-ups of a training: merging and publishing as far as possible, with the reason for each omission.

Merging and publishing are tasks whose program is the public command: `splatbatch merge --json`. In the process of its
attempt the command does the work itself, and leaves its JSON as metrics.json. A failed follow-up does not change the
exit code of the training.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from splatbatch.config import TaskId
from splatbatch.errors import Interrupted, SplatbatchError, in_full
from splatbatch.files import write_json, write_text
from splatbatch.isolated import StopRequested, WaitHooks, answer
from splatbatch.monitor.messages import print_err
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.merge import MergeOutput
from splatbatch.output.records.publication import Publication, PublishOutput
from splatbatch.output.records.record import TypedRecord
from splatbatch.output.records.run import DONE, KINDS, LEFT_OUT, PARTLY, FollowUpResult
from splatbatch.processes import MARKER
from splatbatch.run.interruption import Interruption
from splatbatch.run.progress import log_forwarder
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import Patch, list_names
from splatbatch.scheduler import single
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.exclusive_output import in_turn, lock_output_alone
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.candidates import merge_candidates, partition_for
from splatbatch.tasks.task import Task, untrained
from splatbatch.text import list_some, one_line, plural

MOST_NAMED = 12
TRAIN = "splatbatch train"
SAID = {"inspect": "inspected", "merge": "merged", "evaluate": "evaluated", "publish": "published"}


Printed = TypeVar("Printed", bound=TypedRecord)
Show = Callable[[Any], None]
"""Function that prints a result, as of merging, evaluating or publishing, or the summary of a run."""
Alone = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Function that opens a context in which no training starts in the output folder.

The context yields the function that writes the heartbeat, by which the lock is kept."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FollowUpTask(Task):
    """A task whose program is a public command of splatbatch.

    It has no time limit: the programs that the command calls have their own.
    """

    words: tuple[str, ...]
    """The command of splatbatch and its arguments, as ("merge", "--json")."""
    takes: Literal["gpu", "any", "cpu"] = "cpu"
    tries = 2
    limits: ClassVar = {"wall_s": 1e9, "stall_s": 0.0}

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Return the command line of the follow-up, as a user types it, but with the Python that runs this process."""
        return (sys.executable, "-m", "splatbatch", *self.words)

    def keep(self, folder: AttemptFolder) -> None:
        """Remove the folders of earlier attempts, except those still running."""
        for one in folder.earlier():
            if one.has_exited():
                shutil.rmtree(one.path, ignore_errors=True)


def is_follow_up(what: str) -> bool:
    """Return whether this process is the attempt of a follow-up, `merge` or `publish`, named by `what`.

    Then the process that started it holds the output folder, and the command does the work itself.
    """
    return f".afterwards/{what}." in os.environ.get(MARKER, "")


def deliver(make: Callable[[], TypedRecord]) -> None:
    """Do the work of a follow-up in the process of its attempt; write the JSON of the command as metrics.json.

    The working folder must be the folder of the attempt.

    Raises:
        SplatbatchError: the work failed; for an unexpected exception the traceback is in fault.txt of the attempt.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that `finally` removes partial files
    folder = AttemptFolder(Path.cwd())
    try:
        found = make()
    except SplatbatchError as error:
        error.message, error.hint = in_full(error), ""  # as one line, the last of the log
        raise
    except OSError as error:
        raise SplatbatchError(str(error)) from error
    except Exception as error:
        write_text(folder.path / "fault.txt", traceback.format_exc())
        raise SplatbatchError(f"error in splatbatch itself: {type(error).__name__}: {error}") from error
    write_json(folder.metrics, found.to_record())


@dataclass
class FinishedBatch:
    """A batch after its training, with the means to run its follow-ups; each runs as a task in its own process."""

    batch: Batch
    code: int
    """Exit code of the training; 0 without one."""
    interruption: Interruption
    show: Show
    """Function that is called with each product."""
    alone: Alone | None
    """Function that keeps trainings from starting; None: the caller holds the output folder, or no lock is needed."""
    say: Callable[[str], None]
    """Function that prints a line on the progress of a follow-up."""
    tick: Callable[[], None] = lambda: None
    """Function that writes the heartbeat and updates the display; called many times a second."""
    ledger: Ledger = single.UNWRITTEN
    """Ledger for the events of the attempts; by default they are not written."""
    error: SplatbatchError | None = None
    """Error of the latest follow-up; None: it succeeded, was interrupted, or failed by an error of another type."""

    def make(
        self, task: Task, beat: Callable[[], object] = lambda: None, verb: str = "", *, alone: bool = True
    ) -> AttemptFolder:
        """Run a task in a process of its own, and wait for it; return the attempt that made the product.

        Args:
            task: the task; its product is made of splats.
            beat: is called many times a second while the task runs.
            verb: first word of an error message; empty if the message needs none.
            alone: whether no training may start meanwhile.

        Raises:
            SplatbatchError: the task failed; the message has the reason and the path of the log.
            StopRequested: a signal asked to stop.
        """
        with ExitStack() as stack:
            stop, hold, beats = self.interruption.reason, self.alone, list[Callable[[], object]]((self.tick, beat))
            if alone and hold:
                beats.append(in_turn(lambda: stack.enter_context(hold()), stop))

            def live() -> None:
                for one in beats:
                    one()

            return single.make(self.batch.config, task, RunHooks(live, stop, self.ledger.tell_wait), verb, self.ledger)

    def run(self, what: str, words: Sequence[str], printed: type[Printed], home: PatchFolder | None = None) -> Printed:
        """Run `merge` or `publish` as a task; return what the command prints with --json.

        If the command left no such output, a blank record is returned.

        Args:
            what: merge or publish.
            words: arguments of the command, besides --config and --json.
            printed: type of the command's output.
            home: folder for the attempts of the task; None: in the output folder.

        Raises:
            SplatbatchError: the command failed; outputs of a publication that could be written stay. Also if the YAML
                came from standard input.
            StopRequested: a signal asked to stop.
        """
        # the loss by compression is measured on a GPU if one is ready
        takes: Literal["any", "cpu"] = "any" if what == "publish" else "cpu"
        words, scene = (what, "--config", str(self.batch.file), "--json", *words), self.batch.config.scene
        home = home or self.batch.output.following(what)
        name = TaskId(f"afterwards/{what}")  # not a possible name of a patch
        subject = Patch(what, scene.patches, scene.images or scene.patches)
        task = FollowUpTask(name, subject, *untrained(self.batch.config), attempts=home, words=words, takes=takes)
        forward = log_forwarder(home, self.say)
        return printed.read(self.make(task, forward, alone=what == "merge").metrics) or printed()

    def merge(self, *, allow_missing: bool, clean: bool = False, out: Path | None = None) -> MergeOutput:
        """Merge the splats of all patches into one, in a process of its own.

        Args:
            allow_missing: whether patches may be missing, which leaves holes.
            clean: whether invisible, oversized and floating Gaussians are left out.
            out: file for the merged splat; None: its place in the output folder.

        Raises:
            SplatbatchError: the scene could not be merged, or the YAML came from standard input.
            StopRequested: a signal asked to stop.
        """
        options = {"--allow-missing": allow_missing, "--clean": clean}
        words = [option for option, is_wanted in options.items() if is_wanted]
        return self.run("merge", [*words, "--out", str(out.absolute())] if out else words, MergeOutput)

    def follow(self, what: str, make: Callable[[], FollowUpResult]) -> FollowUpResult:
        """Run one follow-up, `what`, by calling `make`; write its result into the output folder, and return the result.

        An error or an interruption is not raised: it is a result, too, with the command that completes the follow-up.
        """
        found, why, self.error = None, "", None
        try:
            if not self.interruption.signal:
                found = make()
        except StopRequested:
            pass
        except (SplatbatchError, OSError) as error:
            why = "" if self.interruption.signal else in_full(error)
            self.error = error if why and isinstance(error, SplatbatchError) else None
        except Exception as error:  # noqa: BLE001 - an internal fault must not hide the result of the training
            why = f"error in splatbatch itself: {type(error).__name__}: {error}"
        if found is None:
            again = f"splatbatch {what}" if why or what != "publish" else TRAIN  # which merges a cut scene first
            found = follow_up_result(
                what, LEFT_OUT, f"not {SAID[what]}: {why or f'interrupted ({self.interruption.reason()})'}", again
            )
        self.batch.output.note_afterwards(what, found)
        return found


After = Callable[[FinishedBatch], Sequence[FollowUpResult]]


@contextmanager
def by_hand(batch: Batch, *, alone: bool) -> Iterator[FinishedBatch]:
    """Open a batch for a follow-up that a user's command asked for, without a training before it.

    Args:
        batch: the batch with the splats.
        alone: whether the output folder is locked, so that no training starts meanwhile.

    Raises:
        OutputError: `alone` is set and a training runs, or the output folder cannot be made.
        Interrupted: a signal ended the work.
        OSError: the claim of the output folder cannot be made.
    """
    batch.output.create()
    with Interruption() as interruption, ExitStack() as stack:
        try:
            finished = FinishedBatch(batch, 0, interruption, print_err, None, print_err)
            if alone:
                finished.tick = stack.enter_context(lock_output_alone(batch, print_err))
            yield finished
        except SplatbatchError as error:
            if not interruption.signal:
                raise
            raise Interrupted(interruption.exit_code, error.message) from error


def follow_up_result(what: str, state: str, words: str, command: str = "") -> FollowUpResult:
    """Return the result of a follow-up that has just ended, to be shown and recorded.

    Args:
        what: the follow-up: inspect, merge, evaluate or publish.
        state: `DONE`, `PARTLY` or `LEFT_OUT`.
        words: the message, put on one line.
        command: the command that completes the follow-up; empty: nothing is missing, except patches without a splat.
    """
    return FollowUpResult(what, state, one_line(words), command, time.time())


def run_follow_ups(
    trained: FinishedBatch, inspected: FollowUpResult | None, after: After
) -> tuple[FollowUpResult, ...]:
    """Run the follow-ups of a training, and record the results for the report, in place of those of earlier runs.

    Returned are all results, that of the inspection first. `inspected` is None if no inspection was asked for.
    """
    for what in KINDS:  # results of an earlier training
        trained.batch.output.note_afterwards(what, None)
    trained.batch.output.note_afterwards("inspect", inspected)
    return (*([inspected] if inspected else []), *after(trained))


def publish_as_configured(
    trained: FinishedBatch, *, merges: bool = True, why_not: str = ""
) -> Sequence[FollowUpResult]:
    """Publish if the YAML asks for it; return and record the result, also if nothing was published.

    Empty: the YAML asks for no publishing.

    Args:
        trained: the batch after its training.
        merges: whether a scene that was cut into patches is merged first.
        why_not: a reason not to publish; empty: there is none.
    """
    output, is_wanted = trained.batch.output, bool(trained.batch.config.publish.formats)
    if is_wanted and not why_not:
        return (trained.follow("publish", partial(_publish, trained, merges=merges)),)
    said = follow_up_result("publish", LEFT_OUT, f"not published: {why_not}", TRAIN) if is_wanted else None
    output.note_afterwards("publish", said)
    return (said,) if said else ()


def publishable_names(batch: Batch) -> tuple[list[str], dict[str, str]]:
    """Return the patches that may be published; and for each other patch the reason why not.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record that is needed.
    """
    from splatbatch.publish.source import publishable

    splats, lacking = publishable(batch)
    return [one.name for one in splats], lacking


def _publish(trained: FinishedBatch, *, merges: bool) -> FollowUpResult:
    """Publish the merged scene if the batch is a cut scene, else every patch that has a valid splat; return the result.

    Raises:
        SplatbatchError: merging or publishing failed; outputs that could be written stay.
    """
    from splatbatch.publish.publish import PublishRequest

    batch = open_batch(trained.batch.path)  # with the shared decisions of the run
    PublishRequest.of(batch)  # for its errors, before a scene is merged
    patience = WaitHooks(trained.tick, trained.interruption.reason, trained.say)
    if not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None:
        lacking, is_empty = answer(_lacking_in_scene, batch, patience).result("start")
        if lacking and (is_empty or not batch.config.publish.allow_missing):
            hint = "" if is_empty else "; set `publish.allow_missing: true` to publish the scene with holes"
            return _publish_nothing(batch, lacking, hint)
        if merges:
            trained.show(trained.merge(allow_missing=bool(lacking)))
        names, what = ["scene"], "published with holes" if lacking else "published"
    else:
        names, lacking = answer(publishable_names, batch, patience).result("start")
        if not names:
            return _publish_nothing(batch, lacking)
        what = f"published: {list_names(names)}"
    done = trained.run("publish", ("--", *names), PublishOutput)
    trained.show(done)
    words = f"{what}: {plural(len(done.outputs), 'output')} in {batch.config.publish.folder}"
    if not lacking:
        return follow_up_result("publish", DONE, words)
    return follow_up_result("publish", PARTLY, f"{words}; not published: {_list_lacking(lacking)}", TRAIN)


def _publish_nothing(batch: Batch, lacking: Mapping[str, str], hint: str = "") -> FollowUpResult:
    """Return the result of a publishing that wrote nothing; an earlier publication is unchanged."""
    folder = batch.config.publish.folder
    before = f"; {folder} is unchanged" if Publication.of(folder) else ""
    return follow_up_result("publish", LEFT_OUT, f"not published: {_list_lacking(lacking)}{hint}{before}", TRAIN)


def _lacking_in_scene(batch: Batch) -> tuple[dict[str, str], bool]:
    """Return the patches that a merge would lack, each with the reason; and whether no patch with a core remains."""
    candidates, _ = merge_candidates(batch, partition_for(batch))
    is_empty = not any(one.core and not one.lacking for one in candidates)
    return {one.name: one.lacking for one in candidates if one.lacking}, is_empty


def _list_lacking(lacking: Mapping[str, str]) -> str:
    """Return the lacking patches in words: "p1: failed: a package is missing"."""
    return list_some((f"{name}: {why}" for name, why in lacking.items()), MOST_NAMED, "; ")
