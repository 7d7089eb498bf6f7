"""The product keeps to its budgets, its imports have no circles; sizes are counted as the design counts them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_batch import ROOT, SHARED
from loaded_script import load_script

COUNTER = SHARED / "tools/house_size.py"


@pytest.fixture(scope="module")
def house() -> Any:
    return load_script("house")


def sizes(statements: int, tokens: int = 9) -> Counter[str]:
    return Counter(statements=statements, tokens=tokens, classes=1, loose=0)


@pytest.fixture(scope="module")
def modules(house: Any) -> list[Any]:
    return list(house.modules_of(ROOT))


def test_the_product_keeps_to_its_budgets(house: Any, modules: list[Any]) -> None:
    assert list(house.Budgets.read().broken(house.sizes_of(modules))) == []


def test_no_circle_of_imports_and_none_that_runs_up(house: Any, modules: list[Any]) -> None:
    imports = house.imports_of(modules)
    assert house.circles(imports) == []
    assert house.upward(imports, house.layers_of(ROOT)) == []


@pytest.mark.all
def test_sizes_are_printed_beside_those_of_a_commit() -> None:
    command = [sys.executable, ROOT / "scripts/house", "--json", "--since", "HEAD"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["before"].keys() & told["sizes"].keys() >= {"scene", "top"}


@pytest.mark.all
@pytest.mark.skipif(not COUNTER.exists(), reason="the counter of the design (shared/tools/house_size.py) is not here")
def test_sizes_are_those_of_the_design(house: Any, modules: list[Any]) -> None:
    told = subprocess.run([sys.executable, COUNTER, ROOT], capture_output=True, text=True, check=True).stdout
    rows = {row[0].strip("()"): row for row in map(str.split, told.replace(",", "").splitlines()) if len(row) == 8}
    found = house.sizes_of(modules)
    theirs = {name: [int(row[place]) for place in (1, 2, 3, 7)] for name, row in rows.items() if name in found}
    assert {name: [row[key] for key in house.FIGURES] for name, row in found.items()} == theirs


@pytest.mark.parametrize(
    ("now", "granted", "is_broken"),
    [
        ({"a": 10, "b": 5}, 0, False),
        ({"a": 11, "b": 5}, 0, True),
        ({"a": 11, "b": 4}, 0, True),  # what another package saved is no budget until it is moved
        ({"a": 11, "b": 5}, 1, False),
        ({"a": 11, "b": 6}, 1, True),  # a grant is for all together
        ({"a": 10, "b": 5, "new": 1}, 0, True),
    ],
)
def test_packages_are_held_to_their_budgets(house: Any, now: dict[str, int], granted: int, is_broken: bool) -> None:
    budgets = house.Budgets(
        {"a": sizes(10), "b": sizes(5)}, {**dict.fromkeys(house.FIGURES, 99), "statements": granted}
    )
    assert bool(list(budgets.broken({name: sizes(number) for name, number in now.items()}))) == is_broken


def test_budgets_fall_and_never_rise(house: Any) -> None:
    budgets = house.Budgets({"a": sizes(10), "b": sizes(5), "gone": sizes(3)}, {})
    lowered = budgets.lowered({"a": sizes(7), "b": sizes(6)}).packages
    assert {name: row["statements"] for name, row in lowered.items()} == {"a": 7, "b": 5}


def test_moved_code_takes_its_budget_along(house: Any) -> None:
    budgets = house.Budgets({"a": sizes(10), "b": sizes(5)}, {})
    moved = budgets.moved("a", "new", {"a": sizes(7), "b": sizes(5), "new": sizes(4)}).packages
    assert {name: row["statements"] for name, row in moved.items()} == {"a": 7, "b": 5, "new": 3}


def test_budgets_are_read_as_they_were_written(house: Any, tmp_path: Path) -> None:
    budgets = house.Budgets.read()
    budgets.write(tmp_path / "budgets.toml")
    assert (tmp_path / "budgets.toml").read_text() == house.BUDGETS.read_text()
