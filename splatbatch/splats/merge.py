"""Merge of splats into one file: part by part in the given order, written aside, then renamed.

The same parts give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import ConfigError, OutputError
from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap.types import Mask
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition
from splatbatch.splats import ply
from splatbatch.splats.blocks import read_rows
from splatbatch.splats.check import Flaws, flaws_of
from splatbatch.splats.export import ChangedOnDisk, check_outside
from splatbatch.terminal import Advance, unheard
from splatbatch.text import list_some, plural, spell_place

AGAIN = "Train it again: splatbatch train {name}."
MERGED = "splatbatch merge of"
"""First words of the comment in the header of a merged splat, by which it may be overwritten later."""
MOST_DIGITS = 20
"""Digits reserved in the header for the number of Gaussians, which is only known at the end."""
SUFFIX = ".ply"


@dataclass(frozen=True)
class MergeSource:
    """The accepted splat of a patch, to be merged with others or viewed beside them, with its hash."""

    path: Path
    name: str
    """Name of its patch."""
    sha256: str = ""
    """SHA-256 of the file as it was accepted, in hexadecimal digits; empty: not known, and not checked."""


def header_of(source: MergeSource, offset: Offset) -> ply.SplatHeader:
    """Read the header of a splat that is to be merged in the frame of an offset.

    Raises:
        OutputError: the file is no splat, is truncated, or has another offset.
    """
    try:
        header, size = ply.read_header(source.path), source.path.stat().st_size
        ply.degree_of(header)
    except (OSError, ValueError) as error:
        raise _unusable(source, str(error)) from error
    if size != header.file_bytes:
        raise _unusable(source, f"cut: {size} of {header.file_bytes} bytes")
    if header.offset not in (NO_OFFSET, offset):  # other programs write no offset, although they train with one
        there, here = spell_place(header.offset), spell_place(offset)
        raise _unusable(source, f"it lies in another frame: offset {there}, the others {here}")
    return header


def read_accepted(source: MergeSource, header: ply.SplatHeader) -> Iterator[ply.FloatArray]:
    """Yield all rows [n, properties] of a splat, in pieces.

    Raises:
        OutputError: it is not the splat that was accepted, is truncated, or cannot be rendered; rows already taken must
            be discarded.
    """
    flaws = Flaws()
    with open_regular(source.path) as file:
        digest = hashlib.sha256(file.read(header.header_bytes))
    try:
        for _, rows in read_rows(source.path, header):
            digest.update(rows.data)
            flaws += flaws_of(rows, header)
            yield rows
    except ValueError as error:
        raise _unusable(source, str(error)) from error
    if source.sha256 and digest.hexdigest() != source.sha256:
        raise ChangedOnDisk(source.name, "it is not the splat that was accepted")
    if flaws != Flaws():
        num, far = f"of {header.num_gaussians} Gaussians", f"{flaws.out_of_reach} lie beyond {ply.LARGEST_COORDINATE:g}"
        raise _unusable(source, f"{flaws.not_finite} {num} are not finite, {flaws.unturned} have no rotation, {far}")


def _unusable(source: MergeSource, why: str) -> OutputError:
    return OutputError(f"{source.name}: {source.path}: {why}", AGAIN.format(name=source.name))


def at_degree(rows: ply.FloatArray, header: ply.SplatHeader, degree: int) -> ply.FloatArray:
    """Return rows of a splat file in our order of properties, with harmonics up to a degree of at least the file's own.

    Harmonics that it lacks are zeros; other properties, as normals, are left out. Rows in that order are not copied.
    """
    if header.properties == ply.names_at(degree):
        return rows
    found = ply.gaussians_of(rows, header)
    lacking = ply.num_coefficients(degree) - found.shN.shape[1]
    return ply.table_of(replace(found, shN=np.pad(found.shN, ((0, 0), (0, lacking), (0, 0)))))


Region = Callable[[ply.FloatArray], Mask]
"""Part of space, as a function that returns which means [N, 3], in the frame of the splats, lie in it."""


def inside(partition: Partition, offset: Offset, box: Box) -> Region:
    """Return a box of the partition as a region; it is half-open, so that adjacent boxes share no point."""
    return lambda means: box.holds(partition.in_axes(means.astype(np.float64), offset))


def out_of_bounds(partition: Partition, offset: Offset, boxes: Sequence[Box]) -> Region:
    """Return the region outside of all boxes of a list."""

    def holds(means: ply.FloatArray) -> Mask:
        places = partition.in_axes(means.astype(np.float64), offset)
        return ~np.logical_or.reduce([np.zeros(len(places), dtype=bool), *(box.holds(places) for box in boxes)])

    return holds


@dataclass(frozen=True)
class WrittenPart:
    """Record of one part of a merged splat: which rows it has there, and how many were read and removed."""

    name: str
    start: int
    """Index of its first Gaussian in the merged splat."""
    num_gaussians: int
    """Number of its Gaussians in the merged splat."""
    num_read: int
    """Number of Gaussians of its own splat."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Number of Gaussians removed by cleaning, by rule; the remaining ones lie outside its region."""
    sha256: str = ""
    """SHA-256 of its rows in the merged splat; empty: not known."""


