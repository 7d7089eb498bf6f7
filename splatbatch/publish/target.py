"""The target folder of `publish`: files of other programs are kept, leftovers of a killed publish are removed."""

from __future__ import annotations

import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.errors import BusyError, ConfigError, OutputError
from splatbatch.files import MIB, abandoned_files, free_mib, path_beside
from splatbatch.output.records.publication import Publication, PublishedFile, SplatRecord
from splatbatch.processes import start_ticks
from splatbatch.publish.rows import put as put_whole
from splatbatch.publish.source import PublishedSplat
from splatbatch.scene.patches import list_names
from splatbatch.tasks.patch_state import Damaged, UpToDate
from splatbatch.tasks.product import compare_product
from splatbatch.text import one_line

WORK = "work"
TRIES, STEP_BACK_S = 5, 0.4
SILENCE_S = 3600.0
"""Seconds without a change after which a working folder of a publish on another host counts as abandoned."""
ROOM = 2.0
"""Free space that is required, as a multiple of the splats' size: for the written files and the decoded ones."""


@dataclass(frozen=True)
class PublishTarget:
    """The folder that `publish` writes into."""

    folder: Path
    is_forced: bool = False
    """Whether files of other programs may be overwritten (`--force`)."""

    def check(self, output: Path) -> Publication:
        """Check that the folder may be published into; return its publish.json, empty if it has none.

        Raises:
            ConfigError: the path is a file.
            OutputError: the folder lies in the output folder, or holds files that publish did not write.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"--to {self.folder}: a file, not a folder", "Name a folder.")
        if self.folder.resolve().is_relative_to(output.resolve()):
            hint = "Name a folder elsewhere."
            raise OutputError(f"--to {self.folder}: lies in the output folder, among what the batch has written", hint)
        found = Publication.of(self.folder)
        if found is None and not self.is_forced and (foreign := self._files()):
            message = f"--to {self.folder}: holds files that publish did not write: {list_names(foreign, 3)}"
            raise OutputError(message, "Name an empty folder, or add --force to publish among it.")
        return found or Publication()

    def _files(self) -> list[str]:
        try:
            return sorted(one_line(one.name) for one in self.folder.iterdir() if not one.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OutputError(
                f"--to {self.folder}: cannot be read ({error.strerror})", "Name another folder."
            ) from error

    def check_place(self, name: str, known: Publication) -> Path:
        """Return the path of an output; a symbolic link there is removed.

        Raises:
            OutputError: a file that publish did not write has that path, and must not be overwritten.
        """
        place = self.folder / name
        if (place.exists() or place.is_symlink()) and name not in known.outputs and not self.is_forced:
            raise OutputError(f"{place}: exists and was not written by publish", "Add --force to overwrite it.")
        if place.is_symlink():
            place.unlink()
        return place

    def check_room(self, num_bytes: int) -> None:
        """Check that the disk has ROOM times `num_bytes` free, the size of the splats to publish.

        Raises:
            OutputError: less space is free.
        """
        free = free_mib(self.folder)
        if free is not None and free < ROOM * num_bytes / MIB:
            needed = ROOM * num_bytes / MIB
            raise OutputError(f"{self.folder}: {free:,} MiB are free, {needed:,.0f} are needed", "Free space.")

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield a working folder inside the target folder; it is removed at the end, also after an error.

        Only one publish at a time gets one; working folders of killed ones are removed first.

        Raises:
            OutputError: the folder cannot be created, or another publish is running there (BusyError).
        """
        aside = path_beside(self.folder / WORK)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in abandoned_files(self.folder / WORK):
                shutil.rmtree(left, ignore_errors=True)
            self._enter(aside)
        except OSError as error:
            raise OutputError(f"--to {self.folder}: cannot be written ({error.strerror})", "Name another.") from error
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _enter(self, aside: Path) -> None:
        """Create the working folder, unless another publish has one; of two that start at once at most one continues.

        A process that sees the other's folder removes its own and tries again after a random wait, TRIES times.

        Raises:
            OutputError: another publish is running there (BusyError).
        """
        for _ in range(TRIES):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            others = [one for one in self.folder.glob(f".{WORK}.*") if one != aside and _may_be_at_work(one)]
            if not others:
                return
            shutil.rmtree(aside, ignore_errors=True)
            time.sleep(random.uniform(0, STEP_BACK_S))  # noqa: S311 - so that two processes do not collide again
        who = one_line(others[0].name.removeprefix(f".{WORK}."))
        raise BusyError(f"{self.folder}: another publish is at work there ({who})", "Wait for it to end.")


def _may_be_at_work(folder: Path) -> bool:
    """Return whether the publish that owns a working folder may still run.

    On this host its process must exist; on another host its files must have changed within SILENCE_S.
    """
    host, _, pid = folder.name.removeprefix(f".{WORK}.").rpartition(".")
    if host == socket.gethostname():
        return bool(pid.isdecimal() and start_ticks(int(pid)))
    try:
        changed = max(one.stat().st_mtime for one in (folder, *folder.iterdir()))
    except OSError:
        return False
    return time.time() - changed < SILENCE_S


@dataclass
class PublishedFolder:
    """A target folder and its publish.json, which is rewritten after each output."""

    target: PublishTarget
    known: Publication
    """Content of publish.json."""
    say: Callable[[str], None] = lambda _: None
    """Called with a message for each output that is damaged on disk."""

    def place(self, name: str) -> Path:
        """Return the path of an output; a symbolic link there is removed.

        Raises:
            OutputError: a file that publish did not write has that path, and must not be overwritten.
        """
        return self.target.check_place(name, self.known)

    def is_there(self, name: str, key: str) -> bool:
        """Return whether an output with this key exists and its files still have the recorded hashes."""
        known, place = self.known.outputs.get(name, PublishedFile()), self.target.folder / name
        state = compare_product(key, known.key if place.exists() else None, place=place, parts=known.sha256)
        if isinstance(state, Damaged):
            self.say(f"{name}: damaged on disk: written anew" + (f" ({state.parts})" if state.parts != name else ""))
        return isinstance(state, UpToDate)

    def remember(self, splat: PublishedSplat) -> None:
        """Add the record of a splat; publish.json gets it with the next output."""
        record = SplatRecord(
            splat.sha256,
            splat.num_gaussians,
            splat.header.file_bytes,
            splat.header.sh_degree,
            tuple(splat.offset),
            dict(splat.figures),
            splat.warnings,
        )
        self.known = replace(self.known, splats={**self.known.splats, splat.name: record})

    def put(self, aside: Path, name: str, begun: PublishedFile) -> Path:
        """Record an output as begun, move its file or folder to its place, and return that path."""
        self.begin(name, begun)
        place = self.target.folder / name
        put_whole(aside, place)
        return place

    def begin(self, name: str, output: PublishedFile) -> None:
        """Record an output before it is written, so that a publish after a kill knows the file as its own."""
        if name not in self.known.outputs:
            self.note(name, output)

    def forget(self, name: str) -> None:
        """Remove an output from publish.json, after its files were removed."""
        left = {other: output for other, output in self.known.outputs.items() if other != name}
        self.known = replace(self.known, outputs=left)
        self.known.write(self.target.folder)

    def note(self, name: str, output: PublishedFile) -> None:
        """Add or replace the record of an output and write publish.json."""
        self.known = replace(self.known, outputs={**self.known.outputs, name: output})
        self.known.write(self.target.folder)
