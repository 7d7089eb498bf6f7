"""A setting that a version no longer has stops no night: it is named, with what to write, and left out."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch

from splatbatch.config import load
from splatbatch.errors import ConfigError


def test_a_setting_that_is_gone_is_named_with_its_line_and_stops_nothing(batch: FakeBatch) -> None:
    batch.make("p0", executor={"kind": "local", "cpu_slots": 1})
    line = batch.config.read_text().splitlines().index("  kind: local") + 1
    for verb in ("plan", "train"):
        ended = batch.run(verb)
        assert ended.returncode == 0
        assert f"warning: {batch.config}:{line}: executor.kind: gone" in ended.stderr
        assert "Delete the line" in ended.stderr


def test_what_was_never_a_setting_is_a_mistake_as_before(batch: FakeBatch) -> None:
    batch.make("p0", executor={"knid": "local"})
    with pytest.raises(ConfigError, match=r"executor\.knid"):
        load(batch.config)


def test_a_config_without_old_settings_warns_of_nothing(batch: FakeBatch) -> None:
    assert load(batch.make("p0").config).warnings == ()
