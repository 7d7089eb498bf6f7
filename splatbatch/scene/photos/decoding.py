"""Photographs decoded to the last pixel, by several threads: the only proof that they can be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from splatbatch.scene.photos.folders import MASK_COUNTS
from splatbatch.scene.photos.other_formats import decode_problem
from splatbatch.scene.photos.pixels import opened_photograph

_AT_ONCE = 16  # files per task


@dataclass(frozen=True)
class Undecodable:
    """A photograph whose pixels cannot be decoded, and why."""

    path: str
    what: str


def undecodable(photographs: Iterable[str | Path], threads: int | None = None) -> tuple[Undecodable, ...]:
    """Return the photographs that cannot be decoded, in their order.

    Pillow lets go of the interpreter's lock while it decodes, so that threads use all cores: 10 to 20 ms per
    megapixel of JPEG and core. A file that is not there counts, too.

    Args:
        photographs: paths; each is decoded once.
        threads: how many decode at a time; None for as many as there are cores.
    """
    paths = list(dict.fromkeys(map(str, photographs)))
    chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    with ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="decoding") as pool:
        return tuple(chain.from_iterable(pool.map(lambda chunk: list(_faults(chunk)), chunks)))


def _faults(paths: list[str]) -> Iterator[Undecodable]:
    for path in paths:
        if what := decode_problem(Path(path)):
            yield Undecodable(path, what)


def is_black(path: Path) -> bool:
    """Return whether no pixel of a mask counts; a mask that cannot be decoded is not black."""
    try:
        with opened_photograph(path) as image:
            return int(image.convert("L").getextrema()[1]) < MASK_COUNTS  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
        return False
