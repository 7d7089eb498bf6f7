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
    prefixes = (sys.prefix, site.getuserbase(), CHECKOUT)  # of a venv, with --user, with --target
    installed = (Path(prefix, "share/splatbatch", kind) for prefix in prefixes)
    return next((one for one in installed if one.is_dir()), None)
