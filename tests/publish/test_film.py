"""Films: a way through the cameras that does not jerk, frames that show the splat, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from cut_batch import trained
from cut_quarry import QUARRY
from PIL import Image

from splatbatch.errors import ConfigError, OutputError, SceneError
from splatbatch.machine.limited_program import ProgramEnd
from splatbatch.output.records.evaluation import FilmSettings
from splatbatch.publish import film as filming
from splatbatch.publish.film import Film
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.training.film import draw, fly


def test_a_flight_is_smooth_and_passes_cameras_of_the_scene() -> None:
    images = read_images(QUARRY / "sparse/0")
    poses = fly(images, 200)
    places, rotations = (np.array(values) for values in zip(*poses, strict=True))
    steps = np.diff(places, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    bends = np.linalg.norm(np.diff(steps, axis=0), axis=1)
    assert bends.max() < 0.2 * lengths.mean() and lengths.max() < 3 * lengths.mean()
    assert np.allclose(rotations @ rotations.transpose(0, 2, 1), np.eye(3), atol=1e-9)
    assert np.allclose(np.linalg.det(rotations), 1)
    turned = np.einsum("nij,nij->n", rotations[1:], rotations[:-1])  # 3: not at all
    assert turned.min() > 3 - 0.02
    centers = np.array([image.center() for image in images])
    nearest = np.linalg.norm(places[:, None] - centers[None], axis=2).min(axis=1)
    assert np.median(nearest) < np.ptp(centers, axis=0).max() / 4


def test_one_camera_stands_still() -> None:
    image = read_images(QUARRY / "sparse/0")[0]
    poses = fly([image], 3)
    assert len(poses) == 3 and all(np.array_equal(place, image.center()) for place, _ in poses)


def test_a_model_without_a_camera_that_stands_anywhere_is_not_filmed(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 8 6 8 8 4 3\n")
    (tmp_path / "images.txt").write_text("1 0 0 0 0 0 0 0 1 a.png\n\n2 1 0 0 0 nan 0 0 1 b.png\n\n")
    (tmp_path / "points3D.txt").touch()
    settings = FilmSettings(
        sparse=str(tmp_path), num_frames=3, width=8, height=6, recipe={"training": {"device": "cpu"}}
    )
    with pytest.raises(SceneError, match="no camera with a pose for the film to fly past: reconstruct it again"):
        draw(settings, tmp_path / "frames.rgb")
    assert not (tmp_path / "frames.rgb").exists()


@pytest.mark.all
def test_a_patch_is_filmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    batch, out = trained(tmp_path / "batch"), tmp_path / "film/a.mp4"
    ended = invoke("publish", "p0", "--as", "mp4", "--to", str(out), "--frames", "3", "--size", "40x30", batch=batch)
    assert ended.code == 0, ended.err
    assert "3 frames in" in ended.err and "a second" in ended.err
    assert "ffmpeg is not installed: the film is written as a GIF" in ended.err and "a.gif" in ended.out
    assert [path.name for path in out.parent.iterdir()] == ["a.gif"]
    with Image.open(out.with_suffix(".gif")) as film:
        assert (film.n_frames, film.size) == (3, (40, 30)) and np.asarray(film.convert("RGB")).std() > 5
    again = invoke("publish", "p0", "--as", "mp4", "--to", str(out), "--frames", "3", "--size", "40x30", batch=batch)
    assert again.code == 6 and "the file exists already" in again.err


def encode(tmp_path: Path, ffmpeg: Callable[..., ProgramEnd], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Encode some frames by what stands in for ffmpeg."""
    program = tmp_path / "bin/ffmpeg"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(filming, "run_bounded", ffmpeg)
    film, frames = Film(tmp_path / "a.mp4", 32, 24, 2), tmp_path / "frames.rgb"
    frames.write_bytes(bytes(2 * film.frame_bytes))
    return filming._encoded(frames, film, tmp_path, lambda _: None)


def test_frames_go_to_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(command: list[str], *_: object, **__: object) -> ProgramEnd:
        Path(command[-1]).write_text(" ".join(command[1:]))
        return ProgramEnd(0, "")

    place = encode(tmp_path, written, monkeypatch)
    told = place.read_text()
    assert place == tmp_path / "a.mp4"
    assert "-f rawvideo -pix_fmt rgb24 -s 32x24 -r 30 -i" in told and "libx264" in told


@pytest.mark.parametrize(
    ("ended", "words"),
    [(ProgramEnd(1, "no codec\n"), "no codec"), (ProgramEnd(0, ""), "wrote nothing")],
    ids=["fails", "writes-nothing"],
)
def test_an_ffmpeg_that_fails_leaves_no_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: ProgramEnd, words: str
) -> None:
    with pytest.raises(OutputError, match=words):
        encode(tmp_path, lambda *_, **__: ended, monkeypatch)
    assert not (tmp_path / "a.mp4").exists()


def test_what_is_no_film_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"not the name of a film"):
        Film(tmp_path / "a.txt").check(tmp_path / "output")
    with pytest.raises(OutputError, match="lies in the output folder"):
        Film(tmp_path / "output/a.mp4").check(tmp_path / "output")
    monkeypatch.setattr(filming, "free_mib", lambda _: 0)
    with pytest.raises(OutputError, match="are needed"):
        Film(tmp_path / "a.mp4").check(tmp_path / "output")
    shutil.rmtree(tmp_path / "output", ignore_errors=True)
    assert invoke("publish", "p0", "--as", "mp4", "--to", str(tmp_path / "a.mp4"), "--size", "9999999x1").code == 2
