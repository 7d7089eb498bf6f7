"""What the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_batch import SHARED, FakeBatch
from hypothesis import settings

# 200 ms for an example, its own limit, is nothing on a machine that has other work
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def batch(tmp_path: Path) -> FakeBatch:
    return FakeBatch(tmp_path)


@pytest.fixture
def real_photos() -> Path:
    folder = SHARED / "data" / "caliterra-small"
    if not folder.is_dir():
        pytest.skip("the real photographs (shared/data/caliterra-small) are not here")
    return folder
