"""What the tests of the trainer share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_patch import paint

from splatbatch.scene.patches import Patch

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    batch.make("p0")
    paint(batch.folder / "images")
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")
