"""Formats of other programs: which axes their files have, and that all comes back; read without the tool as well."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from foreign_formats import glb_places, spz_places, turn_between
from letters import letters
from splat_tool import tool_or_skip

from splatbatch.errors import OutputError
from splatbatch.machine.limited_program import CallBounds, ProgramEnd
from splatbatch.publish import convert as converting
from splatbatch.publish.convert import CLUSTERED, ConversionJob, Rung, convert
from splatbatch.publish.formats import FORMATS
from splatbatch.publish.source import SourcePart
from splatbatch.publish.stage import UprightScene
from splatbatch.publish.tiles.glb import decode, pack
from splatbatch.publish.tool import SplatTransform
from splatbatch.scene.rotations import rotate
from splatbatch.splats import Gaussians, mode_comments, read_header, read_splat, write_splat
from splatbatch.splats.ply import covariances

HALF_TURN = np.diag([1.0, -1.0, -1.0])
"""Around x: from PLY's right, down, forward to right, up, back."""


@pytest.fixture(scope="module")
def tool() -> SplatTransform:
    return tool_or_skip()


@pytest.fixture
def splat(tmp_path: Path) -> SourcePart:
    return part_of(tmp_path / "letters.ply", letters(degree=1))


def part_of(path: Path, gaussians: Gaussians) -> SourcePart:
    write_splat(path, gaussians, 1)
    return SourcePart("p0", path, 0, len(gaussians), "")


def job(splat: SourcePart, kind: str, work: Path) -> ConversionJob:
    (work / kind).mkdir()
    return ConversionJob(splat, FORMATS[kind], work / kind)


