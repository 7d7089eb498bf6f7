"""What follows a batch's training: merged and published as far as may be; what is left out is told, and why.

Merging and publishing are tasks whose program is the public command: `splatbatch merge --json`. In the process of its
attempt the command does the work itself, and leaves its JSON as metrics.json. Whatever comes of it, the exit code stays
that of the training.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from splatbatch.errors import SplatbatchError, in_full
from splatbatch.files import open_regular, write_json, write_text
from splatbatch.isolated import StopRequested, WaitHooks, answer
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.merge import MergeOutput
from splatbatch.output.records.publication import Publication, PublishOutput
from splatbatch.output.records.record import TypedRecord
from splatbatch.output.records.run import DONE, LEFT_OUT, PARTLY, FollowUpResult
from splatbatch.processes import MARKER
from splatbatch.run.interruption import Interruption
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import Patch, list_names
from splatbatch.scheduler import single
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.single import SAYS
from splatbatch.scheduler.work.exclusive_output import in_turn
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.program import BuiltinProgram
from splatbatch.tasks.scene.merge_candidates import look
from splatbatch.tasks.scene.partition import partition_for
from splatbatch.tasks.task import Task
from splatbatch.text import list_some, one_line, plural

MOST_NAMED = 12
TRAIN = "splatbatch train"


Printed = TypeVar("Printed", bound=TypedRecord)
Show = Callable[[Any], None]
"""Hears of what was made: what was merged, evaluated or published, and how a night has ended."""
Alone = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Holds the output folder so that nobody trains into it; gives what shows that we live."""


@dataclass(frozen=True)
class FollowUpTasks(BuiltinProgram):
    """Tasks whose program is a public command of ours; what that calls has limits of its own."""

    words: tuple[str, ...]
    """The command, and what is typed behind it."""
    takes: Literal["gpu", "any", "cpu"] = "cpu"
    tries = 2
    limits: ClassVar = {"wall_s": 1e9, "stall_s": 0.0}

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Return the command as somebody types it."""
        return (sys.executable, "-m", "splatbatch", *self.words)

    def keep(self, task: Task, folder: AttemptFolder) -> None:
        """Remove earlier attempts, but for those that still run."""
        for one in folder.earlier():
            if one.has_exited():
                shutil.rmtree(one.path, ignore_errors=True)


def follow_up(batch: Batch, what: str, words: Sequence[str], home: PatchFolder | None = None) -> Task:
    """Return the task that merges or publishes.

    Args:
        batch: whose splats.
        what: merge or publish.
        words: what is typed behind the command, besides --config and --json.
        home: where its attempts lie; None: in the output folder.
    """
    # what compression costs is measured on a GPU where one is ready
    takes: Literal["any", "cpu"] = "any" if what == "publish" else "cpu"
    words = (what, "--config", str(batch.file), "--json", *words)
    scene = batch.config.scene
    subject = Patch(what, scene.patches, scene.images or scene.patches)
    kind = FollowUpTasks(home or batch.output.following(what), words, takes)
    return kind.of(batch.config, f"afterwards/{what}", subject)  # as no patch can be called


def merge_words(
    *, allow_missing: bool, clean: bool, keep_uncleaned: bool = False, out: Path | None = None
) -> list[str]:
    """Return what is typed behind `merge`."""
    options = {"--allow-missing": allow_missing, "--clean": clean, "--keep-uncleaned": keep_uncleaned}
    words = [option for option, is_wanted in options.items() if is_wanted]
    return [*words, "--out", str(out.absolute())] if out else words


def is_follow_up(what: str) -> bool:
    """Return whether this process is an attempt at merging, or publishing: who has started it holds the folder."""
    return f".afterwards/{what}." in os.environ.get(MARKER, "")


def deliver(make: Callable[[], TypedRecord]) -> None:
    """Do the work of a follow-up in the process of its attempt; leave what the command prints with --json.

    Raises:
        SplatbatchError: it could not be done; of a fault of ours the traceback lies beside the log.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what is half done is swept
    folder = AttemptFolder(Path.cwd())
    try:
        found = make()
    except SplatbatchError as error:
        error.message, error.hint = in_full(error), ""  # in one line, the last of the log
        raise
    except OSError as error:
        raise SplatbatchError(str(error)) from error
    except Exception as error:
        write_text(folder.path / "fault.txt", traceback.format_exc())
        raise SplatbatchError(f"internal fault: {type(error).__name__}: {error}") from error
    write_json(folder.metrics, found.to_record())


class LogForwarder:
    """Says, line by line, what the process of a task says from now on."""

    def __init__(self, home: PatchFolder, say: Callable[[str], None]) -> None:
        self._home, self._say = home, say
        self._earlier = home.latest(home.files())
        self._places = Counter[AttemptFolder]()

    def look(self) -> None:
        """Say what was said since the last look."""
        folder = self._home.latest(self._home.files())
        if folder is None or folder == self._earlier:
            return
        with suppress(OSError), open_regular(folder.log) as log:  # it may have said nothing yet
            log.seek(self._places[folder])
            whole, end, _ = log.read().rpartition(b"\n")
            self._places[folder] += len(whole) + len(end)
            for line in whole.decode(errors="replace").splitlines():
                if not line.startswith(SAYS):  # why it has failed is told at the end
                    self._say(one_line(line))


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

    def run(self, what: str, words: Sequence[str], kind: type[Printed]) -> Printed:
        """Merge the scene, or publish; return what the command prints with --json.

        Raises:
            SplatbatchError: it could not be done; what could be written of a publication is there.
        """
        task = follow_up(self.batch, what, words)
        log = LogForwarder(task.home(self.batch.output), self.say)
        return kind.read(self.make(task, log.look, alone=what == "merge").metrics) or kind()

    def merge(self, *, allow_missing: bool, clean: bool = False) -> None:
        """Merge the scene, and show what came of it.

        Raises:
            SplatbatchError: it could not be merged.
        """
        words = merge_words(allow_missing=allow_missing, clean=clean)
        self.show(self.run("merge", words, MergeOutput))


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


def publishable_names(batch: Batch) -> tuple[list[str], dict[str, str]]:
    """Return every patch that may be published, and of each other one why not."""
    from splatbatch.publish.source import publishable

    splats, lacking = publishable(batch)
    return [one.name for one in splats], lacking


def _publish(trained: FinishedBatch, *, merges: bool, allow_missing: bool) -> FollowUpResult:
    """Publish what may be published.

    Raises:
        SplatbatchError: it cannot be done; what could be written is there.
    """
    from splatbatch.publish.publish import PublishRequest

    batch = open_batch(trained.batch.path)  # with what the night has settled
    PublishRequest.of(batch)  # for its errors, before a scene is merged
    patience = WaitHooks(trained.tick, trained.interruption.reason, trained.say)
    if not batch.config.scene.scenes and partition_of(batch.config.scene.patches) is not None:
        lacking, is_empty = answer(_lacking_in_scene, batch, patience).result("start")
        if lacking and (is_empty or not (allow_missing or batch.config.publish.allow_missing)):
            hint = "" if is_empty else "; set `publish.allow_missing: true` to publish the scene with holes"
            return _nothing(batch, lacking, hint)
        if merges:
            trained.merge(allow_missing=bool(lacking))
        names, what = ["scene"], "published with holes" if lacking else "published"
    else:
        names, lacking = answer(publishable_names, batch, patience).result("start")
        if not names:
            return _nothing(batch, lacking)
        what = f"published: {list_names(names)}"
    done = trained.run("publish", ("--", *names), PublishOutput)
    trained.show(done)
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
