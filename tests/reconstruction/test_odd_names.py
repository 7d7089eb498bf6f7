"""File names that other programs take for something else: at work all the way, or refused by that name."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke
from geotagged import QUARRY
from odd_names import REFUSED, USABLE, odd_photographs
from test_nights import QUICK, reconstruct, told

ODD = ["IMG (0).jpg", "#1.jpg", "two\nlines.jpg", "tab\there.jpg", "back\\slash.jpg", "'q\".jpg", "-w.jpg", "why?.jpg"]


@pytest.mark.all
def test_photographs_with_blanks_in_their_names_are_matched(tmp_path: Path) -> None:
    (images := tmp_path / "photos of today").mkdir()
    for number, name in enumerate(ODD, start=1):
        (images / name).write_bytes((QUARRY / f"images/left/{number:04d}.jpg").read_bytes())
    ended = reconstruct(images, out := tmp_path / "out")
    assert ended.code == 0 and told(out)["registered"] == 8
    assert sorted(one.name for one in (out / "images").iterdir()) == sorted(ODD)


@pytest.mark.long
def test_odd_names_work_from_photographs_to_a_published_scene_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty
) -> None:
    monkeypatch.chdir(tmp_path)
    made = reconstruct(odd_photographs(Path("#photos")), out := Path("out %j"))
    assert made.code == 0 and told(out)["registered"] == len(USABLE)
    assert all(one.encode(errors="backslashreplace").decode().rstrip() in made.out for one in REFUSED)
    model = (f"{out}/sparse/0", "--images", f"{out}/images")
    assert invoke("split", "--source", *model, "--out=-s/patches", "--max-images", "40").code == 0
    scene = invoke("scene", "--source", *model, "--out=-s", "--", *QUICK)
    assert scene.code == 0 and len([*Path("-s/output/patches").glob("p*/splat.ply")]) > 1, scene.err
    for words in (("verify-dims",), ("merge",), ("publish", "--to=-published", "--as", "ply,compressed")):
        assert (ended := invoke(words[0], "-c", "./-s", *words[1:])).code == 0, ended.err
    brought = invoke("import", *model, "imported", "--skip-missing")
    left = len(USABLE) - len([one for one in Path("imported/images").rglob("*") if not one.is_dir()])
    assert brought.code == 0 and left == 1 and "back\\slash.jpg" in brought.out + brought.err, brought.err
    record_property("figure", f"{len(USABLE)} odd names at work, {len(REFUSED)} refused; {left} of them at the import")
