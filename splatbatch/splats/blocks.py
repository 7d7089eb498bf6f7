"""A splat file divided into blocks of space, so that a view can be rendered without the whole file in memory.

The file is read twice, some thousand Gaussians at a time: first a sample to place the cuts, then every row to assign
each Gaussian to a block. Two bytes for each Gaussian are kept in memory. The file is not mapped into memory, since
reading a mapped file that another process truncates ends this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from splatbatch.files import open_regular
from splatbatch.splats.ply import FloatArray, SplatHeader, degree_of, names_at, read_header

ROWS_AT_ONCE = 1 << 15
"""Number of rows (Gaussians) that are read at once, about 8 MB, so that a larger splat needs no more memory."""
SAMPLED = (256, 256)
"""Size of a sample of a splat file: the number of stretches (runs of consecutive rows), and of rows in each."""
MOST_PER_BLOCK = 1 << 19
"""Approximate largest number of Gaussians in a block; the cuts are placed by a sample, so a block may have more."""
SIGMAS = 3.5
"""Extent of a Gaussian in standard deviations, rounded up: farther out, the alpha of an opaque one is below 1/255."""
MEANS = slice(0, 3)
Ids = npt.NDArray[np.int64]
_PLACED = ("x", "y", "z", "scale_0", "scale_1", "scale_2")


@dataclass(frozen=True)
class BlockTree:
    """Binary tree of axis-aligned cuts that divides space into 2^depth leaves, one block each.

    Stored as a heap: the halves of node i are nodes 2i + 1 and 2i + 2. A tree of depth 0 has no cut and one leaf.
    """

    axis: Ids  # [2^depth - 1], axis of each cut
    at: FloatArray  # [2^depth - 1], coordinate of each cut along its axis

    def leaf_of(self, means: FloatArray) -> Ids:
        """Return the index, from 0, of the leaf in which each mean [N, 3] lies, [N].

        A mean on a cut is in the upper half.
        """
        node, rows = np.zeros(len(means), dtype=np.int64), np.arange(len(means))
        while len(self.axis) and len(node) and node[0] < len(self.axis):  # all leaves lie equally deep
            node = 2 * node + 1 + (means[rows, self.axis[node]] >= self.at[node])
        return node - len(self.axis)


@dataclass(frozen=True)
class Blocks:
    """Index of a splat file: the block of each row, and the bounds of each block with the extent of its Gaussians.

    `len()` is the number of blocks. The last block holds the large Gaussians, wherever they lie; blocks may be empty.
    """

    path: Path
    """Path of the splat file, whose rows are read again by `rows`."""
    header: SplatHeader
    columns: tuple[str, ...]
    """Names of the properties of a row as `rows` returns it."""
    of_row: npt.NDArray[np.uint16]  # [N]
    counts: Ids  # [B]
    lower: FloatArray  # [B, 3], bounds of each block, with the extent of its Gaussians; infinite if empty
    upper: FloatArray  # [B, 3]
    first: Ids  # [B], first row of the first piece read with rows of the block; the number of all rows if empty
    last: Ids  # [B], the row after the last such piece; 0 if empty

    def __len__(self) -> int:
        return len(self.counts)

    def rows(self, wanted: Sequence[int]) -> dict[int, FloatArray]:
        """Return the rows of some blocks, by the block's index, each [n, columns] in the order of the file.

        The file is read once, from the first to the last piece of `ROWS_AT_ONCE` with rows of these blocks.

        Args:
            wanted: indices of blocks, at least one.

        Raises:
            ValueError: the file has become shorter than its header says, or `wanted` is empty.
            OSError: the file cannot be read.
        """
        found = {one: np.empty((int(self.counts[one]), len(self.columns)), dtype=np.float32) for one in wanted}
        filled = dict.fromkeys(wanted, 0)
        begin, end = int(min(self.first[list(wanted)])), int(max(self.last[list(wanted)]))
        for start, rows in read_rows(self.path, self.header, self.columns, (begin, end)):
            of_row = self.of_row[start : start + len(rows)]
            for one in np.intersect1d(of_row, wanted).tolist():
                here = rows[of_row == one]
                found[one][filled[one] : filled[one] + len(here)] = here
                filled[one] += len(here)
        return found


def index_blocks(path: Path, most: int = MOST_PER_BLOCK) -> Blocks:
    """Divide a splat file into blocks of about `most` Gaussians at most; return the index, without the Gaussians.

    Gaussians that reach farther than half the median width of a block are large; all of them are in the last block.

    Raises:
        ValueError: the file is no splat, or is truncated.
        OSError: the file cannot be read.
    """
    header = read_header(path)
    columns = names_at(degree_of(header))
    sample = sample_rows(path, _PLACED)
    depth = max(0, int(np.ceil(np.log2(max(1, header.num_gaussians) / most))))
    cuts = cut_in_halves(sample, depth)
    # a Gaussian is large if it reaches farther than half the median width of a block
    leaves = cuts.leaf_of(sample[:, MEANS]) if len(sample) else np.zeros(0, dtype=np.int64)
    widths = [float(np.ptp(sample[leaves == one, MEANS], axis=0).max()) for one in np.unique(leaves).tolist()]
    reach = float(np.median(widths)) / 2 if widths and max(widths) > 0 else float("inf")
    num = 2**depth + 1  # the last block is that of the large Gaussians
    of_row = np.zeros(header.num_gaussians, dtype=np.uint16)
    lower, upper = np.full((num, 3), np.inf, np.float32), np.full((num, 3), -np.inf, np.float32)
    first, last = np.full(num, header.num_gaussians), np.zeros(num, dtype=np.int64)
    for start, rows in read_rows(path, header, _PLACED):
        radius = reach_of(rows[:, 3:])
        block = np.where(radius > reach, num - 1, cuts.leaf_of(rows[:, MEANS]))
        of_row[start : start + len(rows)] = block
        for one in np.unique(block).tolist():
            own, means = radius[block == one, None], rows[block == one, MEANS]
            lower[one] = np.minimum(lower[one], (means - own).min(axis=0))
            upper[one] = np.maximum(upper[one], (means + own).max(axis=0))
            first[one], last[one] = min(first[one], start), start + len(rows)
    return Blocks(path, header, columns, of_row, np.bincount(of_row, minlength=num), lower, upper, first, last)


def read_rows(
    path: Path, header: SplatHeader, columns: Sequence[str] = (), between: tuple[int, int] | None = None
) -> Iterator[tuple[int, FloatArray]]:
    """Yield the rows of a splat file in pieces of at most `ROWS_AT_ONCE`: the index of the first row, and [n, columns].

    Args:
        path: the file.
        header: its header, from `read_header`.
        columns: names of the properties to return, in that order; empty: all, in the order of the file.
        between: first index and index after the last of the rows to return; None: all rows.

    Raises:
        ValueError: a property of `columns` is missing, or the file ends before the last row that is wanted.
        OSError: the file cannot be read.
    """
    if missing := [name for name in columns if name not in header.properties]:
        raise ValueError(f"the splat file has no property {missing[0]}")
    width, picked = len(header.properties), [header.properties.index(name) for name in columns]
    begin, end = between or (0, header.num_gaussians)
    with open_regular(path) as file:
        file.seek(header.header_bytes + 4 * width * begin)
        for start in range(begin, end, ROWS_AT_ONCE):
            num = min(ROWS_AT_ONCE, end - start)
            data = file.read(4 * width * num)
            if len(data) < 4 * width * num:
                raise ValueError(f"cut: the file ends before Gaussian {start + num} of {header.num_gaussians}")
            rows = np.frombuffer(data, dtype="<f4").reshape(num, width)
            yield start, rows[:, picked] if columns else rows


def reach_of(scales: FloatArray) -> FloatArray:
    """Return the radius around its mean within which each Gaussian is visible, [N]: `SIGMAS` of its largest scale.

    `scales` are logarithms, [N, 3]; the radius is a length in the unit of the splat.
    """
    return np.float32(SIGMAS) * np.exp(scales.max(axis=1))


def sample_rows(
    path: Path,
    columns: Sequence[str] = ("x", "y", "z"),
    between: tuple[int, int] | None = None,
    stretches: tuple[int, int] = SAMPLED,
) -> FloatArray:
    """Return properties of a sample of the Gaussians of a splat file, [n, columns], evenly spread over the file.

    A file with fewer Gaussians than the sample is returned whole; stretches may then overlap and rows occur twice.

    Args:
        path: the file.
        columns: names of the properties.
        between: first index and index after the last of the rows to sample from; None: the whole file.
        stretches: number of runs of consecutive rows in the sample, and number of rows in each.

    Raises:
        ValueError: the file is no splat, is truncated, or lacks a property of `columns`.
        OSError: the file cannot be read.
    """
    header, (number, num_rows) = read_header(path), stretches
    first, last = between or (0, header.num_gaussians)
    starts = np.linspace(first, max(first, last - num_rows), number).astype(int).tolist()
    pairs = dict.fromkeys((start, min(start + num_rows, last)) for start in starts)
    found = [rows for pair in pairs for _, rows in read_rows(path, header, columns, pair)]
    return np.concatenate(found) if found else np.zeros((0, len(columns)), np.float32)


def cut_in_halves(sample: FloatArray, depth: int) -> BlockTree:
    """Return a tree of 2^depth - 1 cuts at the medians of sampled means, each across the longest side of its part.

    The side is that between the 5th and the 95th percentile.

    Args:
        sample: [n, 3 or more], with x, y, z first; n may be 0, then all cuts are at x = 0.
        depth: number of cuts between the whole and a leaf; 0: no cut.
    """
    axis, at = np.zeros(2**depth - 1, dtype=np.int64), np.zeros(2**depth - 1, dtype=np.float32)
    parts = [sample[:, MEANS]]
    for node in range(2**depth - 1):
        part = parts[node]
        if len(part):
            low, high = np.percentile(part, (5, 95), axis=0)
            axis[node] = int((high - low).argmax())
            at[node] = np.median(part[:, axis[node]])
        above = part[:, axis[node]] >= at[node]
        parts += [part[~above], part[above]]
    return BlockTree(axis, at)
