"""The target folder of `publish`: files of other programs are kept, leftovers of a killed publish are removed."""

from __future__ import annotations

import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatbatch.errors import BusyError, ConfigError, OutputError
from splatbatch.files import MIB, abandoned_files, free_mib, path_beside
from splatbatch.output.records.publication import Publication, PublishedFile, SplatRecord
from splatbatch.processes import start_ticks
from splatbatch.publish.source import PublishedSplat
from splatbatch.scene.patches import list_names
from splatbatch.splats.export import check_outside
from splatbatch.tasks.patch_state import Damaged, UpToDate
from splatbatch.tasks.product import compare_product
from splatbatch.text import one_line

WORK = "work"
TRIES, STEP_BACK_S = 5, 0.4
SILENCE_S = 3600.0
"""Time without a change after which the working folder of a `publish` on another host counts as abandoned, in s."""
ROOM = 2.0
"""Free space that `publish` requires, as a multiple of the splats' size: for the written and the decoded files."""


@dataclass
class TargetFolder:
    """The folder that `publish` writes into, and its publish.json, which is written again after each output."""

    folder: Path
    is_forced: bool = False
    """Whether files of other programs may be overwritten (`--force`)."""
    known: Publication = field(default_factory=Publication)
    """Content of publish.json, as `check` has read it, with later changes; blank before, and if none can be read."""

    def check(self, output: Path) -> None:
        """Check that the folder may be published into, and read its publish.json; nothing is written.

        The folder may be absent. Other files are no error if they are hidden or lie beside a publish.json, or with
        `is_forced`.

        Args:
            output: the output folder of the batch, in which the target folder must not lie.

        Raises:
            ConfigError: the path is a file.
            OutputError: the folder lies in the output folder, cannot be read, or has other files but no readable
                publish.json; or a later version of splatbatch wrote publish.json.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"--to {self.folder}: a file, not a folder", "Name a folder.")
        check_outside(f"--to {self.folder}", self.folder, output)
        found = Publication.of(self.folder)
        if found is None and not self.is_forced and (foreign := self._files()):
            message = f"--to {self.folder}: holds files that publish did not write: {list_names(foreign, 3)}"
            raise OutputError(message, "Name an empty folder, or add --force to publish beside these files.")
        self.known = found or Publication()

    def _files(self) -> list[str]:
        try:
            return sorted(one_line(one.name) for one in self.folder.iterdir() if not one.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            message = f"--to {self.folder}: cannot be read ({error.strerror})"
            raise OutputError(message, "Name another folder.") from error

    def place(self, name: str) -> Path:
        """Return the path of an output in the folder; a symbolic link at this path is removed.

        Args:
            name: name of the output: that of a file or subfolder.

        Raises:
            OutputError: a file that `publish` did not write has this path, and `is_forced` is False.
            OSError: the symbolic link cannot be removed.
        """
        place = self.folder / name
        if (place.exists() or place.is_symlink()) and name not in self.known.outputs and not self.is_forced:
            raise OutputError(f"{place}: exists and was not written by publish", "Add --force to overwrite it.")
        if place.is_symlink():
            place.unlink()
        return place

    def check_room(self, num_bytes: int) -> None:
        """Check that the disk of the folder has enough free space; if the free space is unknown, it counts as enough.

        Args:
            num_bytes: size in bytes of the splats to publish; ROOM times as much is required.

        Raises:
            OutputError: less space is free.
        """
        free, needed = free_mib(self.folder), ROOM * num_bytes / MIB
        if free is not None and free < needed:
            raise OutputError(
                f"{self.folder}: {free:,} MiB of disk space are free, {needed:,.0f} MiB are needed",
                "Free disk space, or name another folder with --to.",
            )

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield an empty working folder inside the target folder, which is created if absent.

        The working folder is removed at the end, also after an error. Only one `publish` at a time gets a working
        folder, but one on another host does not count after SILENCE_S without a change. Working folders of killed
        processes of this host are removed first.

        Raises:
            BusyError: another `publish` is running there.
            OutputError: the folder cannot be created or written.
        """
        aside = path_beside(self.folder / WORK)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in abandoned_files(self.folder / WORK):
                shutil.rmtree(left, ignore_errors=True)
            self._enter(aside)
        except OSError as error:
            raise OutputError(
                f"--to {self.folder}: cannot be written ({error.strerror})", "Name another folder."
            ) from error
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
        raise BusyError(
            f"{self.folder}: another publish is writing there (host and process: {who})",
            "Wait until it ends, then publish again.",
        )

    def is_there(self, name: str, key: str, say: Callable[[str], None]) -> bool:
        """Return whether an output is up to date: it was made from the same inputs, and its files are unchanged.

        Args:
            name: name of the output: that of a file or subfolder.
            key: hash of all inputs that decide its content.
            say: called with a message if the output is damaged.
        """
        known, place = self.known.outputs.get(name, PublishedFile()), self.folder / name
        state = compare_product(key, known.key if place.exists() else None, place=place, parts=known.sha256)
        if isinstance(state, Damaged):
            say(f"{name}: damaged on disk: written again" + (f" ({state.parts})" if state.parts != name else ""))
        return isinstance(state, UpToDate)

    def remember(self, splat: PublishedSplat) -> None:
        """Add or replace the record of a splat; publish.json gets it once the next output is recorded."""
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

    def begin(self, name: str, output: PublishedFile) -> None:
        """Record an output before it is written, so that the next `publish` after a kill knows the file as its own.

        An output that is recorded already stays as it is.

        Args:
            name: name of the output: that of a file or subfolder.
            output: preliminary record.

        Raises:
            OSError: publish.json cannot be written.
        """
        if name not in self.known.outputs:
            self.note(name, output)

    def note(self, name: str, output: PublishedFile | None) -> None:
        """Add or replace the record of an output, and write publish.json.

        Args:
            name: name of the output: that of a file or subfolder.
            output: the record; None removes it.

        Raises:
            OSError: publish.json cannot be written.
        """
        others = {other: one for other, one in self.known.outputs.items() if other != name or output}
        self.known = replace(self.known, outputs={**others, name: output} if output else others)
        self.known.write(self.folder)

    def change(self, name: str, **changed: Any) -> None:
        """Change fields of the record of an output, and write publish.json.

        Args:
            name: name of the output.
            changed: new values by field of `PublishedFile`.

        Raises:
            KeyError: there is no record of this name.
            OSError: publish.json cannot be written.
        """
        self.note(name, replace(self.known.outputs[name], **changed))


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
