"""Files that come with the program: example configurations, presets of trainers, templates of engines, the quarry."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

Kind = Literal["trainers", "engines", "examples", "quarry"]
IN_CHECKOUT: dict[Kind, str] = {
    "trainers": "configs/trainers",
    "engines": "configs/engines",
    "examples": "configs",
    "quarry": "examples/quarry",
}
CHECKOUT = Path(__file__).parents[2]


@cache
def shipped(kind: Kind) -> Path | None:
    """Return the folder of such files: in a checkout, else where the wheel put them; None where they were left out."""
    folder = CHECKOUT / IN_CHECKOUT[kind]
    if (CHECKOUT / "pyproject.toml").is_file() and folder.is_dir():
        return folder
    return _installed(f"share/splatbatch/{kind}/")


def _installed(place: str) -> Path | None:
    from importlib.metadata import PackageNotFoundError, files

    try:
        known = files("splatbatch") or ()
    except PackageNotFoundError:
        return None
    for file in known:  # wherever pip has put it: a venv, --user, --target
        before, found, _ = str(file).partition(place)
        if found:
            return Path(str(file.locate())).parents[len(Path(str(file)).parts) - len(Path(before + place).parts) - 1]
    return None
