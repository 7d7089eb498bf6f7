"""Light that varies over a photograph: found where planted, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_batch import QUARRY
from planted import errors, plant
from test_colors import CALITERRA, tones

from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.evened import evened
from splatbatch.scene.colors.scene_tones import solve_tones
from splatbatch.scene.colors.tone import Tone
from splatbatch.scene.patches import Patch

TILTS = {"left/0003.jpg": (0.2, -0.1), "right/0002.jpg": (0.0, 0.25)}


def test_planted_tilts_are_found_again_and_none_where_there_is_none(tmp_path: Path) -> None:
    plant(QUARRY, tmp_path / "images", most=0.2, tilts=TILTS)
    found = tones(QUARRY, tmp_path / "images").tones
    assert {name for name, tone in found.items() if any(tone.tilt)} == set(TILTS)
    for name, tilt in TILTS.items():
        assert found[name].tilt == pytest.approx(tilt, abs=0.03)


def test_gains_are_found_again_beside_tilts(tmp_path: Path) -> None:
    planted = plant(QUARRY, tmp_path / "images", most=0.2, tilts=TILTS)
    off = errors(tones(QUARRY, tmp_path / "images").tones, planted, tones(QUARRY).tones)
    assert (np.median(off) <= 0.01, off.max() <= 0.03) == (True, True)


@pytest.mark.parametrize(("scene", "is_shared"), [(QUARRY, False), (CALITERRA, True)], ids=["quarry", "caliterra"])
def test_photographs_in_even_light_have_no_tilt_but_the_one_that_all_share(scene: Path, is_shared: bool) -> None:
    found = np.array([tone.tilt for tone in tones(scene).tones.values()])
    assert bool(found.any()) == is_shared
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.linalg.norm(found, axis=1).mean(), rel=0.05)


def test_a_held_out_photograph_has_its_tilt_from_its_tracks_and_changes_no_other(tmp_path: Path) -> None:
    held, found = "left/0003.jpg", []
    for tilt in ((0.0, 0.0), TILTS[held]):
        plant(QUARRY, tmp_path / "images", most=0.2, tilts={held: tilt})
        patch = Patch("p0", QUARRY / "sparse/0", tmp_path / "images")
        found.append(solve_tones([patch], held_out=[held]).tones)
    assert found[0][held].tilt == (0.0, 0.0)
    assert found[1][held].tilt == pytest.approx(TILTS[held], abs=0.03)
    for name in found[0].keys() - {held}:
        assert found[1][name] == found[0][name]


def test_an_evened_copy_has_its_tilt_taken_out() -> None:
    camera = Camera(1, "PINHOLE", 64, 48, (50.0, 50.0, 30.0, 25.0))
    y, x = np.mgrid[:48, :64] + 0.5
    shading = np.exp((0.3 * (x - 30) - 0.2 * (y - 25)) / 40)
    pixels = (100 * shading[..., None] * [1.1, 1.0, 0.9]).round().astype(np.uint8)
    found = evened(pixels, Tone((1.1, 1.0, 0.9), (), (0.3, -0.2)), camera)
    assert np.abs(found.astype(int) - 100).max() <= 1


def test_a_tone_comes_back_from_what_files_hold() -> None:
    for tone in (Tone(), Tone((1.5, 1.0, 0.5), (-0.2, 0.1)), Tone((1.5, 1.0, 0.5), (), (0.1, -0.2))):
        assert Tone.of(tone.values()) == tone
        assert Tone.of(replace(tone, vignetting=(-0.3, 0.1)).values()).tilt == tone.tilt
