"""Photographs that are no 8-bit pictures of one pinhole are trained on a GPU, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from odd_patches import KINDS, odd_patch
from small_patch import recipe, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_odd_photographs_are_trained_on_a_gpu(tmp_path: Path, kind: str) -> None:
    _, splat = trained(odd_patch(tmp_path, kind), recipe(device="cuda"))
    assert splat.metrics["final"]["psnr"] >= splat.metrics["initial"]["psnr"] + 3