def nearest(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far the farthest of some places is from the nearest of others."""
    return float(np.linalg.norm(one[:, None] - other[None], axis=2).min(axis=1).max())


@pytest.mark.contract
def test_spz_has_the_axes_of_its_specification_and_comes_back(
    splat: SourcePart, tool: SplatTransform, tmp_path: Path
) -> None:
    wanted, one = letters(degree=1), job(splat, "spz", tmp_path)
    written = convert(one, tool)
    turn = turn_between(wanted.means, spz_places(one.aside.read_bytes()))
    assert np.allclose(turn, HALF_TURN, atol=0.01)
    back = read_splat(written.decoded or Path())
    assert np.allclose(back.means, wanted.means, atol=1e-3) and np.allclose(back.scales, wanted.scales, atol=0.04)
    assert np.allclose(back.sh0, wanted.sh0, atol=0.03) and np.allclose(back.shN, wanted.shN, atol=0.05)


@pytest.mark.contract
def test_glb_has_the_axes_of_gltf(splat: SourcePart, tool: SplatTransform, tmp_path: Path) -> None:
    one = job(splat, "glb", tmp_path)
    written = convert(one, tool)
    turn = turn_between(letters().means, glb_places(one.aside))
    assert np.allclose(turn, np.diag([-1.0, -1.0, 1.0]), atol=1e-4)  # glTF: y up, z forward, so x leads left
    assert written.num_gaussians == len(letters())


@pytest.mark.contract
@pytest.mark.parametrize("degree", [pytest.param(0, marks=pytest.mark.all), 3])
def test_glb_comes_back_turned_as_it_was(tool: SplatTransform, tmp_path: Path, degree: int) -> None:
    wanted = letters(degree)
    back = read_splat(convert(job(part_of(tmp_path / "a.ply", wanted), "glb", tmp_path), tool).decoded or Path())
    assert np.allclose(back.means, wanted.means, atol=1e-5) and np.allclose(back.scales, wanted.scales, atol=1e-4)
    assert np.allclose(back.sh0, wanted.sh0, atol=1e-5) and np.allclose(back.shN, wanted.shN, atol=1e-5)
    assert np.allclose(back.opacities, wanted.opacities, atol=1e-3)
    assert np.allclose(*(covariances(one.scales, one.quats) for one in (back, wanted)), atol=1e-5)


@pytest.mark.parametrize("content", [b"", b"glTF" + bytes(40), b"no glTF at all, but as long as one would be"])
def test_what_is_no_gltf_is_not_read(content: bytes) -> None:
    with pytest.raises(ValueError, match="glTF"):
        decode(content)


@pytest.mark.all
def test_sog_and_compressed_ply_come_back_where_they_were(
    splat: SourcePart, tool: SplatTransform, tmp_path: Path
) -> None:
    pytest.importorskip("gsply", reason="gsply is not installed (extra web)")
    for kind in ("sog", "compressed"):
        back = read_splat(convert(job(splat, kind, tmp_path), tool).decoded or Path())
        assert nearest(back.means, letters().means) < 0.01 > nearest(letters().means, back.means)
        for which in range(3):  # each letter in its own plane, in its own colour
            own = back.sh0.argmax(axis=1) == which
            assert own.sum() == len(back) // 3
            assert np.abs(back.means[own][:, 3 - sum(((0, 1), (1, 2), (2, 0))[which])]).max() < 0.01


@pytest.mark.all(but=("ply-True", "ply-False"))
@pytest.mark.parametrize("is_antialiased", [True, False])
@pytest.mark.parametrize("kind", ["ply", "compressed", "sog", "spz", "streamed"])
def test_how_a_splat_is_drawn_goes_with_it(
    tool: SplatTransform, tmp_path: Path, kind: str, is_antialiased: bool
) -> None:
    if kind == "compressed":
        pytest.importorskip("gsply", reason="gsply is not installed (extra web)")
    path, one = tmp_path / "a.ply", letters(degree=1)
    write_splat(path, one, 1, comments=mode_comments(is_antialiased))
    made = job(SourcePart("p0", path, 0, len(one), ""), kind, tmp_path)
    found = convert(made, tool).decoded or made.aside
    assert bool(read_header(found).antialiased) is is_antialiased


@pytest.mark.parametrize("is_antialiased", [True, False])
def test_a_tile_says_how_it_is_drawn(is_antialiased: bool) -> None:
    packed = pack(letters(), is_antialiased=is_antialiased)
    assert gzip.decompress(packed)[14] == is_antialiased  # the byte of flags, whose first bit it is


@pytest.mark.all
def test_one_gaussian_without_direction_comes_back(tool: SplatTransform, tmp_path: Path) -> None:
    alone = Gaussians(**{name: values[:1] for name, values in vars(letters()).items()})
    for kind in ("sog", "spz"):
        written = convert(job(part_of(tmp_path / f"{kind}.ply", alone), kind, tmp_path), tool)
        assert written.num_gaussians == 1


@pytest.mark.all
def test_a_large_scene_is_streamed_piece_by_piece_as_one(
    tool: SplatTransform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "LEAST_IN_LEVEL", 30)
    whole = part_of(tmp_path / "letters.ply", letters())
    pieces = tuple(SourcePart(f"p{i}", whole.path, 36 * i, 36, "") for i in range(3))
    one = replace(job(whole, "streamed", tmp_path), pieces=pieces)
    assert convert(one, tool).num_gaussians == 108
    said = json.loads(one.entry.read_text())
    assert said["counts"] == [108, 54]


@pytest.mark.all
def test_the_page_has_the_sky_above(splat: SourcePart, tool: SplatTransform, tmp_path: Path) -> None:
    for up in np.random.default_rng(5).normal(size=(2, 3)):
        stage = UprightScene(up / np.linalg.norm(up), None, None)
        tool.must([str(splat.path), *stage.tool_turn, str(tmp_path / "turned.ply")], "turn")
        found, wanted = read_splat(tmp_path / "turned.ply"), rotate(letters().means, stage.turn)
        assert np.allclose(found.means, wanted, atol=1e-4)
        tool.must([str(tmp_path / "turned.ply"), *stage.tool_turn_back, str(tmp_path / "back.ply")], "turn back")
        assert np.allclose(read_splat(tmp_path / "back.ply").means, letters().means, atol=1e-4)
        assert np.allclose(rotate(stage.up[None], stage.turn), [[0, -1, 0]], atol=1e-9)
        assert np.allclose(stage.in_viewer(stage.up[None]), [[0, 1, 0]], atol=1e-9)


def test_a_part_of_a_file_is_written_alone(tmp_path: Path) -> None:
    whole = part_of(tmp_path / "letters.ply", letters(degree=1))
    part = SourcePart("p1", whole.path, 36, 36, "")
    one = job(part, "ply", tmp_path)
    convert(one, None)
    found = read_splat(one.aside)
    assert np.array_equal(found.means, letters().means[36:72]) and found.shN.shape == (36, 3, 3)


def fake_tool(folder: Path, script: str, bounds: CallBounds) -> SplatTransform:
    program = folder / "tool.sh"
    program.write_text(script)
    return SplatTransform(shutil.which("sh") or "sh", program, bounds)


def call(folder: Path, script: str, bounds: CallBounds, monkeypatch: pytest.MonkeyPatch) -> OutputError:
    """Convert with a program in place of the tool; return what is said of it."""
    monkeypatch.setattr(SplatTransform, "run", run_plainly)
    one = job(part_of(folder / "a.ply", letters(degree=1)), "spz", folder)
    with pytest.raises(OutputError) as refused:
        convert(one, fake_tool(folder, script, bounds))
    return refused.value


def run_plainly(self: SplatTransform, arguments: tuple[str, ...], wall_s: float | None = None) -> object:
    from splatbatch.machine.limited_program import run_bounded

    bounds = CallBounds(min(wall_s or self.bounds.wall_s, self.bounds.wall_s), self.bounds.memory_mib)
    return run_bounded([self.node, str(self.program), *arguments], bounds)


@pytest.mark.contract
def test_a_tool_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = call(tmp_path, "echo begun; sleep 60", CallBounds(0.3), monkeypatch)
    assert "p0: spz: splat-transform was ended after 0.3 s (last: begun)" in error.message
    assert "smaller patches" in error.hint


@pytest.mark.contract
def test_a_tool_that_takes_too_much_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = 'exec python3 -c "a = bytearray(300 << 20); import time; time.sleep(60)"'
    error = call(tmp_path, greedy, CallBounds(30, 256), monkeypatch)
    assert "256 may be used" in error.message and "smaller patches" in error.hint


@pytest.mark.parametrize(
    ("ended", "words"),
    [(ProgramEnd(1, "no such codec\n"), "exit code 1: no such codec"), (ProgramEnd(0, ""), "wrote nothing")],
    ids=["fails", "writes-nothing"],
)
def test_a_tool_that_fails_is_quoted_and_one_that_writes_nothing_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: ProgramEnd, words: str
) -> None:
    monkeypatch.setattr(SplatTransform, "run", lambda *_: ended)
    one = job(part_of(tmp_path / "a.ply", letters(degree=1)), "spz", tmp_path)
    with pytest.raises(OutputError, match=words):
        convert(one, fake_tool(tmp_path, "", CallBounds()))


def test_colours_that_take_too_long_to_pack_are_left_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_s = list[float | None]()

    def quick_without_colours(_: SplatTransform, arguments: list[str], wall_s: float | None = None) -> ProgramEnd:
        given_s.append(wall_s)
        if "-H 0" not in " ".join(arguments):
            return ProgramEnd(-9, "", exceeded="time", seconds=wall_s or 0)
        Path(arguments[-1]).write_text("x")
        return ProgramEnd(0, "")

    monkeypatch.setattr(SplatTransform, "run", quick_without_colours)
    monkeypatch.setattr(converting, "CLUSTERED", (Rung(0.02), Rung(0.02, (), ("-H", "1")), CLUSTERED[2]))
    monkeypatch.setattr(converting, "_read_back", lambda one, tool: converting.ConvertedFile(1))
    one = job(part_of(tmp_path / "a.ply", letters(degree=1)), "streamed", tmp_path)
    assert convert(one, fake_tool(tmp_path, "", CallBounds(10.0))).notes == (CLUSTERED[2].note,)
    assert given_s == [0.2, 0.2, CLUSTERED[2].share * 10.0]
