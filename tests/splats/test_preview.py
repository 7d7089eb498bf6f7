"""Previews: small, the right Gaussians, in the right place; read back by gsply's own reader."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from splatbatch.scene.rotations import rotate
from splatbatch.splats.ply import Gaussians, write_splat
from splatbatch.splats.preview import make_preview, middle_of, most_visible

gsply = pytest.importorskip("gsply", reason="gsply is not installed (extra web)")
HALF_TURN_Z = np.array([0.0, 0.0, 0.0, 1.0])


def splat(path: Path, num: int) -> Path:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    gaussians = Gaussians(
        normal(num, 3), normal(num, 3) - 4, normal(num, 4), normal(num), normal(num, 3), normal(num, 15, 3)
    )
    write_splat(path, gaussians, 30_000)
    return path


def test_a_preview_holds_every_gaussian_of_a_small_splat(tmp_path: Path) -> None:
    read = gsply.decompress_from_bytes(make_preview(splat(tmp_path / "s.ply", 1000)))
    assert len(read.means) == 1000
    assert np.abs(np.sort(read.means, axis=0) - np.sort(gsply.plyread(tmp_path / "s.ply").means, axis=0)).max() < 0.02


def test_a_preview_can_be_turned(tmp_path: Path) -> None:
    path = splat(tmp_path / "s.ply", 500)
    plain, turned = (gsply.decompress_from_bytes(make_preview(path, *turn)) for turn in ((), (HALF_TURN_Z,)))
    assert np.abs(np.sort(turned.means[:, 0]) - np.sort(-plain.means[:, 0])).max() < 0.02
    assert np.abs(np.sort(turned.means[:, 2]) - np.sort(plain.means[:, 2])).max() < 0.02


def test_turning_a_gaussian_turns_its_longest_axis_too() -> None:
    quarter_z = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    assert np.allclose(rotate(np.array([[1.0, 0, 0]]), quarter_z), [[0, 1, 0]])


def test_a_large_splat_keeps_what_covers_most_of_the_picture() -> None:
    scales = np.log(np.array([[1, 1, 1], [9, 9, 0.01], [9, 0.01, 0.01], [9, 9, 9]], dtype=np.float32))
    opacities = np.array([3, 3, 3, -9], dtype=np.float32)
    assert most_visible(scales, opacities, 2).tolist() == [0, 1]
    assert most_visible(scales, opacities, 9).tolist() == [0, 1, 2, 3]


def test_the_middle_is_where_most_gaussians_are(tmp_path: Path) -> None:
    preview = make_preview(splat(tmp_path / "s.ply", 5000))
    assert np.linalg.norm(middle_of(preview)) < 0.5
    with pytest.raises(ValueError, match="no chunks"):
        middle_of(b"ply\nend_header\n")


def test_a_cut_or_empty_splat_has_no_preview(tmp_path: Path) -> None:
    path = splat(tmp_path / "s.ply", 100)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut: "):
        make_preview(path)
    with pytest.raises(ValueError, match="no Gaussians"):
        make_preview(splat(tmp_path / "empty.ply", 0))


def test_without_gsply_it_is_an_import_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gsply", None)
    with pytest.raises(ImportError):
        make_preview(splat(tmp_path / "s.ply", 10))


@pytest.mark.all
def test_a_million_gaussians_are_previewed_in_three_seconds(tmp_path: Path) -> None:
    path = splat(tmp_path / "s.ply", 1_000_000)
    make_preview(path)  # gsply compiles once per machine, what many Gaussians need too: about 10 s; it keeps that
    started = time.process_time()
    preview = make_preview(path)
    assert time.process_time() - started < 3
    assert len(preview) < 3_000_000
