"""What the headers of photographs say, and what of that is believed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from geotagged import QUARRY, geotagged, quarry, tag

from splatbatch import files, isolated
from splatbatch.errors import ConfigError, SceneError
from splatbatch.files import write_json
from splatbatch.reconstruction.facts import OURS, ReconstructionRecord
from splatbatch.reconstruction.photographs import checked_places, survey
from splatbatch.reconstruction.plan import ReconstructionOptions, ReconstructionPlan
from splatbatch.run import reconstruct as night_of

SOURCE = QUARRY / "images/left/0001.jpg"
FIRST = [f"left/{number:04d}.jpg" for number in range(1, 5)]
ON_FILM, FOCAL, MAKE, MODEL, TAKEN_WIDTH, PER_UNIT = "t41989", "t37386", "t271", "t272", "t40962", "t41486"
HERE = (46.5, 8.0, 500.0)


def planned(folder: Path, **wanted: object) -> ReconstructionPlan:
    return survey(folder, ReconstructionOptions(**wanted))  # type: ignore[arg-type]


def tagged(folder: Path, *every: dict[str, object], place: object = None) -> ReconstructionPlan:
    for number, fields in enumerate(every):
        tag(SOURCE, folder / f"{number}.jpg", place, **fields)  # type: ignore[arg-type]
    return planned(folder)


def test_the_focal_length_is_that_of_the_file_however_it_was_resized(tmp_path: Path) -> None:
    taken = {FOCAL: 4.5, TAKEN_WIDTH: 4000, "t40963": 3000, PER_UNIT: 16393.44, "t41488": 2}
    (camera,) = tagged(tmp_path, *[taken] * 3).cameras
    assert camera.is_known and camera.focal_px == pytest.approx(726.09 * 320 / 1000, rel=1e-3)


def test_the_focal_length_on_film_counts_by_the_diagonal(tmp_path: Path) -> None:
    (camera,) = tagged(tmp_path, *[{ON_FILM: 24}] * 3).cameras
    assert camera.focal_px == pytest.approx(24 / 43.267 * 400, rel=1e-3)


def test_a_focal_length_that_cannot_be_is_not_used_and_said(tmp_path: Path) -> None:
    plan = tagged(tmp_path, *[{ON_FILM: 4000}] * 3)
    assert not plan.cameras[0].is_known and "focal length of EXIF not used" in plan.notes[0]


def test_a_changed_zoom_is_another_camera(tmp_path: Path) -> None:
    plan = tagged(tmp_path, {FOCAL: 4.5, MODEL: "X"}, {FOCAL: 4.5, MODEL: "X"}, {FOCAL: 9.0, MODEL: "X"})
    assert [one.camera for one in plan.photographs] == [1, 1, 2] and "2 cameras: X, 4.5 mm" in plan.notes[0]


def test_a_fisheye_that_exif_names_is_one(tmp_path: Path) -> None:
    assert tagged(tmp_path, *[{MODEL: "Fisheye 8"}] * 3).cameras[0].model == "OPENCV_FISHEYE"


def test_folders_of_cameras_without_names_are_cameras(tmp_path: Path) -> None:
    assert len(planned(QUARRY / "images").cameras) == 2


def test_raw_and_heic_are_left_out_with_what_converts_them(tmp_path: Path) -> None:
    quarry(tmp_path, FIRST)
    for name in ("a.heic", "b.CR2", "c.txt", ".d.jpg"):
        (tmp_path / name).write_bytes(b"?")
    left_out = planned(tmp_path).left_out
    assert set(left_out) == {"a.heic", "b.CR2"}
    assert "heif-convert" in left_out["a.heic"] and "darktable-cli" in left_out["b.CR2"]


def test_a_file_that_is_no_photograph_is_named(tmp_path: Path) -> None:
    quarry(tmp_path, FIRST)
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    assert "cannot be read" in planned(tmp_path).left_out["cut.jpg"]


def test_a_photograph_that_changes_behind_its_first_64_kib_is_another(tmp_path: Path) -> None:
    quarry(tmp_path, FIRST)
    photograph = tmp_path / FIRST[0]
    photograph.write_bytes((whole := photograph.read_bytes()) + bytes(100_000))
    before = planned(tmp_path).key
    photograph.write_bytes(whole + bytes(99_999) + b"1")
    assert planned(tmp_path).key != before


@pytest.mark.parametrize("name", ["late.jpg ", "late.jpg.", os.fsdecode(b"gr\xfcn.jpg")])
def test_a_name_that_cannot_be_kept_is_refused_by_that_name(tmp_path: Path, name: str) -> None:
    (quarry(tmp_path, FIRST) / name).write_bytes(SOURCE.read_bytes())
    (told,) = planned(tmp_path).left_out.items()
    assert told[0] == name.replace("\udcfc", "\\udcfc") and told[1].endswith("rename the file")


def test_a_hidden_photograph_is_named(tmp_path: Path) -> None:
    (quarry(tmp_path, FIRST) / "..jpg").write_bytes(SOURCE.read_bytes())
    assert "1 hidden file left out (..jpg)" in planned(tmp_path).notes


@pytest.mark.parametrize("out", ["", "deep/out"])
def test_copies_by_an_earlier_reconstruction_are_no_photographs(tmp_path: Path, out: str) -> None:
    quarry(tmp_path, FIRST)
    quarry(tmp_path / out / "images", FIRST[:2])
    assert len(planned(tmp_path).photographs) == 6  # photographs of somebody, in a folder of that name
    write_json(tmp_path / out / OURS, ReconstructionRecord(key="1").to_record())
    plan = planned(tmp_path)
    assert len(plan.photographs) == 4 and str(tmp_path / out / "images") in plan.notes[-1]


def test_a_pipe_among_photographs_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(quarry(tmp_path, FIRST) / "pipe.jpg")
    assert "not a regular file" in planned(tmp_path).left_out["pipe.jpg"]


def test_photographs_that_are_copies_of_another_are_told(tmp_path: Path) -> None:
    quarry(tmp_path, FIRST)
    shutil.copy(tmp_path / FIRST[0], tmp_path / "left/again.jpg")
    assert "1 photograph with the same content as another (left/again.jpg)" in planned(tmp_path).notes


@pytest.mark.contract
def test_photographs_that_never_answer_end_the_command_with_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "HANGS_S", 0.5)
    monkeypatch.setattr(night_of, "survey", lambda *_: (files.note_reading("reef/a.jpg"), time.sleep(60)))
    with pytest.raises(SceneError, match=r"reef.a\.jpg: no answer"):
        night_of.open_reconstruction(night_of.ReconstructOptions(tmp_path, tmp_path / "out"))


@pytest.mark.parametrize("names", [[], FIRST[:2]])
def test_two_photographs_are_too_few(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(SceneError, match=f"{len(names)} photograph"):
        planned(quarry(tmp_path, names))


def test_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="no such folder"):
        planned(tmp_path / "gone")


def test_swapped_latitude_and_longitude_are_nowhere(tmp_path: Path) -> None:
    plan = tagged(tmp_path, {}, {}, {}, place=(98.1, 30.2, 400.0))
    assert plan.photographs[0].place is None and "look swapped" in plan.notes[0]


def test_gps_is_read_to_the_centimetre(tmp_path: Path) -> None:
    place = tagged(tmp_path, {}, {}, {}, place=(-46.123456789, -8.987654321, 512.5)).photographs
    assert place[0].place is None  # all alike: not used
    plan = planned(_geotagged(tmp_path / "others"))
    assert plan.photographs[0].place == pytest.approx((46.493831, 8.249036, 1458.640), abs=1e-3)


def _geotagged(folder: Path) -> Path:
    geotagged(folder, FIRST)
    return folder


Places = list[tuple[float, float, float] | None]
NEAR: Places = [(46.5 + step * 1e-4, 8.0, 500.0) for step in range(20)]


@pytest.mark.parametrize(
    ("places", "kept", "said"),
    [
        (NEAR, 20, ""),
        ([HERE] * 20, 0, "all GPS positions are the same"),
        ([*NEAR[:19], (46.5, 9.0, 500.0)], 19, "1 GPS position more than 5 km"),
        ([*NEAR[:10], *((47.5 + step * 1e-4, 8.0, 500.0) for step in range(10))], 20, "another place?"),
        ([HERE, None, None], 0, "only one or two"),
        ([None] * 5, 0, ""),
        ([(-16.8, 180 - 1e-4 * step, 5.0) for step in range(10)] + [(-16.8, 1e-4 - 180, 5.0)], 11, ""),
    ],
)
def test_positions_that_cannot_be_meant_are_not_used(places: Places, kept: int, said: str) -> None:
    found, notes = checked_places(places, [str(number) for number in range(len(places))])
    assert sum(one is not None for one in found) == kept and said in " ".join(notes)


@pytest.mark.parametrize(
    ("rig", "said"), [(("left", "up"), "up: no photographs"), (("left", "r"), "no file name is in two")]
)
def test_folders_that_are_no_rig_are_refused(tmp_path: Path, rig: tuple[str, ...], said: str) -> None:
    quarry(tmp_path, FIRST)
    (tmp_path / "r").mkdir()
    (tmp_path / "r/other.jpg").write_bytes(SOURCE.read_bytes())
    with pytest.raises(ConfigError, match=said):
        planned(tmp_path, rig=rig)


def made(n: int, placed: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for number in range(n):
            tag(SOURCE, folder / f"{number}.jpg", (46.5 + number * 1e-4, 8.0, 500.0) if number < placed else None)
        return folder

    return write


@pytest.mark.parametrize(
    ("photographs", "pairing"), [(made(40, 40), "all"), (made(41, 35), "gps"), (made(41, 20), "sequence")]
)
def test_pairs_are_by_gps_else_by_sequence_and_of_few_all(
    tmp_path: Path, photographs: Callable[[Path], Path], pairing: str
) -> None:
    assert planned(photographs(tmp_path)).pairing == pairing
