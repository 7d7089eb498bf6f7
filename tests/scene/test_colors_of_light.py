"""Light that varies over a photograph: found where planted, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_batch import QUARRY
from planted import errors, plant
from test_colors import SHARED, tones
from uneven_quarry import falloff, sunny

from splatbatch.scene.colmap.reconstruction import read_cameras
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.colors.normalised_copies import normalised_copies

FIELDS = {"left/0003.jpg": sunny(), "right/0002.jpg": sunny((-0.4, 0.2), -0.4)}
"""The sun breaks in, and the shadow of a cloud."""
TINT = (1.15, 1.05, 0.8)


def quarry_camera() -> Camera:
    return next(iter(read_cameras(QUARRY / "sparse/0").values()))


def missed(found: ColorCorrection, planted: ColorCorrection) -> float:
    """Return which share of planted light is left, whatever its level: of the root mean square of logarithms."""
    camera = quarry_camera()
    light, left = (
        np.log(falloff(one, camera)) for one in (planted, replace(found, gain=(1, 1, 1), shading_gradient=(0, 0)))
    )
    return float((left - light).std(axis=(0, 1)).mean() / light.std(axis=(0, 1)).mean())


def test_planted_light_is_found_again_with_its_tint_and_none_where_there_is_none(tmp_path: Path) -> None:
    plant(QUARRY, tmp_path / "images", most=0.2, fields=FIELDS, tint=TINT)
    found = tones(QUARRY, tmp_path / "images").tones
    assert {name for name, tone in found.items() if tone.shading_grid} == set(FIELDS)
    for name, field in FIELDS.items():
        assert missed(found[name], ColorCorrection(shading_grid=field, shading_color=TINT)) <= 0.45
        assert found[name].shading_color == pytest.approx(TINT, abs=0.2)


@pytest.mark.all
def test_gains_are_found_again_beside_light_of_single_photographs(tmp_path: Path) -> None:
    planted = plant(QUARRY, tmp_path / "images", most=0.2, fields=FIELDS, tint=TINT)
    found = tones(QUARRY, tmp_path / "images").tones
    off = errors(found, planted, tones(QUARRY).tones)
    others = [place for place, name in enumerate(found) if name not in FIELDS]
    assert (np.median(off) <= 0.01, off[others].max() <= 0.03) == (True, True)


def test_photographs_in_even_light_have_none_of_their_own() -> None:
    assert not any(tone.shading_grid for tone in tones(QUARRY).tones.values())


@pytest.mark.all
def test_on_caliterra_those_have_light_of_their_own_into_which_the_sun_broke() -> None:
    found = tones(SHARED / "data/caliterra").tones
    lit = {int(name[-8:-4]) for name, tone in found.items() if tone.shading_grid}
    assert {9417, 9418, 9426, 9427} <= lit <= set(range(9405, 9435))
    assert all(
        tone.shading_color[0] > tone.shading_color[1] > tone.shading_color[2]
        for tone in found.values()
        if tone.shading_grid
    )


def test_an_evened_copy_has_its_light_taken_out() -> None:
    camera = Camera(1, "PINHOLE", 64, 48, (50.0, 50.0, 30.0, 25.0))
    tone = ColorCorrection((1.1, 1.0, 0.9), (-0.1, 0.02), (0.1, 0.0), sunny(), TINT)
    pixels = (100 * falloff(tone, camera) * tone.gain).round().astype(np.uint8)
    assert np.abs(normalised_copies(pixels, tone, camera).astype(int) - 100).max() <= 1


def test_an_evened_copy_has_its_tilt_taken_out() -> None:
    camera = Camera(1, "PINHOLE", 64, 48, (50.0, 50.0, 30.0, 25.0))
    y, x = np.mgrid[:48, :64] + 0.5
    shading = np.exp((0.3 * (x - 30) - 0.2 * (y - 25)) / 40)
    pixels = (100 * shading[..., None] * [1.1, 1.0, 0.9]).round().astype(np.uint8)
    found = normalised_copies(pixels, ColorCorrection((1.1, 1.0, 0.9), (), (0.3, -0.2)), camera)
    assert np.abs(found.astype(int) - 100).max() <= 1


def test_a_tone_comes_back_from_what_files_hold() -> None:
    for tone in (
        ColorCorrection(),
        ColorCorrection((1.5, 1.0, 0.5), (-0.2, 0.1)),
        ColorCorrection((1.5, 1.0, 0.5), (), (0.1, -0.2)),
    ):
        assert ColorCorrection.of(tone.values()) == tone
        assert (
            ColorCorrection.of(replace(tone, vignetting=(-0.3, 0.1)).values()).shading_gradient == tone.shading_gradient
        )
        lit = replace(tone, shading_grid=sunny(), shading_color=TINT)
        assert ColorCorrection.of(lit.values()) == lit
