"""Merge of splats into one file, part by part in the given order.

The file is written under a temporary name and renamed when it is whole. The same parts give the same bytes.
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
"""First words of the comment in the header of a merged splat; a later merge may overwrite a file with that comment."""
MOST_DIGITS = 20
"""Digits reserved in the header for the number of Gaussians, which is only known when all parts are written."""
SUFFIX = ".ply"


@dataclass(frozen=True)
class MergeSource:
    """The accepted splat of a patch, to be merged with others or viewed beside others, with its hash."""

    path: Path
    name: str
    """Name of the patch."""
    sha256: str = ""
    """SHA-256 of the file as it was accepted, in hexadecimal digits; empty: not known, and not checked."""


def header_of(source: MergeSource, offset: Offset) -> ply.SplatHeader:
    """Read the header of a splat that is to be merged with others, all of which have the given offset.

    A header that names no offset is accepted, since external programs write none.

    Raises:
        OutputError: the file is missing, cannot be read, is no splat, is truncated, or names another offset.
    """
    try:
        header, size = ply.read_header(source.path), source.path.stat().st_size
        ply.degree_of(header)
    except (OSError, ValueError) as error:
        raise _unusable(source, str(error)) from error
    if size != header.file_bytes:
        raise _unusable(source, f"cut: {size} of {header.file_bytes} bytes are there")
    if header.offset not in (NO_OFFSET, offset):  # other programs write no offset, although they train with one
        there, here = spell_place(header.offset), spell_place(offset)
        raise _unusable(source, f"the splat's coordinates are of another frame: offset {there}, the others' {here}")
    return header


def read_accepted(source: MergeSource, header: ply.SplatHeader) -> Iterator[ply.FloatArray]:
    """Yield all rows of a splat in pieces [n, properties], in the order of the file, and check the splat meanwhile.

    Errors may be raised as late as after the last piece; the caller must then discard the pieces.

    Raises:
        OutputError: the file cannot be read, is truncated, is not the file that was accepted (`ChangedOnDisk`), or has
            Gaussians that cannot be rendered.
    """
    flaws = Flaws()
    try:
        with open_regular(source.path) as file:
            digest = hashlib.sha256(file.read(header.header_bytes))
        for _, rows in read_rows(source.path, header):
            digest.update(rows.data)
            flaws += flaws_of(rows, header)
            yield rows
    except (OSError, ValueError) as error:
        raise _unusable(source, str(error)) from error
    if source.sha256 and digest.hexdigest() != source.sha256:
        raise ChangedOnDisk(source.name, "the file is not the splat that was accepted")
    if flaws != Flaws():
        num, far = f"of {header.num_gaussians} Gaussians", f"{flaws.out_of_reach} lie beyond {ply.LARGEST_COORDINATE:g}"
        raise _unusable(source, f"{flaws.not_finite} {num} have NaN values, {flaws.unturned} have no rotation, {far}")


def _unusable(source: MergeSource, why: str) -> OutputError:
    return OutputError(f"{source.name}: {source.path}: {why}", AGAIN.format(name=source.name))


def at_degree(rows: ply.FloatArray, header: ply.SplatHeader, degree: int) -> ply.FloatArray:
    """Return rows of a splat file, [N, properties], with the properties of `names_at(degree)` in that order.

    Harmonics that the file lacks are zeros; other properties, as normals, are left out. Rows that have these properties
    already are returned without a copy.

    Raises:
        ValueError: `degree` is less than that of the file, or the header is not that of a splat.
    """
    if header.properties == ply.names_at(degree):
        return rows
    found = ply.gaussians_of(rows, header)
    lacking = ply.num_coefficients(degree) - found.shN.shape[1]
    return ply.table_of(replace(found, shN=np.pad(found.shN, ((0, 0), (0, lacking), (0, 0)))))


Region = Callable[[ply.FloatArray], Mask]
"""Part of space, as a function: from means [N, 3] in the frame of the splats to a mask [N] of those in the region."""


def inside(partition: Partition, offset: Offset, box: Box) -> Region:
    """Return a box of a cut scene as a region: half-open, so that adjacent boxes share no point.

    `offset` is that of the splats, which the region adds to their means.
    """
    return lambda means: box.holds(partition.in_axes(means.astype(np.float64), offset))


def out_of_bounds(partition: Partition, offset: Offset, boxes: Sequence[Box]) -> Region:
    """Return the region outside of all boxes of a list; all of space if the list is empty.

    `offset` is that of the splats, which the region adds to their means.
    """

    def holds(means: ply.FloatArray) -> Mask:
        places = partition.in_axes(means.astype(np.float64), offset)
        return ~np.logical_or.reduce([np.zeros(len(places), dtype=bool), *(box.holds(places) for box in boxes)])

    return holds


@dataclass(frozen=True)
class WrittenPart:
    """Record of one part of a merged splat: its rows in the merged file, and how many were read and removed.

    Gaussians that were read, and neither merged nor removed by cleaning, lay outside the region of the part.
    """

    name: str
    """Name of the patch whose splat the part is."""
    start: int
    """Index of the part's first Gaussian in the merged splat."""
    num_gaussians: int
    """Number of the part's Gaussians in the merged splat."""
    num_read: int
    """Number of Gaussians of the patch's own splat."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Number of Gaussians removed by cleaning, by the name of the rule; empty: not cleaned, or none in the region."""
    sha256: str = ""
    """SHA-256 of the part's rows in the merged splat, in hexadecimal digits; empty: not known."""


