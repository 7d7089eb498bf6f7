"""What the tests of the trainer share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from small_patch import paint

from splatbatch.scene.patches import Patch

if TYPE_CHECKING:
    from emulated_kernels import OnCpu
    from fake_batch import FakeBatch


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    batch.make("p0")
    paint(batch.folder / "images")
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")


@pytest.fixture
def what_is_not_written_is_nan() -> Iterator[None]:
    import torch

    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def kernels() -> OnCpu:
    """Give our kernels, compiled for the CPU."""
    from emulated_kernels import emulated, kept_folder

    return emulated(kept_folder())
