"""Export: the same splat elsewhere, or less of it; whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from splatbatch.errors import OutputError
from splatbatch.outcome import Splat
from splatbatch.splats import Gaussians, check_splat, read_header, read_splat, write_splat
from splatbatch.splats.export import Cut, export_splat

if TYPE_CHECKING:
    from fake_batch import FakeBatch


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
    export_splat(splat, tmp_path / "new/folder/a.ply")
    assert (tmp_path / "new/folder/a.ply").read_bytes() == splat.read_bytes()


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_fewer_harmonics_leave_the_first_ones_as_they_are(splat: Path, tmp_path: Path, degree: int) -> None:
    export_splat(splat, tmp_path / "a.ply", Cut(sh_degree=degree, min_opacity=0.001))
    cut, whole, header = read_splat(tmp_path / "a.ply"), read_splat(splat), read_header(tmp_path / "a.ply")
    assert np.array_equal(cut.shN, whole.shN[:, : (degree + 1) ** 2 - 1])
    assert np.array_equal(cut.means, whole.means)
    assert (header.sh_degree, header.step, header.planned) == (degree, 300, 400)


def test_faint_gaussians_are_left_out(splat: Path, tmp_path: Path) -> None:
    arrived = export_splat(splat, tmp_path / "a.ply", Cut(min_opacity=0.5))
    assert arrived.num_gaussians == 50
    assert read_splat(tmp_path / "a.ply").opacities.min() > 0


def test_a_splat_of_another_writer_gets_no_step(splat: Path, tmp_path: Path) -> None:
    foreign = splat.read_bytes().replace(b"comment splatbatch step 300 of 400, stopped early\n", b"")
    (tmp_path / "foreign.ply").write_bytes(foreign)
    export_splat(tmp_path / "foreign.ply", tmp_path / "a.ply", Cut(sh_degree=0))
    assert read_header(tmp_path / "a.ply").step is None


def test_what_would_be_empty_or_is_cut_leaves_no_file(splat: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no Gaussian has an opacity of 0\.999"):
        export_splat(splat, tmp_path / "a.ply", Cut(min_opacity=0.999))
    splat.write_bytes(splat.read_bytes()[:-1])
    with pytest.raises(OutputError, match="cannot be exported"):
        export_splat(splat, tmp_path / "a.ply", Cut(sh_degree=1))
    assert not (tmp_path / "a.ply").exists()


def test_the_command_writes_one_file_per_trained_patch(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2").script(p2=["exit 2 wrong"])
    batch.run("train")
    told = json.loads(batch.run("export", "--json").stdout)
    assert [row["patch"] for row in told["splats"]] == ["p0", "p1"]
    assert all(isinstance(check_splat(Path(row["file"])), Splat) for row in told["splats"])
    assert batch.run("export", "p1", "--to", str(batch.folder / "mine.ply")).returncode == 0
    assert (batch.folder / "mine.ply").read_bytes() == (batch.output / "patches/p1/splat.ply").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["p0", "p1", "--to", "a.ply"], 2, "one file for 2 splats"),
        (["p2"], 6, "p2: not trained yet"),
        (["p9"], 2, "p9"),
        (["p0", "--sh-degree", "4"], 2, "sh-degree"),
    ],
)
def test_what_cannot_be_exported_is_said(batch: FakeBatch, arguments: list[str], code: int, words: str) -> None:
    batch.make("p0", "p1", "p2")
    batch.run("train", "--patch", "p0", "--patch", "p1")
    ended = batch.run("export", *arguments)
    assert ended.returncode == code
    assert words in ended.stderr