def damaged_parts(path: Path, parts: Iterable[WrittenPart]) -> tuple[str, ...]:
    """Return the names of the parts whose rows in a merged splat cannot be read or have another hash than recorded."""
    return tuple(one.name for one in parts if one.sha256 and not _is_whole(path, one))


def _is_whole(path: Path, part: WrittenPart) -> bool:
    digest = hashlib.sha256()
    try:
        for _, rows in read_rows(path, ply.read_header(path), (), (part.start, part.start + part.num_gaussians)):
            digest.update(rows.data)
    except (OSError, ValueError):
        return False
    return digest.hexdigest() == part.sha256


Removed = Callable[[ply.FloatArray], Mapping[str, Mask]]
"""Function that returns, by rule, which rows [N, properties in our order] cleaning removes; none by two rules."""


@dataclass(frozen=True)
class MergePart:
    """One splat of a merge: its file, its region, and the cleaning rules."""

    source: MergeSource
    region: Region
    key: str
    """Hash of everything that decides which of its rows are merged; a later merge compares it to find changes."""
    removed: Removed | None = None
    may_be_empty: bool = False
    """Whether the merge accepts that no Gaussian of it lies in its region."""


@dataclass(frozen=True)
class MergedSplat:
    """Result of a merge: its parts in the order of the file, and the degree of its harmonics."""

    parts: tuple[WrittenPart, ...]
    sh_degree: int

    @property
    def num_gaussians(self) -> int:
        """Return the number of Gaussians of all parts."""
        return sum(part.num_gaussians for part in self.parts)


def merge_splats(target: Path, parts: Sequence[MergePart], offset: Offset, advance: Advance = unheard) -> MergedSplat:
    """Write the Gaussians of all parts that lie in their regions to one splat file.

    On an error an earlier file stays unchanged. Rows are read in pieces, so a splat need not fit in memory.

    Args:
        target: path of the merged splat.
        parts: in their order in the file.
        offset: of the frame of all parts.
        advance: is called with the number of Gaussians read and their total.

    Raises:
        OutputError: a splat cannot be read, is truncated or cannot be rendered, has another offset, or has nothing in
            its region; some are antialiased and others not; or the file cannot be written.
    """
    headers = [header_of(part.source, offset) for part in parts]
    degree, mode = max(map(ply.degree_of, headers)), common_mode([part.source.name for part in parts], headers)
    found: list[WrittenPart] = []

    def write(file: BinaryIO) -> None:
        file.write(_header(0, degree, offset, len(parts), mode))
        total = sum(header.num_gaussians for header in headers)
        for part, header in zip(parts, headers, strict=True):
            start = sum(one.num_gaussians for one in found)
            read = sum(one.num_read for one in found)
            written = _write(part, header, degree, file, lambda done: advance(read + done, total))  # noqa: B023 - called at once
            found.append(replace(written, start=start))
        file.seek(0)
        file.write(_header(sum(one.num_gaussians for one in found), degree, offset, len(parts), mode))

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, write)
    except OSError as error:
        hint = "Free space or correct the permissions; the earlier file is unchanged."
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})", hint) from error
    return MergedSplat(tuple(found), degree)


