"""What is trained for each row of the table, and its figures."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scene_bench import product
from scene_bench.product import Commands, Scene

BACKDROP = "backdrop"
ONE, UTM, SEED = "as-one", "UTM", "other-seed"
CHANGES: dict[str, dict[str, Any]] = {
    "patches": {},
    ONE: {},
    UTM: {},
    "no-colour": {"colors": "as_is"},
    "neither": {"border": "none"},
    "no-backdrop": {"border": "core"},
    "no-core": {"border": "backdrop"},
    SEED: {"seed": 43},
}
"""By row, what its training has otherwise; in the order in which they are run, the most telling first."""


@dataclass
class Bench:
    """What all rows have in common."""

    scene: Scene
    folder: Path
    settings: dict[str, dict[str, Any]]
    grid: str
    until: float
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Figures by row."""

    def run(self, name: str) -> dict[str, Any]:
        """Train, merge and measure what a row is of; a row that fails says why."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        commands, started = Commands(folder / "commands.log", self.until), time.monotonic()
        try:
            figures = self._as_one(commands, folder) if name == ONE else self._patches(commands, folder, name)
        except product.Ended as ended:
            figures = {"problem": str(ended)}
        wall_s = round(time.monotonic() - started, 1)
        self.rows[name] = {**figures, "wall_s": wall_s, "seconds": commands.seconds}
        return self.rows[name]

    def _patches(self, commands: Commands, folder: Path, name: str) -> dict[str, Any]:
        scene = product.moved(self.scene, folder) if name == UTM else self.scene
        product.cut(commands, scene, self.grid)
        config = self._config(folder, {"patches": str(scene.patches), "images": str(scene.images)}, CHANGES[name])
        results = product.train(commands, config)
        merged = product.merge(commands, config)
        return of_training(results) | of_merge(merged) | of_evaluation(product.evaluate(commands, config))

    def _as_one(self, commands: Commands, folder: Path) -> dict[str, Any]:
        """Train the scene whole, with as many steps and Gaussians as its patches had, and measure it as they were."""
        batch, merged = self.folder / "patches" / "splat_config.yml", self.rows.get("patches", {}).get("num_gaussians")
        if not merged:
            raise product.Ended("the row `patches` is missing, which says with how many Gaussians")
        steps = self.settings["training"]["max_steps"] * self.rows["patches"]["num_patches"]
        whole = {"patches": str(self.scene.sparse.parents[1]), "images": str(self.scene.images)}
        config = self._config(folder, whole, {"max_steps": steps, "cap_max": merged})
        results = product.train(commands, config)
        (splat,) = folder.glob("output/patches/*/splat.ply")
        found = of_evaluation(product.evaluate(commands, batch, splat))
        seams = ("own", "answered_less_own", "color_offset", "depth_step", "psnr_between")
        kept = {key: value for key, value in found.items() if key not in seams}
        return {**of_training(results), **kept, "own": results[0]["metrics"]["final"]["psnr"]}

    def _config(self, folder: Path, scene: Mapping[str, Any], changes: Mapping[str, Any]) -> Path:
        settings = copy.deepcopy(self.settings)
        settings["training"] |= changes
        return product.write_config(folder, settings, scene)


def of_training(results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how long patches trained, and how many there are."""
    patches = [one for one in results if one["patch"] != BACKDROP]
    seconds = {str(one["patch"]): one.get("seconds") for one in results}
    return {"num_patches": len(patches), "training_s": seconds}


def of_merge(merged: Mapping[str, Any]) -> dict[str, Any]:
    """Return which share of the patches' Gaussians survives the crop."""
    parts = [part for part in merged["parts"] if part["patch"] != BACKDROP]
    read, outside = (sum(part[key] for part in parts) for key in ("num_read", "num_outside"))
    return {"num_gaussians": merged["num_gaussians"], "survivors": 1 - outside / read, "parts": merged["parts"]}


def of_evaluation(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a scene's evaluation, and all of it."""
    patches = [one for one in found["patches"].values() if one.get("gain_db") is not None]
    weights = [one["num_photos"] for one in patches]
    own, gain = (_mean([one[key] for one in patches], weights) for key in ("own_psnr", "gain_db"))
    psnr = {name: found[name].get("psnr") for name in ("across", "within")}
    seams = [one for one in found["seams"] if one.get("color_offset") is not None]
    steps = {key: [abs(one[key]) for one in seams] for key in ("color_offset", "depth_step", "psnr_between")}
    medians = {key: statistics.median(values) if values else None for key, values in steps.items()}
    total = {"psnr": found["total"]["psnr"], "ssim": found["total"]["ssim"]}
    counts = {f"num_{name}": found[name]["num_photos"] for name in ("total", "across", "within")}
    return {**total, **psnr, **medians, **counts, "own": own, "answered_less_own": gain, "evaluation": dict(found)}


def _mean(values: list[float], weights: list[int]) -> float | None:
    return statistics.fmean(values, weights) if values and sum(weights) else None
