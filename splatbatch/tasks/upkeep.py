"""Repairs accepted results: restores lost products, and adds missing hashes of input files to manifests (result.json).

Photographs and masks are hashed while patches train. With these hashes a copied folder does not make a splat stale.
"""

from __future__ import annotations

import contextlib
from functools import partial

from splatbatch import isolated
from splatbatch.files import write_json
from splatbatch.hashing import FileFacts, with_contents
from splatbatch.isolated import CallQueue, Returned, WaitHooks, answers
from splatbatch.output import results
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.records.fingerprint import is_content
from splatbatch.output.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import Task


def restore(task: Task) -> tuple[str, str]:
    """Restore an accepted product that is missing or damaged, from the folders of its attempts; see `results.restore`.

    Return the attempt from which the product was restored, and the attempt accepted before if that is another. Both are
    empty if nothing was restored.

    Raises:
        OSError: the files cannot be written.
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    before, found = (task.home.read_result() or Result()).attempt, results.restore(task.home)
    return found, before if found and found != before else ""


def update_fingerprint(task: Task) -> None:
    """Update sizes, times and hashes of files in the manifest of an up-to-date splat, as after a copy of its folder.

    The manifest is replaced, and a note of damage (damage.json) is removed: the splat was found to be the accepted one.

    Raises:
        OSError: the manifest cannot be written.
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    folder = task.home
    result = folder.read_result() or Result()
    inputs, then = task.input_files(), result.held_against.files
    now = inputs.now().files
    files = with_contents(now, then, inputs.compare(then, now))
    splat = results.splat_facts(folder.splat, result.splat.num_gaussians or result.num_gaussians or 0)
    write_json(folder.result, result.with_files(files).with_fields(splat=splat).to_record())
    folder.damage.unlink(missing_ok=True)  # the splat was read, and is the accepted one


class ContentHasher:
    """Adds missing hashes of photographs and masks to manifests (result.json) while patches train.

    A reader process reads the files, since reading may hang.
    """

    def __init__(self, batch: Batch) -> None:
        self._tasks = {task.name: task for task in batch.tasks}
        self._waiting: list[Task] = []
        self._reading: CallQueue[Task] | None = None

    def tell(self, event: Event) -> None:
        """Take an event of the ledger: the files of a patch that was trained are queued; other events are ignored.

        Raises:
            KeyError: the batch has no such task.
        """
        if isinstance(event, AttemptEnded) and event.outcome == "trained":
            self.want(event.patch)

    def want(self, name: str) -> None:
        """Queue the files of a patch for hashing.

        Raises:
            KeyError: the batch has no such task.
        """
        self._waiting.append(self._tasks[name])

    def tick(self) -> None:
        """Write the hashes computed so far, and start a reader process if patches are queued.

        Called many times a second.

        A manifest (result.json) that cannot be written is left to the next run.

        Raises:
            OSError: no reader process can be started.
            LaterFormatError: a later version of splatbatch wrote a manifest.
        """
        if self._reading is None and self._waiting:
            self._reading = self._next()
        if self._reading is not None:
            for task, found in self._reading.look():
                self._take(task, found)
            self._reading = None if self._reading.is_over else self._reading

    def finish(self, hooks: WaitHooks) -> None:
        """Hash the files of all queued patches; patches whose files do not answer are left to the next run.

        Args:
            hooks: functions called while waiting, which may request a stop.

        Raises:
            StopRequested: a stop was requested.
            OSError: no reader process can be started.
            LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
        """
        while self._reading or self._waiting:
            reading, self._reading = self._reading or self._next(), None
            for task, found in answers(reading, hooks):
                self._take(task, found)

    def _next(self) -> CallQueue[Task]:
        waiting, self._waiting = [*dict.fromkeys(self._waiting)], []
        return isolated.start(partial(_hash_accepted, FileFacts()), waiting, is_low=True)

    def _take(self, task: Task, found: isolated.Answer) -> None:
        """Write the hashes of a patch's files into its manifest, unless another splat was accepted meanwhile."""
        if not isinstance(found, Returned) or (result := task.home.read_result()) is None or result.is_ahead:
            return
        files, (attempt, contents) = result.held_against.files, found.value
        known = {key: files[key]._replace(sha256=digest) for key, digest in contents.items() if key in files}
        if known and attempt == result.attempt:
            with contextlib.suppress(OSError):  # a full disk, or a folder that cannot be written: the next run tries
                write_json(task.home.result, result.with_files({**files, **known}).to_record())


def _hash_accepted(facts: FileFacts, task: Task) -> tuple[str, dict[str, str]]:
    """Return the accepted attempt, and the missing hashes of its files whose size and time have not changed."""
    result, place = task.home.read_result() or Result(), task.input_files().place
    files = result.held_against.files.items()
    unhashed = {key: fact for key, fact in files if not fact.sha256 and fact.num_bytes >= 0 and is_content(key)}
    same = [key for key, fact in unhashed.items() if facts.of(place(key))[:2] == fact[:2]]
    return result.attempt, {key: digest for key in same if (digest := facts.sha256(place(key)))}
