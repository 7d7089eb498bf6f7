"""A task is made once: its recipe is checked once, whoever asks for it, and what changes on its way has one owner."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import invoke

import splatbatch
from splatbatch import config as configuration
from splatbatch.config import Config, Recipe
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.fingerprint import recipe_hash
from splatbatch.tasks.task import Task

if TYPE_CHECKING:
    from fake_batch import FakeBatch

SEEDS = {"variants": [{"name": "one", "set": {"training.seed": 1}}, {"name": "two", "set": {"training.seed": 2}}]}
OWN = {"p1": {"training": {"sh_degree": 0}}}
OUT_OF_MEMORY = "exit 1 torch.OutOfMemoryError: CUDA out of memory"
ROOMS = Path(splatbatch.__file__).parent


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows by every recipe that is checked once the YAML, with its variants, has been read."""
    found: list[Any] = []
    check, load = Recipe.model_validate, configuration.load

    def checks(tree: Any) -> Recipe:
        found.append(tree)
        return check(tree)

    def loads(path: Path) -> Config:
        config = load(path)
        assert config.variants is not None
        found.clear()
        return config

    monkeypatch.setattr(Recipe, "model_validate", checks)
    monkeypatch.setattr(configuration, "load", loads)
    return found


@pytest.mark.parametrize(
    ("sections", "tasks", "once"),
    [({}, 3, 1), ({"patches": OWN}, 3, 2), ({"sweep": SEEDS}, 6, 0), ({"sweep": SEEDS, "patches": OWN}, 6, 2)],
    ids=["plain", "overrides", "sweep", "sweep with overrides"],
)
def test_plan_checks_a_recipe_at_most_once_per_task(
    batch: FakeBatch, checked: list[Any], sections: dict[str, Any], tasks: int, once: int
) -> None:
    batch.make("p0", "p1", "p2", **sections)
    said = invoke("plan", batch=batch).out
    assert said.count(": train: ") == tasks
    assert len(checked) == once


@pytest.mark.parametrize(
    ("sections", "fails", "once"),
    [({}, "p0", 2), ({"sweep": SEEDS}, "p0@one", 1), ({"sweep": SEEDS, "patches": OWN}, "p1@one", 3)],
    ids=["plain", "sweep", "sweep with overrides"],
)
def test_train_checks_a_recipe_once_per_task_and_once_more_per_rung(
    batch: FakeBatch, checked: list[Any], sections: dict[str, Any], fails: str, once: int
) -> None:
    batch.make("p0", "p1", **sections).script(**{fails: [OUT_OF_MEMORY, "train"]})
    assert invoke("train", batch=batch).code == 0
    changes = [event["changes"] for event in batch.events("attempt_started") if event["patch"] == fails]
    assert [bool(each) for each in changes] == [False, True]
    assert len(checked) == once < len(batch.events("attempt_started"))


def test_a_rung_makes_another_setup_of_the_same_task(batch: FakeBatch) -> None:
    (task,) = open_batch(batch.make("p0", sweep={"variants": SEEDS["variants"][:1]}).config).tasks
    setup = task.next_settings.changed({"training.sh_degree": 0})
    assert replace(task, next_settings=setup).id == task.id
    assert (setup.recipe.training.sh_degree, setup.recipe.training.seed) == (0, 1)
    assert task.next_settings.trainer is task.next_settings.trainer is not setup.trainer


def test_patches_that_are_trained_alike_share_recipe_and_trainer(batch: FakeBatch) -> None:
    first, own, last = open_batch(batch.make("p0", "p1", "p2", patches=OWN).config).tasks
    assert first.next_settings is last.next_settings is not own.next_settings


def test_whatever_changes_in_the_scheduler_is_assigned_in_one_module() -> None:
    fields = {field: set[str]() for field in changing_fields()}
    for path in (ROOMS / "scheduler").glob("*.py"):
        for field in assigned(path) & fields.keys():
            fields[field].add(path.stem)
    assert {field: modules for field, modules in fields.items() if len(modules) > 1} == {}
    assert fields["handle"] == {"launch"}


def test_a_task_never_changes() -> None:
    (params,) = [Task.__dataclass_params__]  # type: ignore[attr-defined]
    assert params.frozen


def test_the_name_of_a_task_is_made_and_split_in_one_class() -> None:
    users = {path.stem for path in ROOMS.rglob("*.py") for node in ast.walk(tree_of(path)) if is_named(node)}
    assert users == {"sweep"}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_named(node: ast.AST) -> bool:
    """Return whether a node is about the sign between patch and variant."""
    is_sign = isinstance(node, ast.Constant) and node.value == "@"
    return is_sign or (isinstance(node, ast.Name) and node.id == "SEPARATOR")


def changing_fields() -> set[str]:
    """Return the fields of the scheduler's dataclasses that are not frozen."""
    classes = [
        node
        for path in (ROOMS / "scheduler").glob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    ]
    changing = [one for one in classes if not any("frozen=True" in ast.unparse(each) for each in one.decorator_list)]
    return {
        node.target.id
        for one in changing
        for node in one.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_"
    } | {"outcomes", "why_stopped"}


def assigned(path: Path) -> set[str]:
    """Return the attributes that a module assigns, or whose members it assigns, on whatever object."""
    found = set()
    for node in ast.walk(tree_of(path)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else ():
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                owner = one.value if isinstance(one, ast.Subscript) else one
                found |= {owner.attr} if isinstance(owner, ast.Attribute) else set()
    return found


@pytest.mark.parametrize(("asked", "max_steps", "cap", "counting"), [
    ("auto", 30_000, 9, 4), ("auto", 7_000, 9, 2), (3, 30_000, 9, 2), (3, 30_000, "auto", 4),
    ("auto", 30_000, "auto", 8),
])  # fmt: skip
def test_a_splat_with_more_steps_or_gaussians_or_the_earlier_rate_of_shn_counts_where_the_default_may_be_another(
    batch: FakeBatch, asked: str | int, max_steps: int, cap: int | str, counting: int
) -> None:
    batch.make("p0", training={"max_steps": max_steps, "cap_max": cap}, evaluation={"stop_after": asked})
    (task,) = open_batch(batch.config).tasks
    hashes = set()
    caps, ends = {cap, 1_000_000 if cap == "auto" else cap}, {asked, 0 if asked == "auto" else asked}
    for most, stops, rate in product(caps, ends, (2.5e-5, 1.25e-4)):
        tree = task.recipe.model_dump()
        tree["learning_rates"]["shN"] = rate
        tree["training"]["cap_max"], tree["evaluation"]["stop_after"] = most, stops
        hashes.add(recipe_hash(Recipe.model_validate(tree)))
    assert task.yaml_settings.acceptable_hashes == hashes and len(hashes) == counting
