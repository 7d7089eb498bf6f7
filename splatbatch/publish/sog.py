"""Writes SOG 2, PlayCanvas' packed splat format: a zip of WebP images. Takes seconds; splat-transform takes minutes.

The format: developer.playcanvas.com/user-manual/gaussian-splatting/formats/sog. Positions have 16 bits on a
logarithmic scale, rotations 8 bits for the three smaller components, sizes and colours one of 256 values each. How a
colour varies with direction is one of a palette of rows, whose numbers are one of 256 values.

The palette is found by k-means twice, one within the clusters of the other (a tree of two levels; Nistér and Stewénius
2006, "Scalable recognition with a vocabulary tree"): N sqrt(K) distances instead of N K.
"""

from __future__ import annotations

import heapq
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from splatbatch import __version__
from splatbatch.files import write_whole
from splatbatch.publish.tiles.tree import along_curve, some
from splatbatch.splats import Gaussians
from splatbatch.splats.ply import FloatArray

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

VALUES = 256
"""Number of values in a codebook, so that an index of it fits into a byte."""
FEWEST_ROWS, MOST_ROWS = 1024, 65_536
"""Limits of a palette's intended number of rows: between them, the largest power of two up to the number of Gaussians.

A palette may have fewer; at most FEWEST_ROWS Gaussians have a row each. PlayCanvas' own packer takes as many.
A row is named by 16 bits, which tell at most MOST_ROWS apart.
"""
COLUMNS = 64
"""Number of palette rows side by side in a row of pixels of the palette's image."""
ROUNDS = 8
"""Iterations of k-means for a palette. 16 would lower the error of the colours by 1 % (splat of docs/benchmarks.md)."""
MOST_ROUNDS_IN_A_LINE = 2000
"""Most iterations of k-means in one dimension, for a codebook; an iteration takes 50 microseconds."""
AT_ONCE = 1 << 14
"""Most rows that `nearest` compares with all centres in one matrix product, which bounds its memory."""


