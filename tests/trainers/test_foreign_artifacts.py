"""What a program leaves that is not its own work, or is too much to look through: refused, in words, within bounds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import external_program
import pytest
from external_runs import RUN, Run
from fake_batch import FakeBatch, write_model

from splatbatch.files import find_files
from splatbatch.outcome import Rejected, Trained
from splatbatch.output.layout import OutputFolder
from splatbatch.trainers import external as measures
from splatbatch.trainers import last_step

YEAR_S = 365 * 86400


def doing(code: str) -> dict[str, object]:
    """Return what has the program leave its splat by some Python."""
    return {"settings": {"do": f"by-hand {code}"}}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    external_program.write_ply(tmp_path / "old.ply")
    os.utime(tmp_path / "old.ply", (time.time() - YEAR_S,) * 2)
    return tmp_path / "old.ply"


@pytest.mark.parametrize("by", ["shutil.copy2({!r}, out)", "out.symlink_to({!r})", "os.link({!r}, out)"])
def test_a_splat_that_was_there_before_the_attempt_is_not_its_own(run: Run, old: Path, by: str) -> None:
    found = run(**doing(by.format(str(old)))).outcome()
    assert not isinstance(found, Trained)
    assert "older than the attempt" in " ".join(found.diagnosis.evidence)


@pytest.mark.parametrize("by", ["shutil.copy({!r}, out)", "shutil.copy({!r}, 'x'); os.replace('x', out)"])
def test_a_splat_that_was_written_during_the_attempt_counts_wherever_it_was_written(
    run: Run, old: Path, by: str
) -> None:
    assert isinstance(run(**doing(by.format(str(old)))).outcome(), Trained)


@pytest.mark.parametrize("by", ["out.symlink_to({!r})", "shutil.copy({!r}, out)"])
def test_the_splat_of_another_patch_is_refused_and_that_patch_is_named(batch: FakeBatch, by: str) -> None:
    batch.make("p0", "p1", training={"trainer": "foreign", "max_steps": 10}, trainers={"foreign": RUN})
    write_model(batch.folder / "patches/p1/sparse/0", [f"img{i}.png" for i in range(7)])
    assert batch.run("train", "p0").returncode == 0
    batch.change(trainers={"foreign": {**RUN, **doing(by.format(f"{batch.output}/patches/p0/splat.ply"))}})
    ended = batch.run("train", "p1")
    assert ended.returncode == 1
    why = "the file is the splat of p0, which was trained from other inputs"
    assert why in json.dumps(batch.events("attempt_ended"))


@pytest.mark.all
def test_whose_splat_it_is_costs_milliseconds_among_hundreds(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    for index in range(300):
        folder = output.patch(f"p{index}").path
        folder.mkdir(parents=True)
        (folder / "splat.ply").write_bytes(b"x" * (1000 + index))
        (folder / "result.json").write_text(json.dumps({"metrics": {"per_image": [0.5] * 20_000}}))
    (tmp_path / "new.ply").write_bytes(b"y" * 1299)
    began = time.process_time()
    assert last_step.whose_splat(tmp_path / "patches", tmp_path / "new.ply", "p299", "") == ""
    assert time.process_time() - began < 0.4, "20 ms on a quiet machine; reading all records takes seconds"


def test_thousands_of_nested_folders_are_not_searched_and_harm_nothing(run: Run, tmp_path: Path) -> None:
    nest = "os.chdir(out.parent); [(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]"
    program = doing(f"shutil.copy(__import__('glob').glob({str(external_ply(tmp_path))!r})[0], out); {nest}")
    attempt = run(**program, artifact={"ply": "**/point_cloud_*.ply"})
    try:
        assert isinstance(attempt.outcome(), Trained)
    finally:
        remove_nested(attempt.folder.output)  # shutil's own removal gives up so deep


def remove_nested(folder: Path) -> None:
    home, depth = Path.cwd(), 0
    os.chdir(folder)
    while Path("d").is_dir():
        os.chdir("d")
        depth += 1
    for _ in range(depth):
        os.chdir("..")
        Path("d").rmdir()
    os.chdir(home)


def external_ply(folder: Path) -> Path:
    place = folder / "splat.ply"
    external_program.write_ply(place)
    return place


def test_more_files_than_can_be_looked_through_are_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatbatch.supervisor.external.MOST_FILES", 50)
    many = f"shutil.copy({str(external_ply(tmp_path))!r}, out); [(out.parent / str(i)).touch() for i in range(60)]"
    found = run(**doing(many), artifact={"ply": "**/point_cloud_*.ply"})
    found.run()
    assert found.collect() == Rejected(f"not found: more than 50 files below {found.folder.output}")


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.ply", {"a.ply", ".h.ply"}),
        ("**/*.ply", {"a.ply", ".h.ply", "b/a.ply", "b/c/x.ply"}),
        ("b/*/x.ply", {"b/c/x.ply"}),
        ("b/**/x.ply", {"b/c/x.ply"}),
        ("[[]1[]]/a.txt", {"[1]/a.txt"}),
        ("l/*.ply", {"l/a.ply"}),
        ("b", set()),
    ],
)
def test_files_are_found_as_pathlib_finds_them(tmp_path: Path, glob: str, names: set[str]) -> None:
    for name in ("a.ply", ".h.ply", "b/a.ply", "b/c/x.ply", "[1]/a.txt", "b/pipe.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "l").symlink_to("b")
    found = {path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path, [glob], 1000)}
    assert found == names == {p.relative_to(tmp_path).as_posix() for p in tmp_path.glob(glob) if p.is_file()}


def test_figures_of_60_gib_are_left_out(run: Run, tmp_path: Path) -> None:
    source = str(external_ply(tmp_path))
    big = f"shutil.copy({source!r}, out); f = open(out.parent / 'f.json', 'w'); f.truncate(60 << 30)"
    found = run(**doing(big), metrics={"file": "f.json", "keys": {"psnr": "psnr"}, "evaluate": False}).outcome()
    assert isinstance(found, Trained)
    assert found.splat.metrics == {}
    assert measures.MOST_FIGURES_BYTES <= 64 << 20


def test_a_psnr_beyond_that_of_equal_images_is_not_believed_and_said(run: Run, tmp_path: Path) -> None:
    source = str(external_ply(tmp_path))
    said = f"shutil.copy({source!r}, out); (out.parent / 'f.json').write_text('{{\"psnr\": 99999, \"lpips\": 0.2}}')"
    keys = {"psnr": "psnr", "lpips": "lpips"}
    found = run(**doing(said), metrics={"file": "f.json", "keys": keys, "evaluate": False}).outcome()
    assert isinstance(found, Trained)
    assert found.splat.metrics["final"] == {"lpips": 0.2}
    assert "the program's own psnr of 99,999 is not believed" in found.warnings


def test_what_ended_a_program_after_its_splat_is_named(run: Run) -> None:
    artifact = {"ply": "point_cloud_*.ply", "finished_after_s": 0.3}
    found = run(settings={"do": "fill-later 4"}, artifact=artifact).outcome()
    assert "within 0.3 s (artifact.finished_after_s) after it wrote its splat" in found.diagnosis.advice
    assert "stall_s" not in found.diagnosis.advice