def common_mode(names: Sequence[str], headers: Sequence[ply.SplatHeader]) -> bool | None:
    """Return whether all splats are antialiased; None if no header says so. Headers that do not say are ignored.

    Raises:
        OutputError: some splats are antialiased, and others are not.
    """
    named = list(zip(names, headers, strict=True))
    with_it, without = ([name for name, header in named if header.antialiased is one] for one in (True, False))
    if with_it and without:
        said = f"{list_some(with_it)} with training.antialiased: true, {list_some(without)} with false"
        fewer = with_it if len(with_it) < len(without) else without
        hint = f"Set one for all in the YAML, then: splatbatch train {' '.join(fewer)}."
        raise OutputError(f"splats that were trained differently cannot be drawn as one: {said}", hint)
    return bool(with_it) if with_it or without else None


def _write(
    part: MergePart, header: ply.SplatHeader, degree: int, file: BinaryIO, advance: Callable[[int], None]
) -> WrittenPart:
    """Write the rows of a part that lie in its region and pass cleaning.

    Raises:
        OutputError: no row lies in its region, or the splat is truncated or cannot be rendered.
    """
    removed, num_inside, num_read = Counter[str](), 0, 0
    digest = hashlib.sha256()
    for piece in read_accepted(part.source, header):
        rows = at_degree(piece, header, degree)
        num_read += len(rows)
        advance(num_read)
        inside = part.region(rows[:, :3])
        rows = rows if inside.all() else rows[inside]
        num_inside += len(rows)
        if part.removed is not None and len(rows):
            gone = np.zeros(len(rows), dtype=bool)
            for rule, mask in part.removed(rows).items():
                removed[rule] += int(np.count_nonzero(mask))
                gone |= mask
            rows = rows[~gone] if gone.any() else rows
        digest.update(rows.data)
        file.write(rows.data)
    if not num_inside and not part.may_be_empty:
        raise OutputError(
            f"{part.source.name}: none of its {plural(header.num_gaussians, 'Gaussian')} lies in its core",
            f"It was trained in another frame: train it again, splatbatch retry {part.source.name} --force.",
        )
    num_left = num_inside - removed.total()
    return WrittenPart(part.source.name, 0, num_left, header.num_gaussians, dict(removed), digest.hexdigest())


def _header(num_gaussians: int, degree: int, offset: Offset, num_parts: int, mode: bool | None) -> bytes:
    """Return the header of a merged splat, whose length does not depend on the number of Gaussians."""
    filler = "-" * (MOST_DIGITS - len(str(num_gaussians)))
    comments = (
        f"{MERGED} {plural(num_parts, 'part')}",
        *ply.offset_comments(offset),
        *ply.mode_comments(mode),
        filler,
    )
    return ply.encode_header(num_gaussians, ply.names_at(degree), comments)


def check_place(target: Path, output: Path) -> None:
    """Check that a merged splat may be written to the path of `--out`.

    Raises:
        ConfigError: it is not the name of a PLY file.
        OutputError: it lies in the output folder, or exists and was not written by `merge`.
    """
    if target.suffix.lower() != SUFFIX or target.is_dir():
        raise ConfigError(f"--out {target}: not the name of a PLY file", "Name a file, as scene.ply.")
    check_outside(f"--out {target}", target.parent, output)
    if target.is_symlink() or (target.exists() and not ply.has_comment(target, MERGED)):
        raise OutputError(f"--out {target}: exists and was not written by merge", "Name another, or remove it.")