def write_sog(path: Path, gaussians: Gaussians, *, is_antialiased: bool = False) -> None:
    """Write Gaussians as a .sog file, whole or not at all; an earlier file is replaced.

    In the file, Gaussians are ordered along a Morton curve, so that neighbours in space are packed together.

    Args:
        path: path of the file.
        gaussians: at least one Gaussian, in the axes that the file shall have.
        is_antialiased: whether the splat is to be drawn antialiased, which the file tells its readers.

    Raises:
        OSError: the file cannot be written.
    """
    ordered = some(gaussians, along_curve(gaussians.means))
    meta: dict[str, Any] = {
        "version": 2,
        "asset": {"generator": f"splatbatch {__version__}"},
        "count": len(ordered),
        **({"model": "antialiased"} if is_antialiased else {}),  # as splat-transform 3.7 writes and reads it
    }
    pictures = {}

    def add(name: str, pixels: Bytes, columns: int | None = None) -> str:
        pictures[f"{name}.webp"] = as_webp(pixels, columns or columns_of(len(pixels)))
        return f"{name}.webp"

    low, high, (mins, maxs) = means_of(ordered.means)
    meta["means"] = {"mins": mins, "maxs": maxs, "files": [add("means_l", low), add("means_u", high)]}
    codebook, labels = codebook_of(ordered.scales)
    meta["scales"] = {"codebook": codebook, "files": [add("scales", opaque(labels))]}
    meta["quats"] = {"files": [add("quats", quats_of(ordered.quats))]}
    codebook, labels = codebook_of(ordered.sh0)
    visible = np.rint(255 / (1 + np.exp(-ordered.opacities.astype(np.float64)))).astype(np.uint8)
    meta["sh0"] = {"codebook": codebook, "files": [add("sh0", np.column_stack([labels, visible]))]}
    if num_harmonics := ordered.shN.shape[1]:
        rows, of_row = palette_of(ordered.shN.reshape(len(ordered), -1))
        codebook, labels = codebook_of(rows)
        triples = np.zeros((-(-len(rows) // COLUMNS) * COLUMNS * num_harmonics, 3), np.uint8)
        triples[: len(rows) * num_harmonics] = labels.reshape(-1, 3)
        halves = np.column_stack([of_row & 255, of_row >> 8, np.zeros_like(of_row)]).astype(np.uint8)
        files = [
            add("shN_centroids", opaque(triples), COLUMNS * num_harmonics),
            add("shN_labels", opaque(halves)),
        ]
        bands = math.isqrt(num_harmonics + 1) - 1
        meta["shN"] = {"count": len(rows), "bands": bands, "codebook": codebook, "files": files}
    write_whole(path, lambda file: file.write(zipped({"meta.json": json.dumps(meta).encode(), **pictures})))


def columns_of(num: int) -> int:
    """Return the width in pixels of an image with a pixel per Gaussian, `num` in all: about square, a multiple of 4."""
    return max(4, 4 * math.ceil(math.sqrt(num) / 4))


def opaque(colors: Bytes) -> Bytes:
    """Return colours [N, 3] with an alpha of 255 appended, [N, 4]."""
    return np.column_stack([colors, np.full(len(colors), 255, np.uint8)])


def as_webp(pixels: Bytes, columns: int) -> bytes:
    """Return pixels as the content of a lossless WebP file, which keeps the colours of transparent pixels, too.

    Args:
        pixels: R, G, B and alpha of each pixel, [N, 4], row by row; the last row is filled up with zeros.
        columns: width of the image in pixels.
    """
    padded = np.zeros((-(-len(pixels) // columns) * columns, 4), np.uint8)
    padded[: len(pixels)] = pixels
    found = io.BytesIO()
    picture = Image.fromarray(padded.reshape(-1, columns, 4), "RGBA")
    picture.save(found, "WEBP", lossless=True, exact=True, quality=75, method=4)
    return found.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    """Return the content of an uncompressed zip file; the same files in the same order always give the same bytes.

    Args:
        files: content of each file, by its name in the zip.
    """
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return found.getvalue()


def means_of(means: FloatArray) -> tuple[Bytes, Bytes, tuple[list[float], list[float]]]:
    """Return positions [N, 3] as 16-bit steps on a logarithmic scale, sign(x) log(1 + |x|).

    Returns:
        The low bytes and the high bytes of the steps as opaque pixels, [N, 4] each, in the order of `means`; then the
        least and the largest logarithm on each axis, to which the steps 0 and 65,535 belong.
    """
    logs = np.sign(means) * np.log1p(np.abs(means.astype(np.float64)))
    low, high = logs.min(axis=0), logs.max(axis=0)
    steps = np.rint((logs - low) / np.where(high > low, high - low, 1) * 65_535).astype(np.uint16)
    return (
        opaque((steps & 255).astype(np.uint8)),
        opaque((steps >> 8).astype(np.uint8)),
        (low.tolist(), high.tolist()),
    )


def quats_of(quats: FloatArray) -> Bytes:
    """Return rotations w x y z, [N, 4], as bytes [N, 4]: the three smaller components, then 252 + index of the largest.

    Quaternions need not have length 1; those of length 0 become the identity.
    """
    length = np.linalg.norm(quats, axis=1, keepdims=True)
    unit = np.where(length > 0, quats / np.maximum(length, 1e-30), [1.0, 0.0, 0.0, 0.0])
    largest = np.abs(unit).argmax(axis=1)
    unit = unit * np.where(unit[np.arange(len(unit)), largest] < 0, -1, 1)[:, None]  # a rotation has two signs
    others = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])[largest]
    smaller = np.take_along_axis(unit, others, axis=1) * math.sqrt(2)  # the smaller components are at most 1 / sqrt(2)
    packed = np.rint(255 * np.clip(smaller / 2 + 0.5, 0, 1))
    return np.column_stack([packed, 252 + largest]).astype(np.uint8)


def codebook_of(values: npt.NDArray[Any]) -> tuple[list[float], Bytes]:
    """Return a codebook of 256 values in ascending order, and the index of the nearest for each of `values`, [N, C].

    There must be at least one value. With fewer than 256 clusters the last value of the codebook repeats. The method is
    k-means in one dimension, where clusters are runs of the sorted values. It starts with one run; the run with the
    largest error is split at its mean until there are 256. Other starts end with errors of 1.3 times as much.
    """
    ordered = np.sort(values.astype(np.float64), axis=None)
    sums, squares = (np.concatenate([[0.0], np.cumsum(one)]) for one in (ordered, ordered**2))

    def error(first: int, last: int) -> float:
        return float(squares[last] - squares[first] - (sums[last] - sums[first]) ** 2 / (last - first))

    runs = [(-error(0, len(ordered)), 0, len(ordered))]
    while len(runs) < VALUES and -runs[0][0] > 0:
        _, first, last = heapq.heappop(runs)
        mean = (sums[last] - sums[first]) / (last - first)
        middle = min(max(int(np.searchsorted(ordered, mean)), first + 1), last - 1)
        for one in ((first, middle), (middle, last)):
            heapq.heappush(runs, (-error(*one) if one[1] - one[0] > 1 else 0.0, *one))
    edges = np.array(sorted({0, *(last for _, _, last in runs)}))
    for _ in range(MOST_ROUNDS_IN_A_LINE):
        centres = np.diff(sums[edges]) / np.diff(edges)
        before, edges = edges, np.unique([0, *np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2), len(ordered)])
        if np.array_equal(edges, before):
            break
    labels = np.searchsorted((centres[1:] + centres[:-1]) / 2, values.astype(np.float64))
    return [*centres.tolist(), *[float(centres[-1])] * (VALUES - len(centres))], labels.astype(np.uint8)


def palette_of(rows: FloatArray) -> tuple[FloatArray, Labels]:
    """Return a palette [K, C] for rows of colour coefficients [N, C], and the index of a palette row for each, [N].

    The index is of the nearest palette row within a cluster of the rows. If the palette may have as many rows as there
    are, it is the rows themselves. The result is the same on each call.
    """
    wanted = 1 << int(math.log2(max(1, len(rows))))
    wanted = min(MOST_ROWS, max(FEWEST_ROWS, wanted))
    if len(rows) <= wanted:
        return rows, np.arange(len(rows))
    random = np.random.default_rng(0)
    first = nearest(rows, centres_of(rows, math.isqrt(wanted), random))
    errors = np.zeros(first.max() + 1)
    np.add.at(errors, first, np.linalg.norm(rows - means_in(rows, first), axis=1))
    # a centre for each cluster, and more where rows differ more
    shares = 1 + (wanted - len(errors)) * errors / max(float(errors.sum()), 1e-30)
    palette = []
    labels, num = np.empty(len(rows), np.int64), 0
    for cluster in range(len(errors)):
        inside = np.flatnonzero(first == cluster)
        if not len(inside):
            continue
        centres = centres_of(rows[inside], int(shares[cluster]), random)
        labels[inside] = num + nearest(rows[inside], centres)
        palette.append(centres)
        num += len(centres)
    return np.concatenate(palette), labels


def means_in(rows: FloatArray, labels: Labels) -> FloatArray:
    """Return for each row the mean of all rows with the same label, [N, C].

    Args:
        rows: rows [N, C], at least one.
        labels: number of the cluster of each row, [N], from 0.
    """
    sums = np.zeros((labels.max() + 1, rows.shape[1]))
    np.add.at(sums, labels, rows)
    found: FloatArray = (sums / np.maximum(np.bincount(labels), 1)[:, None]).astype(np.float32)[labels]
    return found


def centres_of(rows: FloatArray, num: int, random: np.random.Generator) -> FloatArray:
    """Return at most `num` centres of rows [N, C], as [K, C], by k-means (Lloyd 1982).

    k-means starts at rows chosen by `random` and takes ROUNDS iterations. At most `num` rows are returned as they are.
    """
    if len(rows) <= num:
        return rows
    centres = rows[random.choice(len(rows), num, replace=False)]
    for _ in range(ROUNDS):
        labels = nearest(rows, centres)
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        kept = labels[order][starts]
        sums = np.add.reduceat(rows[order].astype(np.float64), starts, axis=0)
        centres = centres.copy()
        centres[kept] = sums / np.diff(np.append(starts, len(rows)))[:, None]
    return centres


def nearest(rows: FloatArray, centres: FloatArray) -> Labels:
    """Return the index of the nearest centre for each row, [N], by Euclidean distance.

    Args:
        rows: rows [N, C], at least one.
        centres: centres [K, C], at least one.
    """
    halves = (centres.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    found = [
        (rows[start : start + AT_ONCE] @ centres.T - halves).argmax(axis=1) for start in range(0, len(rows), AT_ONCE)
    ]
    labels: Labels = np.concatenate(found)
    return labels
