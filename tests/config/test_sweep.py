"""A sweep in the YAML: which combinations it means, what each is called, and every mistake in it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatbatch.config import Config, TaskId, load, to_yaml
from splatbatch.errors import ConfigError
from splatbatch.scene.patches import Patch
from splatbatch.tasks.task import tasks_of

STRATEGIES = {"training.strategy": ["default", "mcmc"]}
MEANS = {"learning_rates.means": [1e-4, 2e-4]}


def sweep(folder: Path, **parts: Any) -> Config:
    path = folder / "splat_config.yml"
    others = parts.pop("others", {})
    path.write_text(yaml.safe_dump({**others, "sweep": parts}, sort_keys=False))
    return load(path)


def mistakes(folder: Path, text: str) -> list[str]:
    path = folder / "splat_config.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value.message.splitlines()[1:]


def test_a_matrix_is_all_its_combinations(tmp_path: Path) -> None:
    config = sweep(tmp_path, matrix=STRATEGIES | MEANS)
    recipes = [config.recipe("p0", variant=variant) for variant in config.variants.values()]
    found = [(recipe.training.strategy, recipe.learning_rates.means) for recipe in recipes]
    assert found == [(s, m) for s in ("default", "mcmc") for m in (1e-4, 2e-4)]


def test_without_a_sweep_a_name_is_a_patch(tmp_path: Path) -> None:
    (task,) = tasks_of(sweep(tmp_path), [Patch("p0@x", tmp_path, tmp_path)])
    assert (task.id, task.name, task.yaml_settings.variant) == (TaskId("p0@x"), "p0@x", None)


def test_a_name_does_not_depend_on_order_or_on_what_else_is_compared(tmp_path: Path) -> None:
    alone = set(sweep(tmp_path, matrix=STRATEGIES | {"learning_rates.means": [1e-4]}).variants)
    turned = {"learning_rates.means": [3e-4, 1e-4], "training.strategy": ["mcmc", "default"]}
    among_others = set(sweep(tmp_path, matrix=turned, variants=[{"set": {"training.seed": 1}}]).variants)
    assert alone < among_others
    assert len(among_others) == 5


def test_a_further_setting_at_its_usual_value_leaves_the_names_as_they_are(tmp_path: Path) -> None:
    before = set(sweep(tmp_path, matrix=STRATEGIES).variants)
    assert before < set(sweep(tmp_path, matrix=STRATEGIES | {"training.seed": [42, 43]}).variants)


def test_a_value_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    names = [set(sweep(tmp_path, matrix={"learning_rates.means": [value]}).variants) for value in ("1e-4", 0.0001)]
    assert names[0] == names[1]


def test_a_name_can_be_read_and_is_one_part_of_a_path(tmp_path: Path) -> None:
    odd = {"training.resolution": ["1/2"], "evaluation.holdout_list": ["../a/lüst.txt"], "evaluation.steps": [[5, 9]]}
    (name,) = sweep(tmp_path, matrix=odd).variants
    assert name.startswith("holdout_list-l-st.txt_steps-5-9_resolution-1-2_")
    assert not set(name) & set("/@ \\")


def test_what_changes_nothing_is_called_base(tmp_path: Path) -> None:
    assert "base" in sweep(tmp_path, matrix={"training.seed": [42, 1]}).variants


def test_excluded_combinations_are_left_out_and_further_ones_added(tmp_path: Path) -> None:
    exclude = [{"training.strategy": "mcmc", "learning_rates.means": "1e-4"}]
    named = [{"name": "usual", "set": {}}, {"name": "quick", "set": {"training.max_steps": 9}}]
    further = [{"set": {"training.seed": 1}}, *named]
    config = sweep(tmp_path, matrix=STRATEGIES | MEANS, exclude=exclude, variants=further)
    assert len(config.variants) == 3 + 1 + 2
    assert config.recipe("p1", variant=config.variants["quick"]).training.max_steps == 9
    left_out = {"training.strategy": "mcmc", "learning_rates.means": 1e-4}
    assert left_out not in [variant.settings for variant in config.variants.values()]


def test_a_variant_is_stronger_than_a_patch_and_leaves_its_other_overrides(tmp_path: Path) -> None:
    patches = {"p1": {"training": {"seed": 7, "strategy": "mcmc"}}}
    config = sweep(tmp_path, matrix=STRATEGIES, others={"patches": patches})
    recipe = config.recipe("p1", variant=next(iter(config.variants.values())))
    assert (recipe.training.strategy, recipe.training.seed) == ("default", 7)


def test_every_variant_shows_every_setting_that_is_compared(tmp_path: Path) -> None:
    config = sweep(tmp_path, variants=[{"set": {"training.seed": 1}}, {"set": {"training.sh_degree": 0}}])
    shown = [dict(variant.compared) for variant in config.variants.values()]
    assert shown == [{"training.seed": 1, "training.sh_degree": 3}, {"training.seed": 42, "training.sh_degree": 0}]


def test_a_path_in_a_sweep_is_relative_to_the_yaml(tmp_path: Path) -> None:
    config = sweep(tmp_path, variants=[{"name": "a", "set": {"evaluation.holdout_list": "h.txt"}}])
    assert config.recipe("p0", variant=config.variants["a"]).evaluation.holdout_list == tmp_path / "h.txt"


def test_a_sweep_written_as_yaml_is_the_same_sweep(tmp_path: Path) -> None:
    steps, exclude = {"evaluation.steps": [[1], [2, 3]]}, [{"evaluation.steps": [1]}]
    config = sweep(tmp_path, matrix=STRATEGIES | steps, exclude=exclude)
    again = tmp_path / "again.yml"
    again.write_text(to_yaml(config))
    assert load(again) == config
    assert load(again).variants == config.variants


def test_all_mistakes_of_a_sweep_are_listed_at_once(tmp_path: Path) -> None:
    text = """training: {sed: 1}
