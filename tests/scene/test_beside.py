"""What lies beside a model: other models, text and binary, masks, names in another Unicode form, cut photographs."""

from __future__ import annotations

import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from scenes import HEIGHT, OURS, WIDTH, MadeScene

from splatbatch.config import Recipe, Training
from splatbatch.scene.audit.audit import Audit, AuditExtent, audit_patches
from splatbatch.scene.colmap.reconstruction import read_images, walk_points2d
from splatbatch.scene.memory_estimate import estimate, measure
from splatbatch.scene.patches import model_folder
from splatbatch.scene.photos.pixels import undecodable


def kinds(audit: Audit) -> set[str]:
    return {finding.kind for finding in audit.findings}


def second_model(scene: MadeScene, count: int) -> Path:
    """Write a model of fewer images beside the scene's, as sparse/0; the scene's own becomes sparse/1."""
    scene.sparse.rename(scene.root / "sparse/1")
    few = MadeScene(scene.root, images=scene.images[:count])
    few.write_model()
    return scene.root / "sparse/1"


def test_the_largest_of_several_models_is_taken_and_the_rest_named(scene: MadeScene) -> None:
    largest = second_model(scene, 3)
    assert model_folder(scene.root) == largest
    audit = audit_patches([replace(scene.patch(), sparse=largest)], None, OURS)
    (finding,) = audit.findings
    assert (finding.kind, finding.severity) == ("several_models", "warning")
    assert "1 with 8 images, the most, is trained; not trained: 0 (3 images)" in finding.message


def test_a_second_model_that_cannot_be_read_counts_as_empty(scene: MadeScene) -> None:
    largest = second_model(scene, 3)
    (largest / "images.bin").write_bytes(b"\1")
    assert model_folder(scene.root) == scene.sparse


def test_text_and_binary_that_agree_are_no_finding(scene: MadeScene) -> None:
    as_text(scene)
    assert scene.audit().findings == ()


def test_images_without_their_second_lines_are_told_what_is_missing(scene: MadeScene) -> None:
    path = as_text(scene) / "images.txt"
    for binary in scene.sparse.glob("*.bin"):
        binary.unlink()
    path.write_text("\n".join(line for line in path.read_text().splitlines() if line.endswith(".jpg")))
    (finding,) = scene.audit().findings
    assert finding.kind == "corrupt_model" and "none: an empty line" in finding.message


