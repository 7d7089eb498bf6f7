"""Scenes on which levers are compared: photographs that are here, the quarry, and two that are made on the spot."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PHOTOGRAPHED, MADE = ("caliterra", "copr"), ("flight", "room")
ROWS, IN_A_ROW, ABOVE_M = 4, 8, 9.0
APART_M = (5.5, 5.0)
"""Photographs of the flight show 13.1 x 9.8 m of ground: next ones share 58 %, next rows 49 %."""


def scenes(told: list[str], data: Path | None, out: Path) -> dict[str, Path]:
    """Return folders by name: those that are told, as [NAME=]FOLDER or by a name of ours, else all that are here."""
    folder = (
        data.resolve()
        if data
        else next((one for one in (ROOT.parent / "shared/data", ROOT / "shared/data") if one.is_dir()), ROOT)
    )
    ours = {name: folder / name for name in PHOTOGRAPHED if (folder / name).is_dir()}
    ours |= {"quarry": ROOT / "examples/quarry"} | {name: out / "scenes" / name for name in MADE}
    chosen = {one: ours[one] for one in told or ours if one in ours}
    for name, _, where in (one.rpartition("=") for one in told if one not in ours):
        path = Path(where).resolve()
        chosen[name or path.name] = path
    due = [name for name in MADE if chosen.get(name) == ours[name] and not ours[name].exists()]
    with ProcessPoolExecutor() as pool:
        list(pool.map(make, due, [ours[name] for name in due]))
    return chosen


def section_of(folder: Path) -> dict[str, str]:
    """Return the section `scene` of a folder with patches/ or one COLMAP model, and images/."""
    has_patches = (folder / "patches").is_dir()
    section = {"patches": str(folder / "patches" if has_patches else folder), "images": str(folder / "images")}
    return section | ({"source": str(folder)} if has_patches and (folder / "sparse").is_dir() else {})


def patches_of(folder: Path, among: list[str]) -> list[str]:
    """Return the names of a scene's patches, or those of them that are asked for."""
    below = folder / "patches"
    names = sorted(one.name for one in below.iterdir() if one.is_dir()) if below.is_dir() else [folder.name]
    return [name for name in names if not among or name in among]


def make(name: str, folder: Path) -> None:
    """Write a room that is walked through, or a flight that looks down and a little ahead, by bench_odd_scenes."""
    loader = SourceFileLoader("bench_odd_scenes", str(ROOT / "scripts/bench_odd_scenes"))
    odd: Any = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = odd  # its dataclasses look themselves up
    loader.exec_module(odd)
    odd.WIDTH, odd.HEIGHT, odd.FOCAL = 320, 240, 220.0  # twice its own size
    if name == "room":
        scene = odd.made("indoors")
    else:
        random = np.random.default_rng(13)
        row, place = np.divmod(np.arange(ROWS * IN_A_ROW), IN_A_ROW)
        ground = np.stack((np.where(row % 2, IN_A_ROW - 1 - place, place) - 3.5, row - 1.5), -1) * APART_M
        centers = np.column_stack((ground, np.full(len(row), ABOVE_M))) + random.normal(0, 0.2, (len(row), 3))
        heading = np.where(row % 2, np.pi, 0) + random.normal(0, 0.1, len(row))
        scene = odd.Scene(*odd.things(random, (20, 9), 0), centers, odd.looks(heading, np.full(len(row), -1.35)))
    aside = folder.with_name(f"{name}.part")
    odd.write(scene, aside, has_tracks=True)
    aside.rename(folder)