sweep:
  matrix:
    training.strateg: [default, mcmc]
    learning_rates.means: [x, 0.1]
    training.seed: 3
  exclude: [{training.strategy: mcm}]
  variants: [{name: a/b, sett: {}}]
"""
    found = mistakes(tmp_path, text)
    for words in (
        "line 1, training.sed: unknown key. Did you mean seed?",
        "line 4, sweep.matrix.training.strateg.0: unknown setting. Did you mean training.strategy?",
        "line 5, sweep.matrix.learning_rates.means.0: 'x': should be a number",
        "line 6, sweep.matrix.training.seed: 3: should be a list, as [a, b]",
        "line 7, sweep.exclude.0.training.strategy: 'mcm': should be 'default' or 'mcmc'",
        "line 8, sweep.variants.0.name: 'a/b': should be at most 64 letters, digits",
        "line 8, sweep.variants.0.sett: unknown key. Known: name, set.",
    ):
        assert any(line.strip().startswith(words) for line in found), words
    assert len(found) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{matrix: {training.seed: [1, 1]}}", "1: is listed twice: remove one of the two"),
        ("{matrix: {learning_rates.means: [0.1, 1e-1]}}", "0.1: is listed twice: remove one of the two"),
        ("{matrix: {training.seed: []}}", "should not be empty"),
        ("{matrix: {training.seed: [1, 2]}, exclude: [{training.seed: 3}]}", "no combination of the matrix"),
        ("{matrix: {training.seed: [1]}, exclude: [{training.seed: 1}]}", "excludes every combination of the matrix"),
        ("{matrix: {training.seed: [1]}, exclude: [{}]}", "should not be empty"),
        ("{matrix: {training.seed: [1]}, variants: [{set: {training.seed: 1}}]}", "the same settings as seed-1_"),
        ("{variants: [{name: a, set: {training.seed: 1}}, {name: a}]}", "a: another variant has this name"),
        ("{variants: [{name: a}, {name: b}]}", "the same settings as a"),
        ("{variants: [{name: ..}]}", "begin with a letter or digit"),
        (f"{{matrix: {{training.seed: {list(range(40))}, training.cap_max: {list(range(1, 41))}}}}}", "1600 combi"),
        ("[1]", "should be a mapping"),
    ],
)  # fmt: skip
def test_what_a_sweep_cannot_mean_is_a_mistake(tmp_path: Path, text: str, words: str) -> None:
    assert words in "\n".join(mistakes(tmp_path, f"sweep: {text}\n"))


PROGRAM = """
trainers:
  theirs:
    command: [train, --cap, "{setting.cap}"]
    settings: {cap: 5}
"""


def test_settings_of_a_program_are_compared_and_so_are_programs(tmp_path: Path) -> None:
    text = "sweep: {matrix: {setting.cap: ['7', 8]}, variants: [{name: ours, set: {training.trainer: gsplat}}]}\n"
    (tmp_path / "splat_config.yml").write_text(f"{text}training: {{trainer: theirs}}\n{PROGRAM}")
    config = load(tmp_path / "splat_config.yml")
    assert [name.rpartition("_")[0] for name in config.variants] == ["cap-7", "cap-8", ""]
    assert config.recipe("p0", variant=config.variants["ours"]).program is None
    assert [variant.compared["setting.cap"] for variant in config.variants.values()] == ["7", 8, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{variants: [{set: {training.trainer: theirs, setting.cap: 3}}]}", []),
        ("{variants: [{set: {evaluation.stop_after: 0, evaluation.holdout_every: 0}}]}", []),
        ("{matrix: {training.trainer: [gsplat, their]}}", ["1: 'their': no such trainer. Did you mean theirs?"]),
        ("{matrix: {setting.cup: [3]}}", ["sweep.matrix.setting.cup.0: unknown setting"]),
        ("{variants: [{set: {setting.cap: 3}}]}", ["variants.0: {'setting.cap': 3}: unknown setting"]),
        (
            "{matrix: {evaluation.stop_after: [0, 1], evaluation.holdout_every: [0]}}",
            ["stop_after needs held-out photographs"],
        ),
    ],
)  # fmt: skip
def test_a_combination_is_checked_as_a_whole(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "splat_config.yml"
    path.write_text(f"sweep: {text}\n{PROGRAM}")
    found = mistakes(tmp_path, path.read_text()) if words else [str(load(path).variants)]
    assert len(found) == 1
    assert all(one in found[0] for one in words)


PARTS = ["matrix", "exclude", "variants", "set", "name", "training.seed", "setting.cap", "a"]
words = st.sampled_from(PARTS)
scalars = st.none() | st.booleans() | st.integers(-2, 50) | st.floats() | words | st.dates()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | scalars, inner, max_size=3)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(tree=st.dictionaries(words, trees, max_size=4) | trees)
def test_any_sweep_is_one_or_a_list_of_mistakes(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "splat_config.yml"
    path.write_text(yaml.safe_dump({"sweep": tree}) + PROGRAM)
    try:
        config = load(path)
    except ConfigError as error:
        assert str(path) in error.message
    else:
        assert all(config.recipe("p0", variant=variant) for variant in config.variants.values())


def test_a_unit_is_split_at_its_last_sign() -> None:
    assert TaskId.of_folder("a@b@c") == ("a@b", "c")
    assert TaskId.of_folder("p0") == ("p0", "")
