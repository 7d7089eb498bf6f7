"""How much a merge takes: memory of one patch whatever the total, and a hundred megabytes in a second."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import big_merge
import pytest

ROW_BYTES = {0: 56, 1: 92, 2: 152, 3: 236}
"""Of a Gaussian, by the degree of its harmonics."""
LEAST_BYTES_PER_S = 100e6
MOST_MEMORY = 1.5
"""Times the largest patch."""


def merged(folder: Path, millions: float, degree: int) -> dict[str, Any]:
    command = [sys.executable, big_merge.__file__, str(folder), str(millions), str(degree)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.all
def test_five_million_gaussians_are_merged_in_little_memory_and_time(tmp_path: Path) -> None:
    took = merged(tmp_path, 5, 0)
    assert took["num"] > 5e6
    assert took["more"] <= MOST_MEMORY * took["largest"]
    # by the processor's time: others may be using disk and cores
    assert took["bytes"] / took["cpu_s"] >= LEAST_BYTES_PER_S
    shutil.rmtree(tmp_path)


@pytest.mark.long
def test_fifty_million_gaussians_are_merged_in_little_memory_and_time(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    free = shutil.disk_usage(tmp_path).free
    degree = max(
        (d for d, size in ROW_BYTES.items() if 50e6 * size * 4 < free), default=0
    )  # all of it, and as much room
    took = merged(tmp_path, 50, degree)
    speeds = [took["bytes"] / took[f"{clock}_s"] / 1e6 for clock in ("wall", "cpu")]
    said = f"{took['num']:,} Gaussians of degree {degree}, {took['bytes'] / 1e9:.1f} GB"
    said += ": {:.0f} MB/s, {:.0f} MB in a second of the processor".format(*speeds)
    record_property("figure", f"{said}, {took['peak'] / took['largest']:.2f} of the largest patch in memory")
    assert took["num"] > 50e6
    assert took["peak"] <= MOST_MEMORY * took["largest"]
    assert took["bytes"] / took["cpu_s"] >= LEAST_BYTES_PER_S
    shutil.rmtree(tmp_path)
