"""The house keeps its sizes and shapes: what `scripts/house` measures breaks no limit of the design."""

from __future__ import annotations

import json
import subprocess
import sys

from fake_batch import ROOT


def test_no_limit_of_size_or_shape_is_broken() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "scripts/house", "--json"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, json.loads(told.stdout)["broken"]) == (0, [])
