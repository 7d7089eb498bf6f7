"""Files that come with the program: example configurations, presets of trainers, templates of engines, the quarry."""

from __future__ import annotations

import site
import sys
from functools import cache
from pathlib import Path
from typing import Literal

PresetKind = Literal["trainers", "engines", "examples", "quarry"]
IN_CHECKOUT: dict[PresetKind, str] = {
    "trainers": "configs/trainers",
    "engines": "configs/engines",
    "examples": "configs",
    "quarry": "examples/quarry",
}
CHECKOUT = Path(__file__).parents[2]


@cache
def shipped(kind: PresetKind) -> Path | None:
    """Return the folder of such files: in a checkout, else where the wheel put them; None where they were left out."""
    folder = CHECKOUT / IN_CHECKOUT[kind]
    if (CHECKOUT / "pyproject.toml").is_file() and folder.is_dir():
        return folder
    return _installed(f"share/splatbatch/{kind}")


def _installed(place: str) -> Path | None:
    """Return where pip has put it: in a venv, with --user, with --target."""
    for prefix in (sys.prefix, site.getuserbase(), CHECKOUT):
        if (found := Path(prefix, place)).is_dir():
            return found
    return None
