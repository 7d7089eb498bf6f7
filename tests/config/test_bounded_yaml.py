"""No YAML takes long to be refused, whatever stands in it."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from splatbatch.config import load
from splatbatch.config.yaml.source import parse_value
from splatbatch.errors import ConfigError

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
MERGED = "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9))
COUNTED = "more than 40,000 keys and values, aliases expanded"
QUOTED = "'{nix}',"
HOSTILE = {
    "aliases": (BOMB, COUNTED),
    "merged aliases": (MERGED, COUNTED),
    "10 MB": ("a: 1\n" * 2_000_000, "more than 1 MiB"),
    "a number in base 60": (f"a: {'1:' * 100_000}1", "a value has 200,001 characters"),
    "brackets": ("[" * 500_000, "nested deeper than 40 levels"),
    "blocks": ("".join(" " * i + "a:\n" for i in range(1400)), "nested deeper than 40 levels"),
    "keys": ("".join(f"trainin{i}: 1\n" for i in range(19_000)), "100 mistakes or more"),
    "patches": (
        f"patches:\n{''.join(f'  p{i}: {{trainng: 1}}{chr(10)}' for i in range(9_000))}",
        "100 mistakes or more",
    ),
    "rungs": (f"retry: {{ladders: {{numerics: [{'{training.sed: 1},' * 10_000}]}}}}", "100 mistakes or more"),
    "words": (f"trainers: {{t: {{command: [{'x{nix},' * 30_000}]}}}}", "no valid YAML"),
    "placeholders": (
        f"trainers: {{t: {{command: [{QUOTED * 30_000}]}}}}",
        "100 mist",
    ),
    "a sweep": (
        f"sweep: {{matrix: {{training.seed: [{','.join(map(str, range(30_000)))}]}}}}",
        "more than 2500 values",
    ),
    "settings": (
        f"trainers: {{t: {{command: [x], settings: {{{','.join(f'A{i}: 1' for i in range(9_000))}}}}}}}",
        "500",
    ),
    "a tag": (f"a: !<{'x' * 900_000}> 1", "could not determine a constructor"),
    "itself": ("a: &a {b: [*a]}", "the alias *a stands inside its own anchor"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_yaml_is_refused_within_a_second(tmp_path: Path, kind: str) -> None:
    text, words = HOSTILE[kind]
    (tmp_path / "c.yml").write_text(text)
    began, memory_kib = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "c.yml")
    assert time.process_time() - began < 3.0, "the bar is 1 on a machine of its own"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kib < 100 * 1024
    assert words in error.value.message
    assert len(error.value.message) < 30_000


def test_a_value_of_the_command_line_is_bounded_too() -> None:
    with pytest.raises(ConfigError, match="the value is not valid YAML"):
        parse_value("[" * 10_000)
    assert parse_value("[1, {a: 2}]") == [1, {"a": 2}]


@pytest.mark.all
def test_thousands_of_patches_may_have_settings_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(
        "patches:\n" + "".join(f"  p{i}: {{training: {{seed: {i}}}}}\n" for i in range(6000))
    )
    assert len(load(tmp_path / "c.yml").patches) == 6000
