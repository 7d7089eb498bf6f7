"""Where the bytecode of what our programs import is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import splatbatch.training, torch, json; print('imported', torch.NAME)"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a folder with a torch of one line, without bytecode beside it."""
    (tmp_path / "torch.py").write_text("NAME = 'bare'\n")
    return tmp_path


def run(bare: Path, **environment: str) -> list[Path]:
    """Import a training's package and torch in a process of its own, and return the bytecode of torch in the cache."""
    root = Path(__file__).parents[1]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = {"PYTHONPATH": f"{bare}:{root}", "SPLATBATCH_CACHE": str(bare / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=inherited | paths | environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "imported bare\n"
    return list((bare / "cache").rglob("torch.*.pyc"))


@pytest.mark.contract
def test_bytecode_is_kept_where_python_is_told_not_to_write_it(bare: Path) -> None:
    assert len(run(bare, PYTHONDONTWRITEBYTECODE="1")) == 1
    assert not (bare / "__pycache__").exists()


@pytest.mark.contract
def test_bytecode_that_lies_beside_torch_is_used(bare: Path) -> None:
    import py_compile

    beside = bare / "__pycache__" / f"torch.{sys.implementation.cache_tag}.pyc"  # wherever this process keeps its own
    py_compile.compile(str(bare / "torch.py"), cfile=str(beside))
    assert run(bare, PYTHONDONTWRITEBYTECODE="1") == []


@pytest.mark.contract
def test_whoever_says_where_bytecode_goes_is_obeyed(bare: Path) -> None:
    assert run(bare, PYTHONPYCACHEPREFIX=str(bare / "elsewhere")) == []
    assert list((bare / "elsewhere").rglob("torch.*.pyc"))
