"""Folders of the shipped data files: example configurations, trainer presets, engine templates, the quarry scene."""

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
    """Return the absolute folder of one kind of shipped files, in a checkout or as the wheel installed it.

    None: neither place has the folder.
    """
    folder = CHECKOUT / IN_CHECKOUT[kind]
    if (CHECKOUT / "pyproject.toml").is_file() and folder.is_dir():
        return folder
    prefixes = (sys.prefix, site.getuserbase(), CHECKOUT)  # of a venv, with --user, with --target
    installed = (Path(prefix, "share/splatbatch", kind) for prefix in prefixes)
    return next((one for one in installed if one.is_dir()), None)
