"""The merged splat: part by part in the order given, written aside, then renamed; the same bytes for the same parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from splatbatch.config import Offset
from splatbatch.errors import OutputError
from splatbatch.files import write_whole
from splatbatch.plain_text import counted
from splatbatch.splats.export import Source
from splatbatch.splats.merge.columns import Columns
from splatbatch.splats.merge.ranges import Earlier, Written
from splatbatch.splats.merge.regions import Mask, Region
from splatbatch.splats.merge.rows import header_of, read_rows
from splatbatch.splats.ply import FloatArray, SplatHeader, degree_of, encode_header, names_at, offset_comments

MERGED = "splatbatch merge of"
"""Begins the comment in the header of a splat that was merged."""
MOST_DIGITS = 20
"""Of a number of Gaussians: the header has its length before anybody knows the number."""


class Rules(Protocol):
    """What cleaning removes of the rows that lie in a region."""

    def removed(self, rows: FloatArray) -> Mapping[str, Mask]:
        """Return by rule which rows [N, properties of ours] go; none by two rules."""
        ...


@dataclass(frozen=True)
class Part:
    """A splat, and what of it the merged one has."""

    source: Source
    region: Region
    key: str
    """All that decides which rows it has: what an earlier merge has under the same key is taken over."""
    rules: Rules | None = None
    may_be_empty: bool = False
    """Nothing of it need lie in its region."""


@dataclass(frozen=True)
class Merged:
    """What a merge has written."""

    parts: tuple[Written, ...]
    sh_degree: int

    @property
    def num_gaussians(self) -> int:
        """Return how many there are in all."""
        return sum(part.num_gaussians for part in self.parts)


def merge_splats(target: Path, parts: Sequence[Part], offset: Offset, earlier: Earlier | None = None) -> Merged:
    """Write one splat of what parts have in their regions; whole, or as it was before.

    Args:
        target: where it goes.
        parts: in their order in the file.
        offset: of the frame that all of them lie in.
        earlier: the merged splat that is there, whose rows are taken over where their key is the same.

    Raises:
        OutputError: a splat cannot be read, is not whole or sound, lies in another frame, has nothing in its region; or
            the file cannot be written.
    """
    headers = [header_of(part.source, offset) for part in parts]
    degree = max(map(degree_of, headers))
    kept = earlier if earlier and earlier.fits(degree) else None
    found: list[Written] = []

    def write(file: BinaryIO) -> None:
        file.write(_header(0, degree, offset, len(parts)))
        for part, header in zip(parts, headers, strict=True):
            start = sum(one.num_gaussians for one in found)
            known = kept.parts.get(part.key) if kept else None
            if kept and known and kept.holds(known):
                kept.copy(known, file)
                found.append(replace(known, start=start, is_taken_over=True))
            else:
                found.append(replace(_write(part, header, degree, file), start=start))
        file.seek(0)
        file.write(_header(sum(one.num_gaussians for one in found), degree, offset, len(parts)))

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, write)
    except OSError as error:
        hint = "Free space, or see to its permissions; what was there is there still."
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})", hint) from error
    return Merged(tuple(found), degree)


def _write(part: Part, header: SplatHeader, degree: int, file: BinaryIO) -> Written:
    """Write what a part has in its region.

    Raises:
        OutputError: that is nothing, or it is not whole and sound.
    """
    columns, removed, num_inside = Columns(header, degree), Counter[str](), 0
    digest = hashlib.sha256()
    for piece in read_rows(part.source, header):
        rows = columns.of(piece)
        inside = part.region.holds(rows[:, :3])
        rows = rows if inside.all() else rows[inside]
        num_inside += len(rows)
        if part.rules is not None and len(rows):
            rows = _cleaned(rows, part.rules, removed)
        digest.update(rows.data)
        file.write(rows.data)
    if not num_inside and not part.may_be_empty:
        raise OutputError(
            f"{part.source.name}: none of its {counted(header.num_gaussians, 'Gaussian')} lies in its core",
            f"It was trained in another frame: train it again, splatbatch retry {part.source.name} --force.",
        )
    num_left = num_inside - removed.total()
    return Written(part.source.name, 0, num_left, header.num_gaussians, dict(removed), digest.hexdigest())


def _cleaned(rows: FloatArray, rules: Rules, removed: Counter[str]) -> FloatArray:
    gone = np.zeros(len(rows), dtype=bool)
    for rule, mask in rules.removed(rows).items():
        removed[rule] += int(np.count_nonzero(mask))
        gone |= mask
    return rows[~gone] if gone.any() else rows


def _header(num_gaussians: int, degree: int, offset: Offset, num_parts: int) -> bytes:
    """Return the header of a merged splat: of the same length whatever the number of Gaussians is."""
    filler = "-" * (MOST_DIGITS - len(str(num_gaussians)))
    comments = (f"{MERGED} {counted(num_parts, 'part')}", *offset_comments(offset), filler)
    return encode_header(num_gaussians, names_at(degree), comments)
