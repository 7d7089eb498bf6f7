"""A splat file divided into blocks of space, so that a view can be rendered without the whole file in memory.

The file is read twice, a few thousand Gaussians at a time: a sample of it to place the cuts, all of it to assign each
Gaussian to a block. Two bytes for each Gaussian are kept. The file is read, not mapped: a mapped file that is truncated
in the meantime ends the process.
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
"""Number of rows that are read at once, of 8 MB at most: no reader needs more memory for a larger splat."""
SAMPLED = (256, 256)
"""Number of stretches of the file in the sample, and of rows in each."""
MOST_PER_BLOCK = 1 << 19
"""Number of Gaussians that a block has at most, approximately."""
SIGMAS = 3.5
"""Extent of a Gaussian in standard deviations, rounded up: beyond it, the alpha of an opaque one is below 1/255."""
MEANS = slice(0, 3)
Ids = npt.NDArray[np.int64]
_PLACED = ("x", "y", "z", "scale_0", "scale_1", "scale_2")


@dataclass(frozen=True)
class BlockTree:
    """Binary tree of cuts through space, stored as a heap: the halves of node i are nodes 2i + 1 and 2i + 2."""

    axis: Ids  # [2^depth - 1], axis of each cut
    at: FloatArray  # [2^depth - 1], coordinate of each cut along its axis

    def leaf_of(self, means: FloatArray) -> Ids:
        """Return the index of the leaf in which each mean [N, 3] lies, [N]."""
        node, rows = np.zeros(len(means), dtype=np.int64), np.arange(len(means))
        while len(self.axis) and len(node) and node[0] < len(self.axis):  # all leaves lie equally deep
            node = 2 * node + 1 + (means[rows, self.axis[node]] >= self.at[node])
        return node - len(self.axis)


@dataclass(frozen=True)
class Blocks:
    """Index of a splat file: the block of each row, and the bounds of each block with the extent of its Gaussians."""

    path: Path
    header: SplatHeader
    columns: tuple[str, ...]
    """Names of the properties of a row as `rows` returns it."""
    of_row: npt.NDArray[np.uint16]  # [N]
    counts: Ids  # [B]
    lower: FloatArray  # [B, 3], bounds of each block, with the extent of its Gaussians; infinite if empty
    upper: FloatArray  # [B, 3]
    first: Ids  # [B], the first row of each block
    last: Ids  # [B], the row after its last

    def __len__(self) -> int:
        return len(self.counts)

    def rows(self, wanted: Sequence[int]) -> dict[int, FloatArray]:
        """Return the rows of some blocks, each [n, columns], in the order of the file, which is read once.

        Raises:
            ValueError: the file has become shorter.
            OSError: it cannot be read.
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
    """Divide a splat file into blocks of about `most` Gaussians at most; large Gaussians are in a block of their own.

    Raises:
        ValueError: it is no splat, or cut.
        OSError: it cannot be read.
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
    """Yield the rows of a splat file, a few thousand at a time: the index of the first one, and [n, columns].

    Without `columns` rows have all properties; `between` limits them to a range of indices.

    Raises:
        ValueError: a property is missing, or the file ends before its last row.
        OSError: it cannot be read.
    """
    if missing := [name for name in columns if name not in header.properties]:
        raise ValueError(f"no property {missing[0]}")
    width, picked = len(header.properties), [header.properties.index(name) for name in columns]
    begin, end = between or (0, header.num_gaussians)
    with open_regular(path) as file:
        file.seek(header.header_bytes + 4 * width * begin)
        for start in range(begin, end, ROWS_AT_ONCE):
            num = min(ROWS_AT_ONCE, end - start)
            data = file.read(4 * width * num)
            if len(data) < 4 * width * num:
                raise ValueError(f"cut: it ends before Gaussian {start + num} of {header.num_gaussians}")
            rows = np.frombuffer(data, dtype="<f4").reshape(num, width)
            yield start, rows[:, picked] if columns else rows


def reach_of(scales: FloatArray) -> FloatArray:
    """Return the radius around their means in which Gaussians of scales [N, 3], logarithms, are visible, [N]."""
    return np.float32(SIGMAS) * np.exp(scales.max(axis=1))


def sample_rows(
    path: Path,
    columns: Sequence[str] = ("x", "y", "z"),
    between: tuple[int, int] | None = None,
    stretches: tuple[int, int] = SAMPLED,
) -> FloatArray:
    """Return properties of a sample of the Gaussians of a splat file, [n, columns], spread over the file.

    Args:
        path: the file.
        columns: names of the properties.
        between: range of indices that the sample is limited to; None: the whole file.
        stretches: number of stretches of the file in the sample, and of rows in each.

    Raises:
        ValueError: it is no splat, or cut.
        OSError: it cannot be read.
    """
    header, (number, num_rows) = read_header(path), stretches
    first, last = between or (0, header.num_gaussians)
    starts = np.linspace(first, max(first, last - num_rows), number).astype(int).tolist()
    pairs = dict.fromkeys((start, min(start + num_rows, last)) for start in starts)
    found = [rows for pair in pairs for _, rows in read_rows(path, header, columns, pair)]
    return np.concatenate(found) if found else np.zeros((0, len(columns)), np.float32)


def cut_in_halves(sample: FloatArray, depth: int) -> BlockTree:
    """Return a tree of cuts at the medians of a sample [n, 3 or more], each across the longest side of its part."""
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
