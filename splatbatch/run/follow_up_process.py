"""Certifying, merging and publishing as tasks, and their program: `python -m splatbatch.run.follow_up_process FOLDER`.

Its log is that of the task; of a known mistake the last line says what it is, and the exit code of which kind.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
import traceback
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from splatbatch.errors import SplatbatchError, in_full
from splatbatch.files import open_regular, write_json, write_text
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import MergedFiles, PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import FollowUpJob, FollowUpSettings
from splatbatch.scene.patches import Patch
from splatbatch.scheduler.single import SAYS
from splatbatch.scheduler.work.exclusive_output import in_turn
from splatbatch.splats.export import ExportOptions
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.product import ProductComparison, key_of
from splatbatch.tasks.program import BuiltinProgram
from splatbatch.tasks.quality import certificate
from splatbatch.tasks.scene.clean import CleaningRules
from splatbatch.tasks.scene.merge import gather, merge
from splatbatch.tasks.task import Task
from splatbatch.text import one_line

VERSION = 1


class SplatTasks(BuiltinProgram):
    """Tasks that make something of accepted splats; what they call has limits of its own."""

    module = "splatbatch.run.follow_up_process"
    tries = 2
    limits: ClassVar = {"wall_s": 1e9, "stall_s": 0.0}

    def keep(self, task: Task, folder: AttemptFolder) -> None:
        """Remove earlier attempts, but for those that still run."""
        for one in folder.earlier():
            if one.has_exited():
                shutil.rmtree(one.path, ignore_errors=True)

    @staticmethod
    @abstractmethod
    def make(batch: Batch, told: FollowUpSettings) -> FollowUpJob:
        """Make it, in the process of the attempt; return what came of it.

        Raises:
            SplatbatchError, OSError: it cannot be made.
        """


class MergeTasks(SplatTasks):
    """Tasks that merge the splats of a batch."""

    takes = "cpu"

    @staticmethod
    def make(batch: Batch, told: FollowUpSettings) -> FollowUpJob:
        """Merge, unless that is done."""
        files = MergedFiles.at(Path(told.to)) if told.to else batch.output.scene.merged
        parts = gather(batch, allow_missing=told.allow_missing)
        cleaning = CleaningRules(parts.partition, parts.with_cameras(), parts.offset) if told.clean else None
        if cleaning and told.keep_uncleaned:
            merge(parts, uncleaned(files))
        done = merge(parts, files, cleaning, partial(PipeWriter(print_err).advance, "merge"))
        return FollowUpJob(num_new=done.num_new, damage=done.damage)


def uncleaned(files: MergedFiles) -> MergedFiles:
    """Return where a merged scene lies as it was before it was cleaned."""
    return MergedFiles.at(files.splat.with_name(f"{files.splat.stem}-uncleaned.ply"))


class PublishTasks(SplatTasks):
    """Tasks that publish; what compression costs is measured on a GPU where one is ready."""

    takes = "any"

    @staticmethod
    def make(batch: Batch, told: FollowUpSettings) -> FollowUpJob:
        """Publish what is named, else every patch that may be; outputs that have not changed stay."""
        from splatbatch.publish.publish import PublishRequest, publish
        from splatbatch.publish.source import publishable, published

        wish = PublishRequest.of(batch, Path(told.to) if told.to else None, told.formats, forced=told.forced)
        cut = ExportOptions(told.sh_degree, told.min_opacity, in_source_frame=told.in_source_frame)
        wish = replace(wish, cut=cut, is_measured=wish.is_measured and told.measured)
        splats, lacking = (published(batch, told.names), {}) if told.names else publishable(batch)
        for warning in (warning for splat in splats for warning in splat.warnings):
            print_err(f"warning: {warning}")
        write = partial(publish, splats, wish, batch.output.path, PipeWriter(print_err))
        if splats and told.waits:
            in_turn(write)
        elif splats:
            write()
        return FollowUpJob(names=tuple(one.name for one in splats), lacking=lacking)


@dataclass(frozen=True)
class CertifyTasks(SplatTasks):
    """Tasks that certify an inspected splat."""

    told: FollowUpSettings
    subjects: tuple[Task | None, ...] = (None,)
    """The tasks whose splats they are; None: the merged scene's."""
    takes = "cpu"

    def product(self, task: Task, output: OutputFolder) -> ProductComparison:
        """Return a certificate as it would be written now, one that is not fresh before all others."""
        products = [certificate.product(one, task.next_settings.config, output) for one in self.subjects]
        return next((one for one in products if not one.is_fresh), products[0])

    @staticmethod
    def make(batch: Batch, told: FollowUpSettings) -> FollowUpJob:
        """Write the certificates of what is named, of nothing: of the merged scene; one that fails keeps no other."""
        subjects: list[Task | None] = [task for task in batch.every if task.name in told.names]
        failed = list[Exception]()
        for task in subjects or [None]:
            try:
                certificate.certify(batch, task)
            except (SplatbatchError, OSError) as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return FollowUpJob(names=told.names)


