"""The first quarter of an hour: the demo, the examples, and the wheel that carries them."""

from __future__ import annotations

import email
import gzip
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from command_line import invoke
from fake_batch import ROOT

from splatbatch.config import data_files, load
from splatbatch.config.data_files import shipped
from splatbatch.report.viewer.viewer import viewer_gz

MOST_BYTES = 6 << 20


@pytest.mark.parametrize("name", ["night", "cpu", "sweep", "scenes"])
def test_an_example_is_written_whole_and_without_mistakes(tmp_path: Path, name: str) -> None:
    ended = invoke("init", "--example", name, str(tmp_path / "new"))
    assert (ended.code, "splatbatch plan --config" in ended.out) == (0, True)
    assert load(tmp_path / "new/splat_config.yml").training.max_steps > 0
    again = invoke("init", "--example", name, str(tmp_path / "new"))
    assert (again.code, "exists already" in again.err) == (2, True)


def test_an_unknown_example_is_a_mistake(tmp_path: Path) -> None:
    assert invoke("init", "--example", "day", str(tmp_path)).code == 2


def test_the_demo_is_the_quarry_and_is_planned_as_it_lies(tmp_path: Path) -> None:
    ended = invoke("demo", str(tmp_path / "a quarry"), "--no-train")
    assert ended.code == 0
    following = re.search(r"splatbatch (train .*)$", ended.out)
    assert following
    assert following[1] == f"train --config '{tmp_path}/a quarry/splat_config.yml'"
    planned = invoke("plan", "--config", f"{tmp_path}/a quarry/splat_config.yml")
    assert planned.out.count("not trained yet") == 2
    assert not (tmp_path / "a quarry/output").exists()


def test_a_dry_run_of_a_folder_without_a_yaml_plans_with_the_one_that_would_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/quarry", tmp_path / "quarry", ignore=shutil.ignore_patterns("output", "*.yml"))
    before = sorted(tmp_path.rglob("*"))
    ended = invoke("train", "--dry-run", "quarry", "p1", "--set", "training.device=cpu")
    assert (ended.code, "p1: train: not trained yet" in ended.out, "p0" in ended.out) == (0, True, False), ended
    assert "splat_config.yml: 2 patches (not written: this is a dry run)" in ended.err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ended = invoke("demo", str(tmp_path))
    assert (ended.code, "is not empty" in ended.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_where_nothing_was_installed_the_demo_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatbatch.config.data_files.shipped", lambda _: None)
    for arguments in (["demo", str(tmp_path / "d")], ["init", "--example", "night", str(tmp_path / "d")]):
        ended = invoke(*arguments)
        assert (ended.code, "not installed" in ended.err) == (6, True)
    assert not (tmp_path / "d").exists()


def test_in_a_checkout_what_is_shipped_is_that_of_the_checkout() -> None:
    assert shipped("trainers") == ROOT / "configs/trainers"
    assert shipped("quarry") == ROOT / "examples/quarry"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what git knows and the viewer as it is packed here, without a network."""
    folder = tmp_path_factory.mktemp("source")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    dist = Path("splatbatch/report/viewer/web/dist")
    if (ROOT / dist).is_dir():
        shutil.copytree(ROOT / dist, folder / dist)
    (folder / "scripts/build_web").write_text("#!/bin/sh\nexit 1\n")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=180)
    [built] = (folder / "dist").glob("*.whl")
    return built


@pytest.mark.all
def test_the_wheel_carries_what_commands_need_and_is_small(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shared = {name.partition("/share/splatbatch/")[2] for name in names if "/share/" in name}
    wanted = {f"examples/{name}.yml" for name in ("local", "cpu", "sweep", "scenes")}
    wanted |= {f"trainers/{path.name}" for path in (ROOT / "configs/trainers").glob("*.yml")}
    quarry = subprocess.run(
        ["git", "ls-files", "examples/quarry"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted |= {name.removeprefix("examples/") for name in quarry.stdout.split()}
    assert wanted <= shared
    assert wheel.stat().st_size <= MOST_BYTES
    if not viewer_gz():
        pytest.skip("the viewer is not built (scripts/build_web, needs npm): the rest of the wheel was looked at")
    assert "splatbatch/report/viewer/web/dist/viewer.js.gz" in names


@pytest.mark.all
def test_the_wheel_says_what_it_is_and_under_which_licences(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    said = email.message_from_bytes(archive.read(metadata))
    assert {one.partition(",")[0] for one in said.get_all("Project-URL", [])} >= {"Homepage", "Documentation", "Issues"}
    assert "Programming Language :: Python :: 3.13" in said.get_all("Classifier", [])
    assert "all" in said.get_all("Provides-Extra", [])
    licences = [archive.read(name).decode() for name in archive.namelist() if "/licenses/" in name]
    assert len(licences) == 2
    assert any("Copyright (c) 2011-2026 PlayCanvas Ltd." in text for text in licences)


def test_the_licence_of_the_viewer_is_that_which_the_viewer_has() -> None:
    if not viewer_gz():
        pytest.skip("the viewer is not built (scripts/build_web, needs npm)")
    head = gzip.decompress(viewer_gz()).decode().partition("*/")[0].partition("MIT License")[2]
    assert head.strip() in (ROOT / "splatbatch/report/viewer/web/LICENSES.txt").read_text()


@pytest.mark.all
def test_a_wheel_that_is_installed_finds_what_it_brought(wheel: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        tmp_path / "lib",
        wheel,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    look = "from splatbatch.config.data_files import shipped; print(shipped('quarry'), shipped('trainers'), sep='\\n')"
    environment = {"PYTHONPATH": f"{tmp_path}/lib", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        [sys.executable, "-c", look], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    quarry, trainers = map(Path, ended.stdout.split())
    assert (quarry / "images/left").is_dir() and tmp_path in quarry.parents
    assert (trainers / "brush.yml").is_file()


def test_without_an_installation_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "CHECKOUT", tmp_path)
    monkeypatch.setattr(data_files.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(data_files.site, "getuserbase", lambda: str(tmp_path))
    assert shipped.__wrapped__("quarry") is None


WORDS_OF_A_CHECKOUT = re.compile(r"\b(?:scripts|configs|examples|docs|tests)/[a-z_]+")


@pytest.mark.all
def test_no_message_names_a_file_that_is_not_installed() -> None:
    """Strings that may be shown, all of them: docstrings and comments are not."""
    import ast

    found = []
    for path in (ROOT / "splatbatch").rglob("*.py"):
        tree = ast.parse(path.read_text())
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
            if WORDS_OF_A_CHECKOUT.search(node.value) and path.name != "data_files.py"
        ]
    assert found == []


def test_the_examples_that_are_written_name_no_file_that_is_not_installed() -> None:
    for name in ("local", "cpu", "sweep", "scenes"):
        text = (ROOT / f"configs/{name}.yml").read_text()
        assert not WORDS_OF_A_CHECKOUT.findall(text)
        assert yaml.safe_load(text)
