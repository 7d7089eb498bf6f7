"""How the rows of splats of different writers become rows of one: properties by name, missing harmonics as zeros."""

from __future__ import annotations

import numpy as np

from splatbatch.splats.ply import CHANNELS, FloatArray, SplatHeader, degree_of, names_at, num_coefficients


class Columns:
    """Brings rows of a file into our order and to a degree; what a file has besides (normals) is left out."""

    def __init__(self, header: SplatHeader, degree: int) -> None:
        """Take rows of a file with this header to harmonics of this degree, which is at least the file's own.

        Raises:
            ValueError: it is the header of no splat.
        """
        own = degree_of(header)
        self._names = names_at(degree)
        self._is_as_wanted = header.properties == self._names
        place = {name: index for index, name in enumerate(header.properties)}
        pairs = [(index, place[source]) for index, source in enumerate(_sources(own, degree)) if source]
        self._to, self._from = (np.array(side, dtype=np.intp) for side in zip(*pairs, strict=True))

    def of(self, rows: FloatArray) -> FloatArray:
        """Return rows [N, properties of the file] as rows [N, properties of ours]: themselves if they are alike."""
        if self._is_as_wanted:
            return rows
        wanted = np.zeros((len(rows), len(self._names)), dtype=np.float32)
        wanted[:, self._to] = rows[:, self._from]
        return wanted


def _sources(own: int, degree: int) -> list[str]:
    """Return which property of a file of degree `own` each of ours is; empty where it has none.

    Harmonics lie channel by channel: more of them in each channel move those of the next.
    """
    few, many = num_coefficients(own), num_coefficients(degree)
    rest = [
        f"f_rest_{channel * few + index}" if index < few else "" for channel in range(CHANNELS) for index in range(many)
    ]
    names = list(names_at(degree))
    first = names.index("f_rest_0") if rest else 0
    names[first : first + len(rest)] = rest
    return names
