"""Names in the Python API: several, or a text for one; whatever else is refused with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_batch import FakeBatch

from splatbatch.errors import ConfigError
from splatbatch.run import api


def test_a_text_is_one_name(tmp_path: Path) -> None:
    batch = FakeBatch(tmp_path).make("p0", "p1")
    assert api.open_batch(batch.config, "p1").names == api.open_batch(batch.config, ["p1"]).names == ["p1"]
    assert api.open_batch(batch.config, conditions="patch=p1").names == ["p1"]


@pytest.mark.parametrize("names", [3, [None], [["p0"]]])
def test_what_is_no_name_is_refused(tmp_path: Path, names: object) -> None:
    with pytest.raises(ConfigError, match="should be a string or a list of strings"):
        api.open_batch(FakeBatch(tmp_path).make("p0").config, names)


@pytest.mark.parametrize("formats", ["ply,nope", ["ply", "nope"]])
def test_formats_may_be_a_list(tmp_path: Path, formats: object) -> None:
    batch = api.open_batch(FakeBatch(tmp_path).make("p0").config)
    with pytest.raises(ConfigError, match="nope"):
        api.publish_splats(batch, "p0", tmp_path / "to", formats)