def test_a_text_with_fewer_points_than_its_head_states_is_told(scene: MadeScene) -> None:
    path = as_text(scene) / "points3D.txt"
    for binary in scene.sparse.glob("*.bin"):
        binary.unlink()
    entries = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    head, kept = f"# Number of points: {len(entries)}, mean track length: 4", entries[: len(entries) // 2]
    path.write_text("\n".join([head, *entries, ""]))
    assert "cut_short" not in kinds(scene.audit())
    path.write_text("\n".join([head, *kept, ""]))
    (finding,) = [one for one in scene.audit().findings if one.kind == "cut_short"]
    assert (finding.subject, finding.severity) == ("points3D.txt", "warning")
    assert finding.message == f"holds {len(kept):,} points, but its head states {len(entries):,}"
    path.write_text("\n".join([*kept, ""]))  # without a head there is no number to compare with
    assert "cut_short" not in kinds(scene.audit())


def test_the_head_of_a_text_beside_a_binary_model_does_not_count(scene: MadeScene) -> None:
    path = as_text(scene) / "points3D.txt"
    path.write_text(f"# Number of points: 1000000\n{path.read_text()}")
    assert scene.audit().findings == ()


@pytest.mark.parametrize(("file", "old", "new"), [("cameras", " 72 ", " 73 "), ("images", "05.jpg", "5.jpg")])
def test_text_and_binary_that_differ_are_told(scene: MadeScene, file: str, old: str, new: str) -> None:
    path = as_text(scene) / f"{file}.txt"
    path.write_text(path.read_text().replace(old, new))
    (finding,) = scene.audit().findings
    assert finding.kind == "formats_differ"
    assert file in finding.message


def as_text(scene: MadeScene) -> Path:
    MadeScene(scene.root, suffix="txt").write_model()
    return scene.sparse


def test_photographs_that_no_model_registers_are_counted(scene: MadeScene) -> None:
    for number in range(20):
        scene.photograph(f"more{number}.jpg", (WIDTH, HEIGHT))
    (finding,) = scene.audit().findings
    assert finding.kind == "unregistered"
    assert "8 of the 28 photographs" in finding.message


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_in_another_encoding_are_named_with_the_remedy_that_helps(scene: MadeScene, form: str) -> None:
    other = "NFD" if form == "NFC" else "NFC"
    scene.images[2] = replace(scene.images[2], name=unicodedata.normalize(form, "é03.jpg"))
    scene.write_model()
    scene.photograph(unicodedata.normalize(other, "é03.jpg"), (WIDTH, HEIGHT))
    (finding,) = scene.audit().findings
    assert finding.kind == "unicode_form"
    assert f"--{form.lower()}" in finding.remedy


@pytest.mark.parametrize(
    ("model", "disk"), [("left/a.jpg", "left_a.jpg"), ("left\\a.jpg", "left/a.jpg"), ("l/a.jpg", "a.jpg")]
)
def test_a_photograph_in_a_folder_spelt_otherwise_is_found(scene: MadeScene, model: str, disk: str) -> None:
    scene.images[2] = replace(scene.images[2], name=model)
    scene.write_model()
    scene.photograph(disk, (WIDTH, HEIGHT))
    assert f"{disk} is there" in scene.audit().findings[0].message


def masked(scene: MadeScene, picture: Picture.Image | bytes) -> Audit:
    folder = scene.root / "masks"
    folder.mkdir(exist_ok=True)
    path = folder / "03.jpg.png"
    path.write_bytes(picture) if isinstance(picture, bytes) else picture.save(path)
    return audit_patches([replace(scene.patch(), masks=folder)], None, OURS)


def half_white() -> Picture.Image:
    mask = Picture.new("L", (WIDTH, HEIGHT))
    mask.paste(255, (0, 0, WIDTH // 2, HEIGHT))
    return mask


def speck() -> Picture.Image:
    mask = Picture.new("L", (WIDTH, HEIGHT))
    mask.paste(255, (0, 0, 4, 4))
    return mask


def test_masks_that_no_photograph_looks_for_are_named(scene: MadeScene) -> None:
    folder = scene.root / "masks"
    folder.mkdir()
    for image in scene.images:
        half_white().save(folder / f"mask_{image.name}.png")
    (finding,) = audit_patches([replace(scene.patch(), masks=folder)], None, OURS).findings
    assert (finding.kind, finding.severity) == ("mask_names", "warning")
    assert "8 of 8 masks" in finding.message
    assert "01.jpg.png" in finding.remedy


def test_a_sound_mask_is_no_finding(scene: MadeScene) -> None:
    assert masked(scene, half_white()).findings == ()


@pytest.mark.parametrize(
    ("mask", "kind", "severity"),
    [
        (b"", "unreadable_mask", "error"),
        (Picture.new("L", (WIDTH, HEIGHT)), "black_mask", "warning"),
        (half_white().point(lambda grey: grey // 255), "mask_values", "error"),
        (speck(), "mask_share", "warning"),
        (half_white().resize((WIDTH, HEIGHT // 2)), "mask_size", "warning"),
    ],
    ids=["empty", "black", "0 and 1", "speck", "size"],
)
def test_masks_are_audited(scene: MadeScene, mask: Picture.Image | bytes, kind: str, severity: str) -> None:
    (finding,) = masked(scene, mask).findings
    assert (finding.kind, finding.severity, finding.subject) == (kind, severity, "masks/03.jpg.png")


def test_a_mask_that_hides_what_the_model_was_made_of_may_mean_the_opposite(scene: MadeScene) -> None:
    mask, seen = Picture.new("L", (WIDTH, HEIGHT), 255), dict(walk_points2d(scene.sparse))[3].xy
    for x, y in np.floor(seen).astype(int).tolist():
        mask.putpixel((x, y), 0)
    (finding,) = masked(scene, mask).findings
    assert (finding.kind, finding.severity, finding.subject) == ("mask_share", "warning", "masks/03.jpg.png")
    assert f"ignores {len(seen)} of {len(seen)} keypoints" in finding.message
    assert "invert the mask" in finding.remedy
    for x, y in np.floor(seen[::4]).astype(int).tolist():
        mask.putpixel((x, y), 255)
    assert masked(scene, mask).findings == ()


def spoil_pixels(path: Path) -> None:
    """Garble the pixels of a PNG; its head and its end are as they were."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    path.write_bytes(data)


def test_a_photograph_that_cannot_be_decoded_is_found_by_decoding_alone(scene: MadeScene) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    path = scene.photographs / "03.png"
    scene.images[2] = replace(scene.images[2], name="03.png")
    scene.write_model()
    Picture.fromarray(noise).save(path)
    spoil_pixels(path)
    audit = scene.audit()
    assert audit.findings == ()
    deep = audit_patches([scene.patch()], None, OURS, AuditExtent(groups=None))
    assert [(one.kind, one.subject) for one in deep.errors()] == [("undecodable", "03.png")]
    assert deep.exit_code() == 3


def test_undecodable_names_the_files_in_their_order(scene: MadeScene) -> None:
    paths = [scene.photographs / image.name for image in scene.images]
    paths[4].write_bytes(b"no photograph")
    paths[1].unlink()
    assert [*undecodable([*paths, paths[4]])] == [str(paths[1]), str(paths[4])]
    assert undecodable([]) == {}


def test_a_patch_with_images_2_alone_is_planned_at_their_size(scene: MadeScene) -> None:
    recipe = Recipe(training=Training(device="cpu"))
    full = estimate(recipe, measure(scene.patch()))
    shutil.move(scene.photographs, scene.root / "images_2")
    small = estimate(recipe, measure(scene.patch()))
    assert small.mean_px * 4 == full.mean_px
    halved = Recipe(training=Training(device="cpu", resolution="1/2"))
    assert estimate(halved, measure(scene.patch())).mean_px == small.mean_px


def test_the_read_images_are_those_of_the_chosen_model(scene: MadeScene) -> None:
    second_model(scene, 3)
    folder = model_folder(scene.root)
    assert folder is not None
    assert len(read_images(folder)) == 8
