"""Values and texts that people write wrongly: each is told with its line and what to type instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatbatch.config import load
from splatbatch.errors import ConfigError

TEXTS = [
    (b"x-a: 1\nx-b: \xe4\n", 2, "Save it as UTF-8"),
    ("x-a: 1\n".encode("utf-16"), 1, "Save it as UTF-8"),
    (b"x-a: 1\nx-b: a\x00b\n", 2, "Remove the character U+0000"),
    (b"x-a: 1\nx-b: a\x07b\n", 2, "Remove the character U+0007"),
    (b"x-a: 1\n" + "# é\n".encode() * 20_000 + b"x-b: a\x00b\n", 20_002, "Remove the character U+0000"),
    ("learning_rates: {means: 0,00016}", 1, "write 0.00016"),
    ("learning_rates: {means: 1,6}", 1, "write 1.6"),
    ("learning_rates:\n  means: 0,00016", 2, "write 0.00016"),
    ("limits:\n  wall_s: 4 hours", 2, "write 4h"),
    ("limits:\n  wall_s: 1d", 2, "write 24h"),
    ("limits:\n  wall_s: 0.5 h", 2, "write 0.5h"),
    ("limits:\n  wall_s: 90 min", 2, "write 90m"),
    ("limits:\n  wall_s: 07:00", 2, "write 7h"),
    ("limits:\n  wall_s: 10k", 2, "write 10000"),
    ("training:\n  max_steps: 3e4", 2, "write 30000"),
    ("training:\n  max_steps: 10k", 2, "write 10000"),
    ("training:\n  max_steps: 30 000", 2, "write 30000"),
    ("training:\n  max_steps: 30,000", 2, "write 30000"),
    ("training:\n  max_steps: 1_000", 2, "write 1000"),
    ("evaluation:\n  ssim_lambda: 20%", 2, "unknown key"),
    ("training:\n  ssim_lambda: 20%", 2, "write 0.2"),
    ("training:\n  max_steps:10", 1, "write max_steps: 10"),
    ("training:\n  seed: 1\n  max_steps:10", 3, "write max_steps: 10"),
    ("training:\n  max_steps = 10", 1, "write max_steps: 10"),
    ("training:{seed: 1}", 1, "write training: {"),
    ("executor:\n  gpus: 0", 2, "write [0]"),
    ("executor:\n  gpus: 0,1", 2, "write [0, 1]"),
    ("executor:\n  store: gopher://reef/x", 2, "A store is a folder, ssh://host/path or s3://bucket/prefix"),
    ("executor:\n  store: ssh://reef:abc/x", 2, "Write ssh://name/path"),
    ("training:\n  seed: !!python/object:os.system 3", 2, "Remove the YAML tag !!python/object:os.system"),
    ("training:\n  seed: !x 3", 2, "Remove the YAML tag !x"),
    ("x-a: 1\n---\nx-b: 2", 2, "Remove the line ---"),
    ('scene:\n  patches: "C:\\data"', 2, "Single quotes"),
    ("training:\n  max_steps: yes", 2, "should be a number"),
    ("training:\n\tseed: 1", 2, "Indent with spaces"),
    ("x-a: 1\noutput:\n  folder: 'out\n", 3, "Close the quote"),
    ("output:\n  folder: @home", 2, "Quote the value"),
    ("training:\n  seed: 1\n  seed: 2", 3, "Keep one of the two"),
    ("- scene\n", 1, "such as scene: {patches: patches}"),
    ("hello\n", 1, "such as scene: {patches: patches}"),
]


@pytest.mark.parametrize(("text", "line", "remedy"), TEXTS)
def test_a_wrong_text_is_told_with_its_line_and_what_to_type(
    tmp_path: Path, text: str | bytes, line: int, remedy: str
) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as told:
        load(path)
    said = f"{told.value.message}\n{told.value.hint}"
    assert remedy in said and (f"c.yml:{line}: " in said or f"line {line}, " in said), said


def test_a_password_in_the_url_of_a_store_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("executor:\n  store: ssh://me:hidden@reef/x\n")
    with pytest.raises(ConfigError, match="Remove the password") as told:
        load(tmp_path / "c.yml")
    assert "line 2, executor.store: ssh://reef" in str(told.value)
    assert "hidden" not in str(told.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"\xef\xbb\xbftraining: {seed: 7}\n")
    assert load(path).training.seed == 7


@pytest.mark.parametrize("text", ["training: {max_steps: 4 hours}", "learning_rates: {means: '07:00'}"])
def test_no_span_of_time_is_proposed_for_another_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"should be a (whole )?number$"):
        load(path)
