"""The house has no circles; its sizes are printed and break nothing."""

from __future__ import annotations

import json
import subprocess
import sys

from fake_batch import ROOT


def test_no_circle_of_imports() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "scripts/house", "--json"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, json.loads(told.stdout)["broken"]) == (0, [])
