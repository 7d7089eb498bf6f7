"""A pipe, a socket or a folder in place of any file: every command ends, says what is wrong, and has no traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command_line import in_time
from cut_batch import copy_of, trained
from fake_batch import FakeBatch

HELD_OUT = {"holdout_list": "holdout.txt"}
OF_SCENE = ("verify-dims", "verify-dims --deep", "plan", "status --verify")
OF_OUTPUT = (
    "status", "status --verify", "report", "explain p0", "merge", "publish p0 --as ply --to one.ply",
    "publish p0 --as ply --to published", "explain p0 --log",
)  # fmt: skip
SCENE = (
    "splat_config.yml",
    "images/img3.png",
    "masks/img3.png.png",
    "holdout.txt",
    "sparse/0/images.txt",
    "patches/partition.json",
    "patches/p0/patch.json",
    *(f"patches/p0/sparse/0/{name}.txt" for name in ("cameras", "images", "points3D")),
)
OUTPUT = (
    *("batch.yaml", "ledger/local.jsonl", "frame.json", "lock", "colors.json"),
    *(f"patches/p0/{name}" for name in ("splat.ply", "result.json", "accepted/1.json", "inspection.json")),
    *(f"patches/p0/attempt-01/{name}" for name in ("splat.ply", "result.json", "train.log", "progress.jsonl")),
    *(f"patches/p0/attempt-01/{name}" for name in ("metrics.json", "job.json", "exit.json", "start.json", "gpu.jsonl")),
    *(f"scene/{name}" for name in ("splat.ply", "merge.json", "evaluation.json", "inspection.json")),
)


FILES = (*SCENE, *(f"output/{name}" for name in OUTPUT))


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = trained(tmp_path_factory.mktemp("trained") / "batch")
    shutil.copytree(batch.folder / "images", batch.folder / "masks")
    for path in (batch.folder / "masks").iterdir():
        path.rename(f"{path}.png")
    (batch.folder / "holdout.txt").write_text("img0.png\nimg8.png\n")
    return batch


@pytest.fixture
def batch(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(trained_once, tmp_path / "batch")


def put_pipe(path: Path) -> None:
    """Put a pipe that nobody writes into in place of a file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("of", [pytest.param("all", marks=pytest.mark.long), "two"])
@pytest.mark.parametrize("file", FILES)
def test_a_pipe_in_place_of_a_file_holds_up_no_command(batch: FakeBatch, file: str, of: str) -> None:
    sections = {"masks/img3.png.png": {"scene": {"masks": "masks"}}, "holdout.txt": {"evaluation": HELD_OUT}}
    batch.change(**sections.get(file, {}))
    put_pipe(batch.folder / file)
    commands = OF_SCENE if file in SCENE else OF_OUTPUT
    first = 2 * FILES.index(file) % len(commands)
    for command in commands if of == "all" else commands[first : first + 2]:
        ended = in_time(*command.split(), batch=batch)
        assert "Traceback" not in ended.out + ended.err, (command, ended.err)
        assert ended.code in range(7), (command, ended.err)


@pytest.mark.parametrize("command", ["explain {}", "import {} {}-out", "inspect --check {}", "train --config {}"])
@pytest.mark.parametrize("name", ["cameras.xml", "transforms.json", "images.txt"])
def test_a_pipe_that_is_named_to_a_command_is_refused(tmp_path: Path, command: str, name: str) -> None:
    put_pipe(tmp_path / name)
    ended = in_time(*command.replace("{}", str(tmp_path / name)).split())
    assert ended.code in (2, 3, 6), ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["cameras.xml", "transforms.json", "cameras.txt", "reconstruction.json", "x.csv"])
def test_a_pipe_in_a_folder_that_is_imported_is_refused(tmp_path: Path, name: str) -> None:
    for part in ("cameras", "images", "points3D"):
        (tmp_path / f"{part}.txt").write_text("")
    put_pipe(tmp_path / name)
    ended = in_time("import", str(tmp_path), str(tmp_path / "out"))
    assert ended.code in (2, 3), ended.err
    assert "Traceback" not in ended.err
