"""`import` and what `init` says of it: one command makes a scene that verifies and trains."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from foreign_writers import (
    Scene,
    points_of,
    quarry,
    write_metashape,
    write_nerfstudio,
    write_ngp,
    write_opensfm,
    write_ply,
    write_realityscan,
)
from published_shapes import checked
from scenes import MadeScene

from splatbatch.config import load


def made(tmp_path: Path) -> Scene:
    scene = MadeScene(tmp_path / "made").write()
    return Scene(scene.sparse, scene.photographs)


WITH_POINTS = {"nerfstudio": write_nerfstudio, "realityscan": write_realityscan, "opensfm": write_opensfm}
EVERY = {**WITH_POINTS, "ngp": write_ngp, "metashape": write_metashape}


@pytest.mark.parametrize("writer", WITH_POINTS)
def test_what_was_imported_verifies_and_plans(tmp_path: Path, writer: str) -> None:
    WITH_POINTS[writer](made(tmp_path), tmp_path / "in")
    ended = invoke("import", str(tmp_path / "in"), str(tmp_path / "out"))
    assert ended.code == 0, ended.out + ended.err
    config = str(tmp_path / "out/splat_config.yml")
    assert f"Next: splatbatch train --config {config}" in " ".join(ended.out.split())
    assert invoke("verify-dims", "--config", config).code == 0
    assert "out: train: not trained yet" in invoke("train", "--dry-run", "--config", config).out


@pytest.mark.parametrize("writer", EVERY)
def test_init_says_the_one_command_that_comes_next(tmp_path: Path, writer: str) -> None:
    EVERY[writer](made(tmp_path), tmp_path / "my scene")
    ended = invoke("init", str(tmp_path / "my scene"))
    assert ended.code == 0 and not (tmp_path / "my scene/splat_config.yml").exists()
    words = shlex.split(ended.out.partition("Next: splatbatch ")[2])
    assert words[0] == "import"
    after = invoke(*words, "--no-triangulation")
    assert after.code == (0 if writer in WITH_POINTS else 3), after.err
    assert (tmp_path / "my scene-colmap/sparse/0/images.bin").is_file()


def test_init_sees_past_the_model_that_nerfstudio_keeps(tmp_path: Path) -> None:
    scene = made(tmp_path)
    write_nerfstudio(scene, tmp_path / "in")
    (tmp_path / "in/colmap/sparse").mkdir(parents=True)
    (tmp_path / "in/colmap/sparse/0").symlink_to(scene.sparse)
    assert "Next: splatbatch import" in invoke("init", str(tmp_path / "in")).out


@pytest.mark.parametrize(
    ("name", "expected"),
    [("project.psx", "is a Metashape project"), ("reconstruction.json", "opensfm export_colmap")],
)
def test_init_says_what_to_export_first(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / name).write_text('[{"cameras": {}}]')
    ended = invoke("init", str(tmp_path))
    assert ended.code == 3 and expected in ended.err


def test_a_broken_source_ends_with_3_and_its_mistakes(tmp_path: Path) -> None:
    path = write_nerfstudio(made(tmp_path), tmp_path / "in")
    path.write_text(path.read_text()[:500])
    ended = invoke("import", str(tmp_path / "in"), str(tmp_path / "out"))
    assert ended.code == 3 and "no complete JSON" in ended.err and "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


def test_what_the_audit_finds_in_the_result_is_told_and_ends_with_3(tmp_path: Path) -> None:
    write_ngp(made(tmp_path), tmp_path / "in")
    ended = invoke("import", str(tmp_path / "in"), str(tmp_path / "out"), "--no-triangulation")
    assert ended.code == 3 and "no_points" in ended.out
    assert "points: the source has none, and none were triangulated" in ended.out


def test_programs_get_json(tmp_path: Path) -> None:
    write_opensfm(made(tmp_path), tmp_path / "in")
    ended = invoke("import", str(tmp_path / "in"), str(tmp_path / "out"), "--json")
    told = checked("import", ended.out)
    assert (told["kind"], told["num_points"], told["audit"]["num_errors"]) == ("COLMAP export", 12, 0)


def test_offset_and_hold_out_stand_in_the_yaml(tmp_path: Path) -> None:
    scene = made(tmp_path)
    path = write_nerfstudio(scene, tmp_path / "in", applied=False)
    top, far = json.loads(path.read_text()), np.array([500_000.0, 4_500_000.0, 100.0])
    for frame in top["frames"]:
        for row, by in zip(frame["transform_matrix"], far, strict=False):
            row[3] += by
    top["test_filenames"] = ["images/03.jpg"]
    path.write_text(json.dumps(top))
    xyz, rgb = points_of(scene.model())
    write_ply(tmp_path / "in/sparse_pc.ply", xyz + far, rgb)
    assert invoke("import", str(tmp_path / "in"), str(tmp_path / "out")).code == 0
    config = load(tmp_path / "out/splat_config.yml")
    assert np.abs(np.array(config.scene.offset) - far).max() < 10
    assert config.evaluation.holdout_list is not None and config.evaluation.holdout_list.read_text() == "03.jpg\n"


@pytest.mark.parametrize("option", [("--chunk", "Chunk 1"), ("--images", "nowhere")])
def test_options_that_do_not_fit_are_said(tmp_path: Path, option: tuple[str, str]) -> None:
    write_nerfstudio(made(tmp_path), tmp_path / "in")
    ended = invoke("import", str(tmp_path / "in"), str(tmp_path / "out"), *option)
    assert ended.code == 2 and option[0] in ended.err


TRAINED = """\
scene: {{patches: "{scene}"}}
training: {{max_steps: 200, resolution: "1/2", strategy: default, cap_max: 20000, init_opacity: 0.3, device: cpu}}
executor: {{gpus: []}}
output: {{folder: "{out}"}}
"""


@pytest.mark.long
@pytest.mark.parametrize("writer", ["nerfstudio", "ngp", "opensfm", "metashape"])
def test_an_imported_quarry_trains_as_well_as_the_original(tmp_path: Path, writer: str) -> None:
    scene = quarry()
    EVERY[writer](scene, tmp_path / "in")
    options = []
    if writer in ("ngp", "metashape"):  # formats without points: those of the original, so that poses alone differ
        write_ply(tmp_path / "points.ply", *points_of(scene.model()))
        options = ["--points", str(tmp_path / "points.ply")]
    assert invoke("import", str(tmp_path / "in"), str(tmp_path / "out"), *options).code == 0
    (tmp_path / "original").mkdir()
    (tmp_path / "original/sparse").symlink_to(scene.sparse.parent.absolute())
    (tmp_path / "original/images").symlink_to(scene.photographs.absolute())
    assert abs(psnr(tmp_path, "out") - psnr(tmp_path, "original")) < 0.1


def psnr(tmp_path: Path, name: str) -> float:
    """Train a scene and return its hold-out PSNR in dB."""
    config = tmp_path / f"{name}.yml"
    config.write_text(TRAINED.format(scene=tmp_path / name, out=tmp_path / f"{name}-trained"))
    assert invoke("train", "--config", str(config)).code == 0
    result = json.loads((tmp_path / f"{name}-trained/patches/{name}/result.json").read_text())
    return float(result["metrics"]["final"]["psnr"])
