"""Where commands may write, and which names and refusals they speak of truly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import invoke
from cut_batch import copy_of, trained
from cut_quarry import accept, cut_quarry, quarry_splat
from fake_batch import FakeBatch, write_model
from sampled import each

from splatbatch.config import load

pytestmark = pytest.mark.usefixtures("made_here")

ALL = ("p0", "p1", "p2", "p3")


@pytest.fixture(scope="module")
def merged_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = trained(tmp_path_factory.mktemp("trained") / "batch")
    assert invoke("merge", batch=batch).code == 0
    return batch


@pytest.fixture
def cut(merged_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(merged_once, tmp_path / "batch")


@pytest.mark.parametrize("place", each(2, ["images/ours", "images", "patches/p0/sparse/0"]))
@pytest.mark.parametrize(
    "command",
    [
        ("publish", "p0", "--as", "ply", "--to", "/a.ply"),
        ("merge", "--out", "/scene.ply"),
        ("publish", "--force", "--as", "ply", "--to", ""),
        ("publish", "scene", "--as", "mp4", "--force", "--to", "/film.mp4"),
        ("plan-capture", "--to", "/next.geojson"),
    ],
    ids=lambda command: command[0],
)
def test_nothing_is_written_among_photographs_and_models(cut: FakeBatch, place: str, command: tuple[str, ...]) -> None:
    before = sorted(cut.folder.glob("**/*"))
    *arguments, option, end = command
    ended = invoke(*arguments, option, f"{cut.folder / place}{end}", batch=cut)
    assert ended.code == 6, ended.out + ended.err
    said = " ".join(ended.err.split())
    assert f"{option} {cut.folder / place}" in said
    assert "which holds inputs of the batch" in said and "hint: Name a folder outside of the photographs" in said
    assert sorted(cut.folder.glob("**/*")) == before


def test_a_folder_of_the_name_of_the_backdrop_is_refused_with_the_remedy(batch: FakeBatch) -> None:
    batch.make("p0", "backdrop")
    ended = invoke("train", batch=batch)
    assert ended.code == 3, ended.out
    said = " ".join(ended.err.split())
    assert f"{batch.folder / 'patches/backdrop'}: the name backdrop is reserved" in said
    assert "hint: Rename the folder" in said
    assert not batch.output.exists()


def test_beside_patches_that_were_cut_it_is_refused_as_well(cut: FakeBatch) -> None:
    write_model(cut.folder / "patches/backdrop/sparse/0", ["img0.png"])
    assert "the name backdrop" in invoke("status", batch=cut).err


def test_where_one_patch_is_trained_not_every_patch_is_refused(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    assert batch.run("train", "p0").returncode == 0
    shutil.rmtree(batch.folder / "patches/p1/sparse")
    (batch.folder / "patches/p1/sparse/0").mkdir(parents=True)
    ended = invoke("train", batch=batch)
    assert ended.code == 1
    assert "every patch" not in ended.err
    assert "p1: refused by the audit of photographs and cameras; no other patch needs training" in " ".join(
        ended.err.split()
    )


def test_where_no_patch_can_be_trained_every_patch_is_refused(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    for name in ("p0", "p1"):
        (batch.folder / f"patches/{name}/sparse/0/images.txt").write_text("no images\n")
    assert "every patch is refused by the audit" in invoke("train", batch=batch).err


def test_split_drops_no_trained_patch_unasked(tmp_path: Path) -> None:
    cut_quarry(tmp_path / "quarry")
    shutil.rmtree(tmp_path / "quarry/patches")
    patches, config = tmp_path / "quarry/patches", tmp_path / "quarry/splat_config.yml"
    again = ("split", "--source", str(tmp_path / "quarry/sparse/0"), "--out", str(patches), "--grid")
    assert invoke(*again, "2x1").code == 0
    accept(load(config).output.folder, "p1", quarry_splat())
    ended = invoke(*again, "1x1")
    assert ended.code == 3, ended.out
    assert "p1: trained, but not among the patches of the new split" in ended.err and "split --drop" in ended.err
    assert (patches / "p1/sparse/0").is_dir()
    assert invoke(*again, "1x1", "--dry-run").code == 0
    assert invoke(*again, "1x1", "--drop").code == 0
    assert not (patches / "p1").exists()
