"""What the report says of how good a splat is beyond PSNR: its grade, and figure by figure."""

from __future__ import annotations

from splatbatch.files import Record
from splatbatch.store.folders.patch import PatchFolder

FIGURES = ("figure", "value", "limit", "state", "what")
MOST_NAMED = 8


def quality_of(folder: PatchFolder, sha256: str) -> Record | None:
    """Return what an inspection has found of a splat of this hash; None if nobody has inspected that one."""
    found = folder.read_inspection()
    if found is None or not found.grade or not sha256 or found.splat != sha256:
        return None
    held_out = {name: one for name, one in found.photos.items() if "psnr" in one}
    return {
        "grade": found.grade,
        "figures": [one.to_record() | {"state": one.state} for one in found.figures],
        "cells": [dict(cell) for cell in found.cells],
        "holdout": held_out,
        "seconds": found.seconds,
    }


def exceeded(quality: Record | None) -> list[Record]:
    """Return the figures that exceed their limits."""
    return [one for one in quality["figures"] if one["state"] in ("weak", "bad")] if quality else []


def figure_row(figure: Record) -> tuple[str, ...]:
    """Return a figure under `FIGURES`."""
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure["value"], figure["limit"]))
    named = ", ".join(figure["subjects"][:MOST_NAMED])
    what = f"{figure['unit']} {figure['meaning']}" + (f": {named}" if named else "")
    return (figure["name"], value, limit, figure["state"], what)
