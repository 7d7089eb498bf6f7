"""Every fault of scripts/plant_faults can be planted today, and its tests are there."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script() -> Any:
    loader = SourceFileLoader("plant_faults", str(ROOT / "scripts/plant_faults"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # its dataclass looks itself up
    loader.exec_module(module)
    return module


PLANT = script()


@pytest.mark.parametrize("fault", PLANT.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_and_has_tests(fault: Any) -> None:
    assert len(PLANT.places_of(fault)) == 1
    files = [ROOT / "tests" / test.partition("::")[0] for test in fault.tests]
    assert files and all(file.exists() for file in files)
