"""The YAML: what it means, and every mistake in it named with its line, key, value and remedy, all at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_yaml import mistakes, write

from splatbatch import config as configuration
from splatbatch.config import Config, json_schema, load, nearest, parse_changes, to_yaml
from splatbatch.config.section import Section
from splatbatch.errors import ConfigError

ROOT = Path(__file__).parents[2]
OF_OTHERS = {"kubernetes.yml", "kubernetes_s3.yml", "dstack.yml", "skypilot.yml"}
"""YAML of other programs."""
COMPLETE_EXAMPLES = sorted(path for path in (ROOT / "configs").rglob("*.y*ml") if path.name not in OF_OTHERS)


@pytest.mark.parametrize("text", ["# nothing\n", "training:\n  max_steps: 30000\n"])
def test_what_is_not_said_has_the_fields_own_values(tmp_path: Path, text: str) -> None:
    config = load(write(tmp_path, text))
    assert (config.training.max_steps, config.training.strategy, config.training.cap_max) == (30_000, "mcmc", "auto")
    assert config.scene.patches == tmp_path / "patches"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trainig:\n  max_steps: 3\n", ["line 1, trainig: unknown key", "Did you mean training?"]),
        ("training:\n  max_step: 3\n", ["line 2, training.max_step: unknown key", "Did you mean max_steps?"]),
        ("training:\n  max_steps: many\n", ["line 2, training.max_steps: 'many'", "should be a whole number"]),
        ("training:\n  max_steps: 0\n", ["line 2, training.max_steps: 0", "should be above 0"]),
        ("training: 7\n", ["line 1, training: 7", "should be a mapping"]),
        ("training:\n  strategy: mcmcc\n", ["line 2, training.strategy: 'mcmcc'", "'default' or 'mcmc'"]),
        ("training:\n  init_scale: big\n", ["line 2, training.init_scale: 'big'"]),
        ("training:\n  ssim_lambda: 1.5\n", ["line 2, training.ssim_lambda: 1.5", "should be at most 1"]),
        ("learning_rates:\n  means: .nan\n", ["line 2, learning_rates.means: nan", "finite number"]),
        (
            "executor:\n  gpus: [0, -1]\n",
            ["line 2, executor.gpus: [0, -1]", "-1: should be at least 0"],
        ),
        ("limits:\n  wall_s: 1x\n", ["line 2, limits.wall_s: '1x'", "should be a number"]),
        ("scene:\n  patches: $NOWHERE_AT_ALL/x\n", ["scene.patches", "variable $NOWHERE_AT_ALL is not set"]),
        ("patches:\n  p0:\n    trainin: {}\n", ["line 3, patches.p0.trainin: unknown key", "Did you mean training?"]),
        (
            "patches:\n  p0:\n    training: {seeds: 1}\n",
            ["patches.p0.training.seeds: unknown key", "Did you mean seed?"],
        ),
        ("patches:\n  p0:\n    training:\n      seed: -1\n", ["line 4, patches.p0.training.seed: -1"]),
        ("patches:\n  p0: 3\n", ["line 2, patches.p0: 3"]),
        ("output:\n  folder: 3\n", ["line 2, output.folder: 3", "path"]),
        (
            "training:\n  cap_max: 2y\n",
            ["line 2, training.cap_max: '2y': should be a whole number above 0, a multiple such as 2x, or auto"],
        ),
        ("trainers:\n  x: {settings: {}}\n", ["line 2, trainers.x.command: missing"]),
        ("evaluation: {stop_after: 3, holdout_every: 0}\n", ["evaluation.stop_after needs held-out photographs"]),
        (
            "patches:\n  p0:\n    evaluation: {stop_after: 3, holdout_every: 0}\n",
            ["line 2, patches.p0: evaluation.stop_after needs"],
        ),
        ("evaluation: {stop_after: never}\n", ["'never': should be a whole number from 0 on, or auto"]),
        ("notify:\n  command: mail me\n", ["line 2, notify.command: should be a list of words"]),
    ],
)
def test_a_mistake_is_named_with_line_key_value_and_remedy(tmp_path: Path, text: str, words: list[str]) -> None:
    message = mistakes(tmp_path, text)
    assert message.startswith(f"{tmp_path}/splat_config.yml: 1 mistake")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("rung", "words"),
    [
        ("training.nonsense: 3", "training.nonsense: unknown setting. Did you mean training."),
        (
            "training.workers: x0.5",
            "a factor multiplies a number, but training.workers is 'auto': write a value instead",
        ),
        ("training.antialiased: x2", "but training.antialiased is False"),
        ("training.workers: many", "training.workers: 'many': "),
        ("training.cap_max: x-1", "training.cap_max: 'x-1': "),
        ("learning_rates.means: -1", "learning_rates.means: -1: should be at least 0"),
        ("slots: none", "should be a number of attempts at once"),
    ],
)
def test_a_rung_that_could_not_be_taken_is_a_mistake_before_the_night(tmp_path: Path, rung: str, words: str) -> None:
    message = mistakes(tmp_path, f"retry:\n  ladders:\n    host_memory:\n      - {{slots: x0.5}}\n      - {{{rung}}}\n")
    assert f"line 5, retry.ladders.host_memory.1.{rung.partition(':')[0]}: " in message
    assert words in message
    assert "1 mistake\n" in message


def test_rungs_of_every_kind_are_taken(tmp_path: Path) -> None:
    rungs = "[{training.resolution: x0.5}, {training.cap_max: x.6, training.init_scale: x3}, {training.workers: 4}]"
    assert load(write(tmp_path, f"retry: {{ladders: {{host_memory: {rungs}}}}}\n"))


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = "training:\n  max_steps: -1\n  sh_degree: 9\nretri: {}\npatches:\n  p1:\n    training: {seed: x}\n"
    message = mistakes(tmp_path, text)
    assert "4 mistakes" in message
    assert len(message.splitlines()) == 5


def test_mistakes_are_listed_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "output: {foldr: x}\nretry:\n  max_attempts: 0\ntraining: {trainer: foo}\nscene: {patchs: p}\n"
    lines = mistakes(tmp_path, text).splitlines()[1:]
    assert [line.split(",")[0].strip() for line in lines] == ["line 1", "line 3", "line 4", "line 5"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {max_steps: 3\n", [":2: no valid YAML"]),
        ("training:\n\tmax_steps: 3\n", [":2: no valid YAML"]),
        ("a: 1\n  b: 2\n", [":2: no valid YAML"]),
        ("training:\n  seed: 1\n  seed: 2\n", [":3: no valid YAML", "'seed' stands here and in line 2"]),
        ("- training\n", ["should be a mapping of sections, is a list"]),
        ("just words\n", ["should be a mapping of sections, is a str"]),
        ("output: {folder: 2026-13-45}\n", ["no valid YAML", "month must be in 1..12"]),
        (f"training: {{seed: {'9' * 5000}}}\n", [":1: too large: a value has 5,000 characters"]),
        ("? [a, b]\n: 1\n", ["no valid YAML"]),
        ("a: &a [*a]\n", [":1: no valid YAML: the alias *a stands inside its own anchor"]),
        ("a: \x01\n", ["no valid YAML"]),
        ("a: !!python/object:os.system {}\n", ["no valid YAML"]),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line(tmp_path: Path, text: str, words: list[str]) -> None:
    message = mistakes(tmp_path, text)
    for word in ["splat_config.yml", *words]:
        assert word in message


@pytest.mark.parametrize("name", ["", "missing.yml", "latin.yml"])
def test_a_config_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "latin.yml").write_bytes("# größe\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / name)


def test_paths_are_relative_to_the_yaml_and_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANS", "/scans")
    text = "scene: {patches: a/b, images: $SCANS/x, source: ~/s}\npatches: {p0: {evaluation: {holdout_list: h.txt}}}\n"
    config = load(write(tmp_path, text))
    assert config.scene.patches == tmp_path / "a/b"
    assert (config.scene.images, config.scene.source) == (Path("/scans/x"), Path.home() / "s")
    assert config.output.folder == tmp_path / "output"
    assert config.recipe("p0").evaluation.holdout_list == tmp_path / "h.txt"


def test_a_patch_is_trained_by_the_config_then_its_overrides_then_changes(tmp_path: Path) -> None:
    text = "training: {seed: 1, sh_degree: 1}\npatches: {p1: {training: {seed: 2}, refinement: {refine_every: 9}}}\n"
    config = load(write(tmp_path, text))
    assert config.recipe("p0").training.seed == 1
    assert config.recipe("p1").training.seed == 2
    assert (config.recipe("p1").training.sh_degree, config.recipe("p1").refinement.refine_every) == (1, 9)
    assert config.recipe("p1", {"training.seed": 3}).training.seed == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training.sed": 1}, ["training.sed: unknown setting", "Did you mean training.seed?"]),
        ({"seed": 1}, ["seed: unknown setting"]),
        ({"limits.wall_s": 1}, ["limits.wall_s: unknown setting"]),
        ({"training.seed": "x"}, ["training.seed: 'x'", "should be a whole number"]),
    ],
)
def test_a_change_that_means_nothing_is_refused(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().recipe("p0", change)
    for word in words:
        assert word in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("assignment", "change"),
    [
        ("training.init_scale=0.3", ("training.init_scale", 0.3)),
        ("training.strategy=default", ("training.strategy", "default")),
        ("evaluation.steps=[1, 2]", ("evaluation.steps", [1, 2])),
        (" training.seed = 7", ("training.seed", 7)),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", None)),
    ],
)
def test_an_assignment_is_split_and_its_value_read_as_yaml(assignment: str, change: tuple[str, Any]) -> None:
    assert parse_changes([assignment]) == dict([change])


@pytest.mark.parametrize("assignment", ["training.seed", "", "=3", "a=[1", "a=2026-13-45", f"a={'9' * 5000}"])
def test_an_assignment_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError):
        parse_changes([assignment])


def test_the_config_is_named_or_in_the_environment_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = write(tmp_path, ""), tmp_path / "other.yml"
    there.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    assert configuration.find_config(None).resolve() == here
    monkeypatch.setenv("SPLATBATCH_CONFIG", str(there))
    assert configuration.find_config(None) == there
    assert configuration.find_config(here) == here


def test_the_nearest_name_is_proposed_else_all() -> None:
    assert nearest("p10", ["p1", "p0", "p100"]) == "Did you mean p100?"
    assert nearest("zzz", ["b", "a"]) == "Known: a, b."


def test_a_config_written_as_yaml_is_the_same_config(tmp_path: Path) -> None:
    config = load(write(tmp_path, "training: {seed: 3}\nexecutor: {gpus: [0]}\npatches: {p1: {training: {seed: 2}}}\n"))
    again = tmp_path / "again.yml"
    again.write_text(to_yaml(config))
    assert load(again) == config


def test_the_schema_describes_every_key_and_resolves_every_reference() -> None:
    schema = json_schema()
    sections = schema["$defs"]
    for name, section in schema["properties"].items():
        target = sections[section["$ref"].rpartition("/")[2]] if "$ref" in section else section
        assert target.get("description"), name
    for name, section in sections.items():
        assert section["additionalProperties"] is False
        assert [key for key, value in section["properties"].items() if not value.get("description")] == [], name


@pytest.mark.parametrize("path", COMPLETE_EXAMPLES, ids=lambda path: path.name)
def test_a_complete_example_is_without_mistakes(path: Path) -> None:
    assert load(path).training.max_steps > 0


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates()
SECTIONS = ["training", "patches", "scene", "p0", "evaluation", "trainers"]
keys = st.sampled_from([*SECTIONS, "seed", "holdout_list", "gpus", "trainer", "command", "setting", "settings"])
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(), inner, max_size=4)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(tree=st.dictionaries(keys | scalars, trees, max_size=4))
def test_any_yaml_is_a_config_or_a_list_of_mistakes(tmp_path: Path, tree: dict[Any, Any]) -> None:
    path = write(tmp_path, yaml.safe_dump(tree))
    try:
        assert load(path).recipe("p0")
    except ConfigError as error:
        assert str(path) in error.message


def keys_of(section: type[Section]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys_of(field.annotation)


def test_the_complete_config_names_every_key() -> None:
    text = (ROOT / "configs/local.yml").read_text()
    assert [key for key in keys_of(Config) if not re.search(rf"\b{key}:", text)] == []
