"""A splat that was trained from a bundle is the one that would have been trained at home, byte by byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_batch import QUARRY


def command(folder: Path, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "splatbatch", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr  # 1: of the other patch there is no splat
    return ended.stdout + ended.stderr


def quarry(folder: Path) -> Path:
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("output"))
    config = folder / "splat_config.yml"
    config.write_text(config.read_text().replace("max_steps: 300", "max_steps: 60\n  device: cpu"))
    return folder


@pytest.mark.all
def test_the_quarry_comes_home_as_it_would_have_been_trained_there(tmp_path: Path) -> None:
    home, away, far = quarry(tmp_path / "home"), quarry(tmp_path / "elsewhere" / "away"), tmp_path / "far"
    command(home, "train", "p0")
    command(away, "pack", "p0", "--to", str(tmp_path / "store"))
    far.mkdir()
    command(far, "work", str(tmp_path / "store"), "--scratch", "scratch")
    command(away, "adopt", str(tmp_path / "store"))
    splats = [(folder / "output/patches/p0/splat.ply").read_bytes() for folder in (home, away)]
    assert splats[0] == splats[1]
    assert list((away / "output/patches/p0/attempt-01/renders").iterdir())
