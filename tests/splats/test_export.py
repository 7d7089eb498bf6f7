"""A PLY for somebody else: the same splat elsewhere, or less of it; whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fake_trainer
import numpy as np
import pytest
from command_line import Ended, invoke
from fake_batch import FakeBatch, write_model

from splatbatch.errors import OutputError
from splatbatch.outcome import Splat
from splatbatch.splats import Gaussians, check_splat, read_header, read_splat, write_splat
from splatbatch.splats.export import ExportOptions, export_splat


@pytest.fixture
def splat(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)

    def noise(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    opacities = np.linspace(-5, 5, 100, dtype=np.float32)
    gaussians = Gaussians(noise(100, 3), noise(100, 3), noise(100, 4), opacities, noise(100, 3), noise(100, 15, 3))
    write_splat(tmp_path / "splat.ply", gaussians, 300, planned=400)
    return tmp_path / "splat.ply"


def test_an_export_without_cuts_is_the_same_file(splat: Path, tmp_path: Path) -> None:
    export_splat(splat, "p0", tmp_path / "new/folder/a.ply")
    assert (tmp_path / "new/folder/a.ply").read_bytes() == splat.read_bytes()


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_fewer_harmonics_leave_the_first_ones_as_they_are(splat: Path, tmp_path: Path, degree: int) -> None:
    export_splat(splat, "p0", tmp_path / "a.ply", ExportOptions(sh_degree=degree, min_opacity=0.001))
    cut, whole, header = read_splat(tmp_path / "a.ply"), read_splat(splat), read_header(tmp_path / "a.ply")
    assert np.array_equal(cut.shN, whole.shN[:, : (degree + 1) ** 2 - 1])
    assert np.array_equal(cut.means, whole.means)
    assert (header.sh_degree, header.step, header.planned) == (degree, 300, 400)
    assert b"\ncomment splatbatch export of p0\n" in (tmp_path / "a.ply").read_bytes()


def test_faint_gaussians_are_left_out(splat: Path, tmp_path: Path) -> None:
    arrived = export_splat(splat, "p0", tmp_path / "a.ply", ExportOptions(min_opacity=0.5))
    assert arrived.num_gaussians == 50
    assert read_splat(tmp_path / "a.ply").opacities.min() > 0


def test_a_splat_of_another_writer_gets_no_step(splat: Path, tmp_path: Path) -> None:
    foreign = splat.read_bytes().replace(b"comment splatbatch step 300 of 400, stopped early\n", b"")
    (tmp_path / "foreign.ply").write_bytes(foreign)
    export_splat(tmp_path / "foreign.ply", "p0", tmp_path / "a.ply", ExportOptions(sh_degree=0))
    assert read_header(tmp_path / "a.ply").step is None


def test_what_would_be_empty_or_is_cut_leaves_no_file(splat: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no Gaussian has an opacity of at least 0\.999"):
        export_splat(splat, "p0", tmp_path / "a.ply", ExportOptions(min_opacity=0.999))
    splat.write_bytes(splat.read_bytes()[:-1])
    with pytest.raises(OutputError, match="cannot be exported"):
        export_splat(splat, "p0", tmp_path / "a.ply", ExportOptions(sh_degree=1))
    assert not (tmp_path / "a.ply").exists()


def ply(batch: FakeBatch, *arguments: str) -> Ended:
    return invoke("publish", "--as", "ply", *arguments, batch=batch)


@pytest.mark.journey
def test_the_command_writes_one_file_per_trained_patch(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2").script(p2=["exit 2 wrong"])
    batch.run("train")
    assert "p2: failed" in batch.run("publish", "--as", "ply").stderr
    told = json.loads((batch.folder / "published/publish.json").read_text())
    assert sorted(told["outputs"]) == ["p0.ply", "p1.ply"]
    assert all(isinstance(check_splat(batch.folder / "published" / name), Splat) for name in told["outputs"])
    assert batch.run("publish", "p1", "--as", "ply", "--to", str(batch.folder / "mine.ply")).returncode == 0
    assert (batch.folder / "mine.ply").read_bytes() == (batch.output / "patches/p1/splat.ply").read_bytes()


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    made = FakeBatch(tmp_path_factory.mktemp("trained")).make("p0", "p1")
    assert made.run("train").returncode == 0
    return made


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path, made_here: None) -> FakeBatch:
    """Return a batch whose patches are trained: a copy, so that a test may do with it what it likes."""
    return trained_once.copied(tmp_path / "batch")


def product(batch: FakeBatch, patch: str = "p0") -> Path:
    return batch.output / "patches" / patch / "splat.ply"


@pytest.mark.parametrize(
    "place", ["patches/p0/splat.ply", "patches/p0/attempt-01/other.ply", "other.ply", "link/a.ply"]
)
@pytest.mark.parametrize("more", [pytest.param((), marks=pytest.mark.all), ("--force",)])
def test_nothing_is_exported_into_the_output_folder(trained: FakeBatch, place: str, more: tuple[str, ...]) -> None:
    before = product(trained).read_bytes()
    (trained.output / "link").symlink_to("patches/p0", target_is_directory=True)
    ended = ply(trained, "p0", "--to", str(trained.output / place), "--sh-degree", "0", *more)
    assert (ended.code, product(trained).read_bytes()) == (6, before)
    assert "output folder" in ended.err
    assert not (trained.output / "patches/p0/a.ply").exists()


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_second_name_of_the_product_is_not_exported_over(trained: FakeBatch, link: Any) -> None:
    link(product(trained), trained.folder / "mine.ply")
    ended = ply(trained, "p0", "--to", str(trained.folder / "mine.ply"), "--sh-degree", "0", "--force")
    assert ended.code == 6
    assert "the same file" in ended.err


def test_a_link_into_the_output_folder_is_replaced_and_never_followed(trained: FakeBatch) -> None:
    before, mine = product(trained, "p1").read_bytes(), trained.folder / "mine.ply"
    mine.symlink_to(product(trained, "p1"))
    to = ("p0", "--to", str(mine), "--sh-degree", "0")
    assert (ply(trained, *to).code, mine.is_symlink()) == (6, True)
    assert (ply(trained, *to, "--force").code, mine.is_symlink()) == (0, False)
    assert product(trained, "p1").read_bytes() == before


def test_a_file_that_export_did_not_write_is_overwritten_only_by_force(trained: FakeBatch) -> None:
    mine = trained.folder / "mine.ply"
    mine.write_text("years of work")
    to = ("p0", "--to", str(mine))
    ended = ply(trained, *to)
    assert (ended.code, mine.read_text()) == (6, "years of work")
    assert "--force" in ended.err
    assert ply(trained, *to, "--force").code == 0
    assert mine.read_bytes() == product(trained).read_bytes()


@pytest.mark.parametrize("cut", [(), ("--sh-degree", "0")])
def test_an_export_may_be_written_again(trained: FakeBatch, cut: tuple[str, ...]) -> None:
    for _ in range(2):
        assert ply(trained, "--to", str(trained.folder / "out"), *cut).code == 0
    assert sorted(path.name for path in (trained.folder / "out").glob("*.ply")) == ["p0.ply", "p1.ply"]


def test_publish_overwrites_what_it_wrote_of_an_older_splat(trained: FakeBatch) -> None:
    assert ply(trained, "p0").code == 0
    (trained.folder / "published/p0.ply").write_bytes(b"ply\nan older splat")
    assert ply(trained, "p0").code == 0
    assert (trained.folder / "published/p0.ply").read_bytes() == product(trained).read_bytes()


@pytest.mark.parametrize("cut", [(), ("--sh-degree", "0")])
def test_a_splat_that_was_changed_on_the_disk_is_not_exported(trained: FakeBatch, cut: tuple[str, ...]) -> None:
    write_splat(product(trained), fake_trainer.splat_of(1), 20)
    ended = ply(trained, *cut)
    assert ended.code == 6
    assert "p0: stale: splat.ply changed on disk" in ended.err
    assert "splatbatch train" in ended.err
    assert [path.name for path in (trained.folder / "published").glob("*.ply")] == ["p1.ply"]


def test_a_trained_splat_that_is_cut_is_not_left_out_in_silence(trained: FakeBatch) -> None:
    os.truncate(product(trained), product(trained).stat().st_size - 1)
    ended = ply(trained)
    assert ended.code == 6
    assert "p0: stale: splat.ply changed on disk" in " ".join(ended.err.split())
    assert [path.name for path in (trained.folder / "published").glob("*.ply")] == ["p1.ply"]


@pytest.mark.parametrize("name", ["x.spz", "x.splat", "x.compressed.ply"])
def test_a_format_that_cannot_be_written_is_refused(trained: FakeBatch, name: str) -> None:
    ended = ply(trained, "p0", "--to", str(trained.folder / name))
    assert ended.code == 2
    assert "file cannot be written, only .ply" in " ".join(ended.err.split())
    assert not (trained.folder / name).exists()


@pytest.mark.parametrize("name", ["night.2026-11-21", "v1.2"])
def test_a_folder_may_have_a_dot_in_its_name(trained: FakeBatch, name: str) -> None:
    assert ply(trained, "p0", "--to", str(trained.folder / name)).code == 0
    assert (trained.folder / name / "p0.ply").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["p0", "p1", "--to", "a.ply"], 2, "one file cannot hold 2 splats"),
        (["p2"], 6, "p2: waiting: not published"),
        (["p9"], 2, "p9"),
        (["p0", "--sh-degree", "4"], 2, "sh-degree"),
    ],
)
def test_what_cannot_be_exported_is_said(trained: FakeBatch, arguments: list[str], code: int, words: str) -> None:
    write_model(trained.folder / "patches/p2/sparse/0", [f"img{number}.png" for number in range(9)])
    ended = ply(trained, *arguments)
    assert ended.code == code
    assert words in ended.err
