"""Every fault of scripts/plant_faults can be planted today, and its tests are there."""

from __future__ import annotations

from typing import Any

import pytest
from fake_batch import ROOT
from loaded_script import load_script

PLANT = load_script("plant_faults")


@pytest.mark.parametrize("fault", PLANT.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_and_has_tests(fault: Any) -> None:
    assert len(PLANT.places_of(fault)) == 1
    files = [ROOT / "tests" / test.partition("::")[0] for test in fault.tests]
    assert files and all(file.exists() for file in files)
