"""Our kernels compile without a GPU, a toolkit or a compiler, for all GPUs of today; what is kept is whole."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from sampled import each

from splatbatch.training.cuda import compile as compiling
from splatbatch.training.cuda.compile import ARCHITECTURES, PROGRAMS, CompileError, best_of, cubin, lacking
from splatbatch.training.cuda.sources import kernels


def has_nvrtc() -> bool:
    try:
        compiling.nvrtc()
    except CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC here: pip install nvidia-cuda-nvrtc")
ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("compiling", sys.argv[1])
compiling = sys.modules["compiling"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compiling)
"""
PARAMETERS_FROM = {75: 352, 80: 352, 86: 352, 90: 528, 100: 896, 120: 896}
"""Bytes of a kernel's constants before its parameters, by architecture (measured, NVRTC 13.0)."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLATBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "SHIPPED", tmp_path / "shipped")
    compiling.compile_all.cache_clear()
    return tmp_path / "cache" / "kernels"


def sections(elf: bytes) -> dict[str, int]:
    """Return the sizes of an ELF file's sections, by name (ELF-64)."""
    start, _, _, _, _, size, num, names_at = struct.unpack_from("<QIHHHHHH", elf, 0x28)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + index * size) for index in range(num)]
    names = headers[names_at][4]
    return {elf[names + one[0] : elf.index(b"\0", names + one[0])].decode(): one[5] for one in headers}


@pytest.mark.all
@needs_nvrtc
@pytest.mark.parametrize("architecture", each(6, ARCHITECTURES))
def test_all_kernels_compile_and_take_what_python_gives_them(architecture: int) -> None:
    found: dict[str, int] = {}
    for program in PROGRAMS:
        found |= sections(compiling.nvrtc().compile(program, architecture))
    sizes = {name: found[f".nv.constant0.{name}"] - PARAMETERS_FROM[architecture] for name in kernels()}
    assert sizes == {name: sum(map(ctypes.sizeof, one.arguments)) for name, one in kernels().items()}


def test_all_kernels_are_found_in_the_sources() -> None:
    written = sum(path.read_text().count("\nKERNEL(") for path in compiling.SOURCE.glob("*.cu"))
    assert len(kernels()) == written >= 15
    assert {kernel.threads for kernel in kernels().values()} == {128, 256}


@needs_nvrtc
def test_what_is_compiled_is_kept_and_not_compiled_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(lacking((9, 0))) == set(PROGRAMS)
    first = cubin("step", (9, 0))
    assert "step" not in lacking((9, 0))
    monkeypatch.setattr(compiling.Nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    assert cubin("step", (9, 0)) == first
    assert len([*own_cache.iterdir()]) == 1


@needs_nvrtc
@pytest.mark.parametrize(
    "damage", [lambda kept: kept[: len(kept) // 2], lambda kept: b"", lambda kept: kept[:-1] + b"!"]
)
def test_what_was_cut_in_half_is_compiled_again(own_cache: Path, damage: object) -> None:
    first = cubin("step", (9, 0))
    (kept,) = own_cache.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))  # type: ignore[operator]
    assert cubin("step", (9, 0)) == first
    assert lacking((9, 0)) == tuple(name for name in PROGRAMS if name != "step")


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_told_and_does_no_harm(own_cache: Path) -> None:
    own_cache.parent.write_text("a file")
    made = cubin("step", (9, 0))
    assert made.content.startswith(b"\x7fELF")
    assert str(own_cache) in made.unkept


@needs_nvrtc
def test_of_too_many_kept_the_oldest_go(own_cache: Path) -> None:
    own_cache.mkdir(parents=True)
    for number in range(compiling.MOST_KEPT + 5):
        (own_cache / f"old.{number}").touch()
        os.utime(own_cache / f"old.{number}", (number, number))
    first = cubin("step", (9, 0))
    assert len([*own_cache.iterdir()]) == compiling.MOST_KEPT
    assert not (own_cache / "old.0").exists()
    assert cubin("step", (9, 0)) == first


@pytest.mark.all
@needs_nvrtc
def test_processes_that_compile_at_once_all_succeed(own_cache: Path) -> None:
    code = f"{ALONE}print(len(compiling.cubin('step', (8, 0)).content))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(compiling.__file__)]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=120)[0] for process in running}
    assert len(said) == 1 and int(said.pop()) > 1000
    assert len([*own_cache.iterdir()]) == 1


@pytest.mark.all
@needs_nvrtc
def test_what_the_wheel_carries_is_taken_before_anything_is_compiled(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "SHIPPED", tmp_path / "compiled")
    monkeypatch.setattr(compiling, "PROGRAMS", {"step": (), "lists": ()})
    compiling.ship(tmp_path / "compiled")
    monkeypatch.setattr(compiling, "nvrtc", lambda: pytest.fail("asked for NVRTC"))
    assert lacking((8, 9)) == lacking((10, 3)) == ()
    assert cubin("lists", (8, 9)).is_shipped
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((8, 9), 86), ((8, 0), 80), ((10, 3), 100), ((12, 1), 120), ((7, 0), None), ((11, 0), None), ((13, 0), None)],
)
def test_machine_code_runs_on_later_gpus_of_its_major_version(
    capability: tuple[int, int], expected: int | None
) -> None:
    assert best_of(ARCHITECTURES, capability) == expected


@needs_nvrtc
@pytest.mark.parametrize(
    ("capability", "said"),
    [((6, 1), "below 7.0"), ((7, 0), "an older torch"), ((14, 0), "a newer torch")],
)
def test_a_gpu_that_cannot_be_compiled_for_is_told_with_what_helps(capability: tuple[int, int], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        cubin("step", capability)


def test_without_nvrtc_it_is_said_who_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_candidates", lambda: iter(()))
    compiling.nvrtc.cache_clear()
    with pytest.raises(CompileError, match="torch's CUDA wheels bring it"):
        cubin("step", (9, 0))
    compiling.nvrtc.cache_clear()


@needs_nvrtc
def test_a_refusal_names_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step.cu").write_text('extern "C" __global__ void adam() { int broken = ; }')
    monkeypatch.setattr(compiling, "SOURCE", tmp_path)
    with pytest.raises(CompileError, match=r"step.cu\(1\): error: expected an expression"):
        compiling.nvrtc().compile("step", 90)


@pytest.mark.contract
def test_nothing_of_it_imports_torch_so_that_a_wheel_is_built_without_one() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"{ALONE}sys.exit('torch' in sys.modules)", str(compiling.__file__)]
    subprocess.run(command, env=environment, check=True)
