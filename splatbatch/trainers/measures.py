"""How good an external trainer says its splat is: figures from a JSON file or from its log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splatbatch.config.trainers.programs import Measures
from splatbatch.files import MIB, Record, read_regular
from splatbatch.json_text import parse
from splatbatch.store.records.attempt import Progress
from splatbatch.supervisor.external import Artifacts

MOST_FIGURES_BYTES = 32 * MIB
"""Of a program's figures: those of 10,000 photographs have 3 MiB. A larger file is left unread."""


def read_measures(measures: Measures, artifacts: Artifacts, globs: Sequence[str], lines: Iterable[Progress]) -> Record:
    """Return {"final": {"psnr": …}} as our own trainer's metrics have it; what is not there is left out."""
    figures = _from_log(measures, lines)
    newest = Artifacts(artifacts.folder, tuple(globs), artifacts.step, artifacts.last_step).newest()
    if newest is not None:
        tree = _tree(newest.path)
        found = {name: _figure(_at(tree, keys.split("."))) for name, keys in measures.keys.items()}
        figures |= {name: value for name, value in found.items() if value is not None}
    return {"final": figures, "measured_by": "the program itself"} if figures else {}


def _from_log(measures: Measures, lines: Iterable[Progress]) -> dict[str, float]:
    """Return the last figures that the supervisor read in the log."""
    told = ((name, line.figure(name)) for line in lines for name in measures.log)
    return {name: value for name, value in told if value is not None}


def _tree(path: Path) -> Any:
    try:
        return parse(read_regular(path, MOST_FIGURES_BYTES))
    except (OSError, ValueError, MemoryError):
        return None


def _at(tree: Any, keys: Sequence[str]) -> Any:
    """Follow names and numbers into mappings and lists; * is the only member, or the last of several."""
    for key in keys:
        if isinstance(tree, dict):
            tree = list(tree.values())[-1] if key == "*" and tree else tree.get(key)
        elif isinstance(tree, list) and tree:
            index = -1 if key == "*" else int(key) if key.isdecimal() else len(tree)
            tree = tree[index] if index < len(tree) else None
        else:
            return None
    return tree


def _figure(value: Any) -> float | None:
    try:
        figure = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return figure if math.isfinite(figure) else None
