"""Photographs that drift in exposure: what of it is left as a step of colour where two patches meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cut_quarry import QUARRY, cut_quarry
from uneven_quarry import planted, quarry, some_tones

from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colors.correction import NEUTRAL, ColorCorrection
from splatbatch.scene.colors.scene_corrections import solve_tones
from splatbatch.scene.partition.border import shares_of
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import Patch

BRIGHT = 200.0
"""Of 255: as bright as the quarry's walls in the sun."""
IS_OF = 0.15
"""Share of its points in a core from which on a photograph is in the patch."""


def step_between(
    partition: Partition, planted_ones: Mapping[str, ColorCorrection], solved: Mapping[str, ColorCorrection]
) -> float:
    """Return how much brighter the photographs of one patch are than those of the other in the mean, of 255."""
    shares = shares_of(partition, read_reconstruction(partition.source, tracks=True))
    training = [name for name in shares if name not in partition.test]
    left = {name: np.log(planted_ones[name].gain) - np.log(solved.get(name, NEUTRAL).gain) for name in training}
    one, other = (
        np.mean([left[name] for name in training if shares[name][side] >= IS_OF], axis=0) for side in range(2)
    )
    return float(BRIGHT * np.abs(np.expm1(one - other)).max())


def along_the_flight(partition: Partition, patch: Patch, most: float = 0.2) -> dict[str, ColorCorrection]:
    """Return gains that rise with the way from one patch to the other: no photograph is unlike its neighbours."""
    cut = next(axis for axis in range(3) if np.isfinite(partition.cores[0].core.upper[axis]))
    ways = {image.name: image.center()[cut] for image in read_reconstruction(patch.sparse).images}
    low, high = min(ways.values()), max(ways.values())
    gains = {name: (1 + most) ** (2 * (way - low) / (high - low) - 1) for name, way in ways.items()}
    return {name: ColorCorrection((gain, gain, gain)) for name, gain in gains.items()}


@pytest.mark.all
@pytest.mark.parametrize("is_by_chance", [True, False])
def test_a_drift_of_a_fifth_leaves_no_step_of_colour_where_patches_meet(tmp_path: Path, is_by_chance: bool) -> None:
    partition = cut_quarry(tmp_path / "quarry")
    whole = replace(quarry(), sparse=QUARRY / "sparse" / "0")
    drift = some_tones(whole, 0.2) if is_by_chance else along_the_flight(partition, whole)
    solved = solve_tones([planted(whole, drift, tmp_path / "uneven")]).tones
    even, as_it_is = (step_between(partition, drift, tones) for tones in (solved, {}))
    assert even <= 2 < as_it_is + is_by_chance
