"""What the tests on a GPU share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def own_stream() -> Iterator[None]:
    """Run a test on a stream of its own, as a training does: steps are recorded on no other."""
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