def damaged_parts(path: Path, parts: Iterable[WrittenPart]) -> tuple[str, ...]:
    """Return the names of the parts whose rows in a merged splat cannot be read or have another hash than recorded.

    In the order of `parts`; a part without a recorded hash counts as undamaged. Raises nothing for a missing file.
    """
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
"""Function of rows [N, properties], ordered as by `names_at`: a mask [N] of the rows to remove, by rule of cleaning.

No row is in the masks of two rules.
"""


@dataclass(frozen=True)
class MergePart:
    """One splat to be merged with others: its file, the region to keep, and the cleaning rules."""

    source: MergeSource
    region: Region
    """Part of space from which the Gaussians of this splat are merged; others are left out."""
    key: str
    """Hash of everything that decides which rows of the splat are merged; a later merge finds changes by this hash."""
    removed: Removed | None = None
    """Rules of cleaning; None: the part is not cleaned."""
    may_be_empty: bool = False
    """Whether the merge accepts that no Gaussian of the splat lies in its region; else that is an error."""


@dataclass(frozen=True)
class MergedSplat:
    """Result of a merge: the parts in the order of the file, and the degree of the merged splat's harmonics."""

    parts: tuple[WrittenPart, ...]
    sh_degree: int

    @property
    def num_gaussians(self) -> int:
        """Return the number of Gaussians of the merged splat."""
        return sum(part.num_gaussians for part in self.parts)


def merge_splats(target: Path, parts: Sequence[MergePart], offset: Offset, advance: Advance = unheard) -> MergedSplat:
    """Write the Gaussians of all parts that lie in their regions to one splat file, whole or not at all.

    Missing parent folders are made. On an error an earlier file stays unchanged. Rows are read in pieces, so a splat
    need not fit in memory. The harmonics have the highest degree of any part.

    Args:
        target: path of the merged splat.
        parts: the splats, at least one, in the order in which to write them.
        offset: offset that all parts have, for the header; zero: none is written.
        advance: is called with the number of Gaussians read so far and the total.

    Raises:
        OutputError: a splat cannot be read, is truncated, has changed or cannot be rendered; has another offset; or has
            nothing in its region (unless `may_be_empty`); some are antialiased and others not; or the file cannot be
            written.
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
    """Return whether all splats were trained with antialiasing; None if no header says whether.

    Headers that do not say are ignored. `names` are the patches, in the order of `headers`, for the message.

    Raises:
        OutputError: some splats are antialiased, and others are not.
    """
    named = list(zip(names, headers, strict=True))
    with_it, without = ([name for name, header in named if header.antialiased is one] for one in (True, False))
    if with_it and without:
        said = f"{list_some(with_it)} with training.antialiased: true, {list_some(without)} with false"
        fewer = with_it if len(with_it) < len(without) else without
        hint = f"Set the same for all in the YAML, then: splatbatch train {' '.join(fewer)}."
        raise OutputError(f"splats with and without antialiasing cannot be merged: {said}", hint)
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
            f"{part.source.name}: none of its {plural(header.num_gaussians, 'Gaussian')} lies in the patch's core",
            f"The splat was trained in other coordinates. Run: splatbatch retry {part.source.name} --force.",
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
    """Check that a merged splat may be written to `target`, the path of `--out`; nothing is written.

    Raises:
        ConfigError: `target` does not end in .ply, or is a folder.
        OutputError: `target` lies in the output folder, is a link, or exists and was not written by `merge`.
        OSError: `target` may not be looked up.
    """
    if target.suffix.lower() != SUFFIX or target.is_dir():
        raise ConfigError(f"--out {target}: not the name of a PLY file", "Name a file, as scene.ply.")
    check_outside(f"--out {target}", target.parent, output)
    if target.is_symlink() or (target.exists() and not ply.has_comment(target, MERGED)):
        raise OutputError(f"--out {target}: exists and was not written by merge", "Name another file, or remove it.")