KINDS: Mapping[str, type[SplatTasks]] = {"merge": MergeTasks, "publish": PublishTasks, "certify": CertifyTasks}


def making(batch: Batch, told: FollowUpSettings, home: PatchFolder | None = None) -> Task:
    """Return the task that makes what is named; its attempts lie in `home`, None: in the output folder."""
    return _task(batch, KINDS[told.what](_complete(batch, told), home or batch.output.following(told.what)))


def certifying(batch: Batch, subjects: Sequence[Task | None]) -> Task:
    """Return the task that certifies splats of tasks, once they are inspected; of None alone: the merged scene's."""
    names = tuple(subject.name for subject in subjects if subject)
    told = _complete(batch, FollowUpSettings("certify", names=names))
    return _task(batch, CertifyTasks(told, batch.output.following(told.what), subjects=tuple(subjects)))


def _complete(batch: Batch, told: FollowUpSettings) -> FollowUpSettings:
    told = replace(told, config=str(batch.file), inputs="")
    return replace(told, inputs=key_of(VERSION, told.to_record()))


def _task(batch: Batch, kind: SplatTasks) -> Task:
    what, scene = kind.told.to_record()["what"], batch.config.scene
    subject = Patch(what, scene.patches, scene.images or scene.patches)
    return kind.of(batch.config, f"afterwards/{what}", subject)  # as no patch can be called


LOOKS_EVERY_S = 1.0


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


class ProgressPrinter:
    """Says how far the process of a task is, as its progress.jsonl says from now on."""

    def __init__(self, what: str, home: PatchFolder, lines: PipeWriter) -> None:
        self._what, self._home, self._lines = what, home, lines
        self._earlier, self._looked = home.latest(home.files()), 0.0

    def look(self) -> None:
        """Say it, unless that was said just now; called many times a second."""
        if time.monotonic() - self._looked < LOOKS_EVERY_S:
            return
        self._looked = time.monotonic()
        folder = self._home.latest(self._home.files())
        if folder is not None and folder != self._earlier:
            at = folder.last_progress()
            self._lines.advance(self._what, at.step or 0, at.max_steps or 0, f"steps ({at.phase or 'start'})")


def main(folder: AttemptFolder) -> int:
    """Make what settings.json names, and say in metrics.json what came of it; return the exit code."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what is half done is swept
    told = FollowUpSettings.read(folder.settings) or FollowUpSettings()
    try:
        found = KINDS[told.what].make(open_batch(Path(told.config)), told)
    except (SplatbatchError, OSError) as error:
        print_err(f"{SAYS}{in_full(error)}")
        return error.exit_code if isinstance(error, SplatbatchError) else SplatbatchError.exit_code
    except Exception as error:  # noqa: BLE001 - of a fault of ours the kind is told, and the rest lies beside the log
        write_text(folder.path / "fault.txt", traceback.format_exc())
        print_err(f"{SAYS}internal fault: {type(error).__name__}: {error}")
        return SplatbatchError.exit_code
    write_json(folder.metrics, replace(found, inputs=told.inputs).to_record())
    return 0


if __name__ == "__main__":
    sys.exit(main(AttemptFolder(Path(sys.argv[1]))))
