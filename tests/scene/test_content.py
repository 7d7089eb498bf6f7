"""Photographs against the colours of the points: exchanged ones are found, intact ones are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from whole_scene import TAKES_ALL

from splatbatch.errors import SceneError
from splatbatch.scene.audit.audit import Audit, audit_patches, decoded_too
from splatbatch.scene.patches import Patch
from splatbatch.scene.repair import Repaired, fix_models

QUARRY = Path(__file__).resolve().parents[2] / "examples/quarry"


@pytest.fixture
def quarry(tmp_path: Path) -> Path:
    """A copy of the quarry whose photographs may be spoilt."""
    shutil.copytree(QUARRY / "images", tmp_path / "images")
    shutil.copytree(QUARRY / "sparse/0", tmp_path / "sparse/0")
    return tmp_path


def audited(root: Path) -> Audit:
    return audit_patches([Patch("p0", root / "sparse/0", root / "images")], None, TAKES_ALL)


def test_photographs_shifted_by_one_are_exchanged(quarry: Path) -> None:
    for eye in ("left", "right"):
        names = sorted((quarry / "images" / eye).iterdir())
        contents = [path.read_bytes() for path in names]
        for path, content in zip(names, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
    found = audited(quarry).errors()
    assert {finding.kind for finding in found} == {"photos_exchanged"}
    assert len(found) >= 2


def test_left_and_right_exchanged(quarry: Path) -> None:
    for path in sorted((quarry / "images/left").iterdir()):
        other = quarry / "images/right" / path.name
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(ours)
    assert "photos_exchanged" in {finding.kind for finding in audited(quarry).errors()}


@pytest.mark.parametrize("how", [Picture.Transpose.FLIP_LEFT_RIGHT, Picture.Transpose.ROTATE_180])
def test_a_photograph_that_was_turned_over_shows_nothing_of_its_points(quarry: Path, how: Picture.Transpose) -> None:
    path = quarry / "images/left/0001.jpg"
    with Picture.open(path) as picture:
        picture.transpose(how).save(path)
    (finding,) = audited(quarry).findings
    assert (finding.kind, finding.severity, finding.subject) == ("other_content", "warning", "left/0001.jpg")


def test_another_exposure_is_no_other_photograph(quarry: Path) -> None:
    for path in (quarry / "images").rglob("*.jpg"):
        with Picture.open(path) as picture:
            dark = np.asarray(picture) * 0.4
        Picture.fromarray(dark.astype(np.uint8)).save(path)
    assert audited(quarry).findings == ()


def test_two_exchanged_photographs_of_many_are_found_when_all_are_looked_at(quarry: Path) -> None:
    one, other = quarry / "images/left/0003.jpg", quarry / "images/left/0012.jpg"
    ours, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(ours)
    patch = Patch("p0", quarry / "sparse/0", quarry / "images")
    deep = decoded_too(audited(quarry), [patch], TAKES_ALL)
    assert {finding.subject for finding in deep.findings} == {"left/0003.jpg", "left/0012.jpg"}


def cropped(root: Path, left: int, top: int) -> None:
    for path in (root / "images").rglob("*.jpg"):
        with Picture.open(path) as picture:
            cut = picture.crop((left, top, left + 280, top + 220))
        cut.save(path, quality=95)


def test_a_crop_about_the_centre_is_mended(quarry: Path, tmp_path: Path) -> None:
    cropped(quarry, 20, 10)
    assert mended(quarry, tmp_path / "out")


def test_a_crop_off_the_centre_is_refused_with_its_offset(quarry: Path, tmp_path: Path) -> None:
    cropped(quarry, 8, 18)
    with pytest.raises(SceneError, match=r"\(\+12, -8\) px"):
        mended(quarry, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def mended(root: Path, out: Path) -> tuple[Repaired, ...]:
    patch = Patch("p0", root / "sparse/0", root / "images")
    return fix_models(audited(root), [patch], None, "crop", out)
