"""The house has no circles; its sizes are printed and break nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest
from fake_batch import ROOT


def test_no_circle_of_imports_and_none_that_runs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = SourceFileLoader("house", str(ROOT / "scripts/house"))
    house = module_from_spec(spec_from_loader("house", loader))
    monkeypatch.setitem(sys.modules, "house", house)  # where its dataclasses look for it
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(house)
    imports = house.imports_of(list(house.modules_of(ROOT)))
    assert house.circles(imports) == []
    assert house.upward(imports, house.layers_of(ROOT)) == []


@pytest.mark.slow
def test_its_sizes_are_printed() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "scripts/house", "--json"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, json.loads(told.stdout)["broken"]) == (0, [])
