"""What people type wrongly first: each is told by its place, its cause and what to type instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ended, invoke
from scenes import MadeScene

from splatbatch.config import load

A_SCENE = "A scene has photographs in images/ and their COLMAP model"


@pytest.fixture
def reef(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeScene:
    """A scene beside which commands are typed, without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    return MadeScene(Path("reef")).write()


def told(ended: Ended, code: int) -> str:
    assert ended.code == code, ended
    return " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("command", "code"),
    [("init reff", 3), ("import reff new", 3), ("split --source reff --out new", 3), ("train --config reff/c.yml", 2)],
)
def test_a_path_that_is_not_there_gets_the_nearest_name(reef: MadeScene, command: str, code: int) -> None:
    assert "Did you mean reef?" in told(invoke(*command.split()), code)


def test_a_path_of_the_yaml_that_is_not_there_gets_the_nearest_name(reef: MadeScene) -> None:
    Path("c.yml").write_text("scene: {patches: reff}")
    assert "Did you mean reef?" in told(invoke("plan", "--config", "c.yml"), 3)


def test_a_model_without_points_gets_the_command_that_finds_some(reef: MadeScene) -> None:
    (reef.sparse / "points3D.bin").unlink()
    finding = reef.audit().errors()[0]
    assert finding.kind == "missing_model" and "splatbatch import reef/sparse/0 NEW" in finding.remedy


def test_photographs_without_a_model_get_the_command_that_makes_one(reef: MadeScene) -> None:
    reef.sparse.rename("elsewhere")
    assert "splatbatch reconstruct" in told(invoke("init", "reef"), 3)
    assert "splatbatch reconstruct reef/images" in told(invoke("import", "reef", "new"), 3)


def test_init_of_a_file_says_what_the_file_is(reef: MadeScene) -> None:
    Path("c.yml").write_text("scene: {patches: reef}")
    assert "a file, not a folder" in told(invoke("init", "c.yml"), 3)
    assert "verify-dims --config c.yml" in told(invoke("init", "c.yml"), 3)
    Path("scan.psx").touch()
    assert "scan.psx is a Metashape project" in told(invoke("init", "scan.psx"), 3)


@pytest.mark.parametrize(
    ("key", "right"), [("max_steps: 100", "training.max_steps"), ("patches: {}\nsource: reef", "scene.source")]
)
def test_a_key_outside_of_its_section_gets_the_section(reef: MadeScene, key: str, right: str) -> None:
    Path("c.yml").write_text(key)
    assert right in told(invoke("plan", "--config", "c.yml"), 2)


@pytest.mark.usefixtures("script")
def test_train_of_a_folder_writes_its_configuration_and_trains(reef: MadeScene) -> None:
    trained = invoke("train", "reef", "--set", "training.max_steps=3")
    assert trained.code in (0, 1) and Path("reef/splat_config.yml").is_file()
    assert "reef/splat_config.yml: 1 patch" in trained.err and Path("reef/output/report.html").is_file()


def test_a_folder_stands_for_the_configuration_in_it(reef: MadeScene) -> None:
    assert "splatbatch init reef" in told(invoke("status", "reef"), 2)
    assert invoke("init", "reef").code == 0
    for words in (
        ("status", "reef"),
        ("status", "reef/images"),
        ("status", "--config", "reef"),
        ("-c", "reef", "status"),
    ):
        assert invoke(*words).code == 0, words


def test_train_of_a_folder_that_is_not_there_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = invoke("train", "reff")
    assert ended.code == 2 and "reff: there is no such folder either" in ended.err and "splatbatch init" in ended.err


def test_train_of_a_folder_without_a_scene_says_what_lies_there(reef: MadeScene) -> None:
    Path("empty").mkdir()
    assert f"empty: an empty folder. {A_SCENE}" in told(invoke("train", "empty"), 2)


@pytest.mark.parametrize("option", ["--config c.yml", "-c c.yml", "--config=c.yml"])
@pytest.mark.parametrize("command", ["status", "config show"])
def test_the_configuration_may_stand_before_the_command(reef: MadeScene, option: str, command: str) -> None:
    Path("c.yml").write_text("scene: {patches: reef}")
    assert invoke(*option.split(), *command.split()).code == 0


def test_init_of_an_empty_folder_says_what_belongs_there(reef: MadeScene) -> None:
    Path("empty").mkdir()
    said = told(invoke("init", "empty"), 3)
    assert f"empty: an empty folder hint: {A_SCENE}" in said and "scene.patches" not in said


@pytest.mark.parametrize("command", ["split --source {} --out full", "import {} full", "scene --source {} --out full"])
def test_a_wrong_source_is_said_before_a_wrong_target(reef: MadeScene, command: str) -> None:
    Path("full/patches").mkdir(parents=True)
    Path("full/patches/x").touch()
    assert told(invoke(*command.format("reff").split()), 3).count("splatbatch: reff: no such")


def test_what_lies_around_a_path_is_told_only_where_that_helps(reef: MadeScene) -> None:
    assert "Did you mean" not in told(invoke("clean", "--config", str(Path.cwd())), 2)
    assert "/ holds" not in told(invoke("serve", "--config", "/nonexistent"), 2)


@pytest.mark.parametrize(
    ("command", "code", "told_so"),
    [
        ("clean", 0, "nothing to remove"),
        ("accept reef -a 1", 2, "reef: no attempt 1 (there are: none)"),
        ("cancel", 0, "no batch is running"),
        ("evaluate", 3, "Cut the scene first"),
        ("publish --as ply", 6, "reef: waiting"),
    ],
)
def test_what_comes_after_training_says_so_where_nothing_is_trained(
    reef: MadeScene, command: str, code: int, told_so: str
) -> None:
    assert invoke("init", "reef").code == 0
    ended = invoke(*command.split(), "--config", "reef/splat_config.yml")
    assert ended.code == code and told_so in ended.out + ended.err


def test_where_image_names_begin_with_images_the_splats_go_beside_the_scene(reef: MadeScene) -> None:
    reef.images = [replace(image, name=f"images/{image.name}") for image in reef.images]
    reef.write_model()
    assert invoke("init", "reef").code == 0
    assert load(Path("reef/splat_config.yml")).output.folder.resolve() == Path("reef_splats").resolve()
    assert "0 errors" in invoke("verify-dims", "--config", "reef/splat_config.yml").out
