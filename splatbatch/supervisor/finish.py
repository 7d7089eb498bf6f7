"""What a program of somebody else leaves when it is done, and whether it has been done for long without ending."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.files import Record

LOOKS = 10  # in the time that a program may go on for
LONGEST_LOOK_S = 5.0
HEADER_BYTES = 1 << 14
OF_SPLATS = b" f_dc_0"
TALKATIVE = 10
"""A program that goes on talking may do so this many times as long as a silent one: it may still be evaluating."""


@dataclass(frozen=True)
class Product:
    """A file that may be the splat, and the step it is from; None if its name does not say."""

    path: Path
    step: int | None


@dataclass(frozen=True)
class Leavings:
    """What should lie below a folder in the end."""

    folder: Path
    products: tuple[str, ...] = ()
    """Globs of the splat; empty if there is none yet."""
    step: str = ""
    """Regular expression of the step in a product's path; empty: none has one."""
    last_step: int = 0
    """The step that the final product is named after."""
    files: tuple[str, ...] = ()
    """Globs of further files; those from an earlier step do not count."""

    @staticmethod
    def from_record(record: Record) -> Leavings:
        """Return what `vars` of one, as JSON, stands for."""
        texts = {key: tuple(record.get(key) or ()) for key in ("products", "files")}
        return Leavings(Path(record["folder"]), step=record["step"], last_step=int(record["last_step"]), **texts)

    def newest(self) -> Product | None:
        """Return the product of the highest step; one that names none is the end's. Equal steps: the newest file.

        A PLY that is no splat, such as the sparse points that many programs put beside their output, comes last.
        """
        found = [Product(path, self._step_of(path)) for path in self._below(self.products)]
        key = lambda one: (_may_be_splat(one.path), self._rank(one), _moved_at(one.path))  # noqa: E731
        return max(found, key=key, default=None)

    def all_there(self) -> tuple[Path, ...]:
        """Return every file that counts, once each glob has one that is not empty; nothing before."""
        product = self.newest()
        if self.products and (product is None or not self.is_last(product) or not _may_be_splat(product.path)):
            return ()
        others = [self._of_the_end(glob) for glob in self.files]
        if not all(others):
            return ()
        return (*([product.path] if product else ()), *(path for paths in others for path in paths))

    def _of_the_end(self, glob: str) -> list[Path]:
        """Return the files that are not empty and, as far as their names say, not from an earlier step."""
        return [
            path for path in self._below([glob]) if _size(path) and self.is_last(Product(path, self._step_of(path)))
        ]

    def is_last(self, product: Product) -> bool:
        """Return whether a product is from the last step."""
        return self._rank(product) >= self.last_step

    def _rank(self, product: Product) -> int:
        return self.last_step if product.step is None else product.step

    def _step_of(self, path: Path) -> int | None:
        steps = re.findall(self.step, path.relative_to(self.folder).as_posix()) if self.step else []
        return int(steps[-1]) if steps and steps[-1].isdecimal() else None

    def _below(self, globs: Iterable[str]) -> list[Path]:
        with suppress(OSError):
            return sorted({path for glob in globs for path in self.folder.glob(glob) if path.is_file()})
        return []


@dataclass
class FinishWatch:
    """Notices a program that has left all it should, and goes on in silence: a viewer that waits for visitors."""

    leavings: Leavings
    after_s: float
    _said: int = 0
    _traces: tuple[object, ...] = ()
    _silent_since: float = field(default_factory=time.monotonic)
    _whole_since: float = field(default_factory=time.monotonic)

    @property
    def interval_s(self) -> float:
        """Return how often to look."""
        return min(self.after_s / LOOKS, LONGEST_LOOK_S)

    def look(self, said: int) -> None:
        """Note whether anything has changed.

        Args:
            said: bytes the process has said so far.
        """
        now = time.monotonic()
        traces = tuple((path, _size(path), _moved_at(path)) for path in self.leavings.all_there())
        if not traces or traces != self._traces:
            self._whole_since = self._silent_since = now
        if said != self._said:
            self._silent_since = now
        self._traces, self._said = traces, said

    def is_over(self) -> bool:
        """Return whether all is there and unchanged, and nothing was said, for so long; or much longer in any case."""
        now = time.monotonic()
        silent = now - self._silent_since > self.after_s
        return bool(self._traces) and (silent or now - self._whole_since > TALKATIVE * self.after_s)


def _may_be_splat(path: Path) -> bool:
    """Return whether a file holds something and, if it is a PLY, has the colours of Gaussians in its header."""
    try:
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
    except OSError:
        return False
    return OF_SPLATS in start if start.startswith(b"ply") else bool(start)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _moved_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
