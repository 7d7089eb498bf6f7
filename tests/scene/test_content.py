"""Photographs against each other at common tracks: what they are instead is named, intact ones are left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from PIL import ImageFilter
from whole_scene import TAKES_ALL, WholeScene, bent_model, with_own_cameras

from splatbatch.errors import SceneError
from splatbatch.scene.audit.audit import USUAL, Audit, AuditExtent, audit_patches
from splatbatch.scene.camera_fix import FixedModel, How, fix_models
from splatbatch.scene.image_match.displacement_field import DisplacementField
from splatbatch.scene.patches import Patch

QUARRY = Path(__file__).resolve().parents[2] / "examples/quarry"


@pytest.fixture
def quarry(tmp_path: Path) -> Path:
    """A copy of the quarry whose photographs may be spoilt."""
    root = tmp_path / "reefs" / "quarry"  # other models are looked for one folder above it, too
    shutil.copytree(QUARRY / "images", root / "images")
    shutil.copytree(QUARRY / "sparse/0", root / "sparse/0")
    return root


EVERY = AuditExtent(groups=None)


def audited(root: Path, extent: AuditExtent = USUAL) -> Audit:
    return audit_patches([Patch("p0", root / "sparse/0", root / "images")], None, TAKES_ALL, extent)


@pytest.mark.all
def test_photographs_shifted_by_one_are_exchanged(quarry: Path) -> None:
    for eye in ("left", "right"):
        names = sorted((quarry / "images" / eye).iterdir())
        contents = [path.read_bytes() for path in names]
        for path, content in zip(names, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
    (finding,) = audited(quarry).findings
    assert finding.kind == "other_pictures"
    assert "previous image by name" in finding.message


@pytest.mark.all
def test_left_and_right_exchanged(quarry: Path) -> None:
    for path in sorted((quarry / "images/left").iterdir()):
        other = quarry / "images/right" / path.name
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(ours)
    (finding,) = audited(quarry).findings
    assert "those of left/ and right/ exchanged" in finding.message


Change = Callable[[Picture.Image], Picture.Image]


def changed(root: Path, change: Change, names: str = "*/*.jpg", **options: int | Picture.Exif) -> None:
    """Change photographs as they lie; their sizes may stay."""
    for path in sorted((root / "images").glob(names)):
        with Picture.open(path) as picture:
            new = change(picture.convert("RGB"))
        new.save(path, **({"quality": 95} | options))


def enlarged(by: float, down: float | None = None) -> Change:
    """Return what crops photographs about their centre and brings them back to their size."""

    def change(picture: Picture.Image) -> Picture.Image:
        (width, height), scale = picture.size, (by, by if down is None else down)
        left, top = (side * (1 - 1 / each) / 2 for side, each in zip((width, height), scale, strict=True))
        matrix = (1 / scale[0], 0, left, 0, 1 / scale[1], top)
        return picture.transform(picture.size, Picture.Transform.AFFINE, matrix, Picture.Resampling.BICUBIC)

    return change


def turned(how: Picture.Transpose) -> Change:
    return lambda picture: picture.transpose(how)


SETS = {
    "turned by 180 degrees": turned(Picture.Transpose.ROTATE_180),
    "mirrored, left for right": turned(Picture.Transpose.FLIP_LEFT_RIGHT),
    "mirrored, top for bottom": turned(Picture.Transpose.FLIP_TOP_BOTTOM),
    "turned by 90 degrees clockwise": turned(Picture.Transpose.ROTATE_270),
    "enlarged by 1": enlarged(1.01),
    "stretched by": enlarged(1.02, 1),
    "that were compared are black": lambda picture: Picture.new("RGB", picture.size),
}


@pytest.mark.all
@pytest.mark.parametrize("says", SETS)
def test_what_all_photographs_have_become_is_an_error_that_names_it(quarry: Path, says: str) -> None:
    changed(quarry, SETS[says])
    found = [one for one in audited(quarry).errors() if one.kind in {"other_pictures", "displaced", "blank"}]
    assert says in found[0].message, found
    assert found[0].remedy


@pytest.mark.all
def test_photographs_turned_by_180_degrees_are_turned_back_by_a_command(quarry: Path) -> None:
    changed(quarry, SETS["turned by 180 degrees"])
    (finding,) = audited(quarry).findings
    assert "magick mogrify -rotate 180" in finding.remedy


@pytest.mark.all
def test_the_photographs_of_one_camera_are_judged_by_themselves(quarry: Path) -> None:
    changed(quarry, SETS["turned by 180 degrees"], "right/*.jpg")
    (finding,) = audited(quarry).findings
    assert (finding.kind, finding.subject) == ("other_pictures", "camera 2")


@pytest.mark.all
def test_another_folder_whose_photographs_fit_is_named(quarry: Path) -> None:
    shutil.copytree(quarry / "images", quarry / "originals")
    changed(quarry, SETS["mirrored, left for right"])
    shuffled(quarry)
    (finding,) = audited(quarry).findings
    assert f"Set scene.images to {quarry / 'originals'}" in finding.remedy


@pytest.mark.all
def test_photographs_of_another_scene_fit_nothing(quarry: Path) -> None:
    shuffled(quarry)
    (finding,) = audited(quarry).findings
    assert "another scene" in finding.message


def shuffled(root: Path) -> None:
    """Let noise take the place of all photographs."""
    draws = np.random.default_rng(0)
    changed(root, lambda picture: Picture.fromarray(draws.integers(0, 255, (240, 320, 3), dtype=np.uint8)))


SINGLE = {
    "it is turned by 180 degrees": ("other_content", SETS["turned by 180 degrees"]),
    "it is mirrored": ("other_content", SETS["mirrored, left for right"]),
    "enlarged by": ("displaced", enlarged(1.01)),
    "is black": ("blank", SETS["that were compared are black"]),
    "is of one colour": ("blank", lambda picture: Picture.new("RGB", picture.size, (90, 90, 90))),
}


@pytest.mark.all(but="is black")
@pytest.mark.parametrize("says", SINGLE)
def test_a_single_photograph_is_told_as_what_it_is(quarry: Path, says: str) -> None:
    kind, change = SINGLE[says]
    changed(quarry, change, "left/0008.jpg")
    (finding,) = audited(quarry, EVERY).findings
    assert (finding.kind, finding.severity, finding.subject) == (kind, "warning", "left/0008.jpg")
    assert says in finding.message


@pytest.mark.all
def test_of_neighbours_that_are_turned_alike_none_beside_them_is_blamed_and_no_tag_is_said_to_fit(quarry: Path) -> None:
    spoilt = [f"{eye}/{number:04}.jpg" for eye in ("left", "right") for number in (6, 7, 8)]
    exif = Picture.Exif()
    exif[0x112] = 3  # which says the same
    for name in spoilt:
        changed(quarry, turned(Picture.Transpose.ROTATE_180), name, exif=exif)
    audit = audited(quarry, EVERY)
    named = {one.subject for one in audit.findings if one.kind == "other_content"}
    assert named and named <= set(spoilt)
    assert not named & {one.subject for one in audit.findings if one.kind == "exif_orientation"}


@pytest.mark.all
def test_a_blurred_photograph_is_for_information(quarry: Path) -> None:
    changed(quarry, lambda picture: picture.filter(ImageFilter.GaussianBlur(4)), "left/0008.jpg")
    audit = audited(quarry, EVERY)
    assert [(one.kind, one.severity) for one in audit.findings] == [("blurred", "info")]
    assert audit.exit_code(strict=True) == 0


INTACT = {
    "at night": lambda picture: picture.point(lambda value: int(0.12 * value)),
    "grey": lambda picture: picture.convert("L"),
    "red": lambda picture: picture.getchannel(0),
}


@pytest.mark.all
@pytest.mark.parametrize("light", INTACT)
def test_light_and_colour_are_no_fault(quarry: Path, light: str) -> None:
    changed(quarry, INTACT[light], quality=40)
    assert audited(quarry, EVERY).findings == ()


def test_another_exposure_is_no_other_photograph(quarry: Path) -> None:
    for path in (quarry / "images").rglob("*.jpg"):
        with Picture.open(path) as picture:
            dark = np.asarray(picture) * 0.4
        Picture.fromarray(dark.astype(np.uint8)).save(path)
    assert audited(quarry).findings == ()


@pytest.mark.all
def test_two_exchanged_photographs_of_many_are_found_when_all_are_looked_at(quarry: Path) -> None:
    one, other = quarry / "images/left/0003.jpg", quarry / "images/left/0012.jpg"
    ours, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(ours)
    deep = audited(quarry, EVERY)
    assert {(one.kind, one.subject) for one in deep.findings} == {
        ("photos_exchanged", "left/0003.jpg"),
        ("photos_exchanged", "left/0012.jpg"),
    }


@pytest.mark.all
def test_a_photograph_copied_over_another_exchanges_nothing(quarry: Path) -> None:
    shutil.copyfile(quarry / "images/left/0004.jpg", quarry / "images/left/0003.jpg")
    (finding,) = audited(quarry, EVERY).findings
    assert (finding.kind, finding.subject) == ("other_content", "left/0003.jpg")
    assert "left/0004.jpg shows them" not in finding.message


def cropped(root: Path, left: int, top: int) -> None:
    for path in (root / "images").rglob("*.jpg"):
        with Picture.open(path) as picture:
            cut = picture.crop((left, top, left + 280, top + 220))
        cut.save(path, quality=95)


@pytest.mark.all
def test_a_crop_about_the_centre_is_mended(quarry: Path, tmp_path: Path) -> None:
    cropped(quarry, 20, 10)
    assert mended(quarry, tmp_path / "out")


@pytest.mark.all
def test_a_crop_off_the_centre_is_refused_with_its_offset(quarry: Path, tmp_path: Path) -> None:
    cropped(quarry, 8, 18)
    with pytest.raises(SceneError, match=r"\(\+12, -8\) px"):
        mended(quarry, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def mended(root: Path, out: Path, how: How = "crop") -> tuple[FixedModel, ...]:
    patch = Patch("p0", root / "sparse/0", root / "images")
    return fix_models(audited(root), [patch], None, how, out)


def halved(root: Path, change: Change) -> None:
    changed(root, lambda picture: change(picture).resize((160, 120), Picture.Resampling.LANCZOS))


def test_resized_photographs_are_mended(quarry: Path, tmp_path: Path) -> None:
    halved(quarry, lambda picture: picture)
    assert mended(quarry, tmp_path / "out", "scale")


@pytest.mark.all
def test_stretched_photographs_are_mended_as_resized_and_not_as_cropped(quarry: Path, tmp_path: Path) -> None:
    changed(quarry, lambda picture: picture.resize((320, 216), Picture.Resampling.LANCZOS))
    with pytest.raises(SceneError, match="more alike with --fix scale"):
        mended(quarry, tmp_path / "out", "crop")
    assert mended(quarry, tmp_path / "out", "scale")


@pytest.mark.all
@pytest.mark.parametrize("change", [SETS["turned by 180 degrees"], enlarged(1.03)])
def test_what_halved_photographs_were_besides_is_not_mended(quarry: Path, tmp_path: Path, change: Change) -> None:
    halved(quarry, change)
    with pytest.raises(SceneError):
        mended(quarry, tmp_path / "out", "scale")
    assert not (tmp_path / "out").exists()


def mixed(root: Path, *, has_sibling: bool = False) -> None:
    """Let the model be one of distorted photographs; these are undistorted."""
    model = bent_model(WholeScene.read(root / "sparse/0"))
    if has_sibling:
        shutil.copytree(root / "sparse/0", root / "undistorted/sparse/0")
    for name, content in model.files().items():
        (root / f"sparse/0/{name}.bin").write_bytes(content)


def test_undistorted_photographs_with_the_distorted_model_are_told(quarry: Path) -> None:
    mixed(quarry)
    found = audited(quarry).errors()
    assert {one.kind for one in found} == {"lens_mix"}
    assert "undistorted already" in found[0].message
    assert "pycolmap.undistort_images" in found[0].remedy


@pytest.mark.all
def test_no_size_is_mended_while_the_lens_is_another(quarry: Path, tmp_path: Path) -> None:
    mixed(quarry)
    halved(quarry, lambda picture: picture)
    assert "lens_mix" in {one.kind for one in audited(quarry).errors()}
    for how in ("scale", "crop"):
        with pytest.raises(SceneError, match=r"cameras cannot be corrected safely(.|\n)*pycolmap.undistort_images"):
            mended(quarry, tmp_path / "out", how)
    assert not (tmp_path / "out").exists()


def test_the_sibling_model_that_fits_is_named(quarry: Path) -> None:
    mixed(quarry, has_sibling=True)
    found = audited(quarry).errors()
    assert {one.kind for one in found} == {"lens_mix"}
    assert f"Train with the model in {quarry / 'undistorted/sparse/0'}" in found[0].remedy


def test_a_displacement_is_measured_where_points_are_compared_and_not_at_the_corners() -> None:
    lens = DisplacementField(lens=0.16)
    assert lens.size(np.array([[0.02, 0.03], [-0.03, 0.01]])) < 1e-5
    assert lens.size(np.array([[0.5, 0.375]])) > 0.03


def rewrite(root: Path, scene: WholeScene) -> None:
    for name, content in scene.files().items():
        (root / f"sparse/0/{name}.bin").write_bytes(content)


def test_one_enlarged_photograph_is_not_a_fault_of_the_two_beside_it(quarry: Path) -> None:
    scene = WholeScene.read(quarry / "sparse/0")
    few = scene.images[6:9]
    scene.cameras[9] = replace(scene.cameras[few[0].camera_id], id=9)
    scene.images[6:9] = [replace(image, camera_id=9) for image in few]
    rewrite(quarry, scene)
    changed(quarry, enlarged(1.012), few[0].name)
    found = [one for one in audited(quarry).findings if few[0].name in one.subject]
    assert [(one.kind, one.subject) for one in found] == [("displaced", few[0].name)]


def test_undistorted_photographs_are_told_where_each_has_its_camera(quarry: Path) -> None:
    mixed(quarry)
    rewrite(quarry, with_own_cameras(WholeScene.read(quarry / "sparse/0")))
    assert "lens_mix" in {one.kind for one in audited(quarry).findings}
