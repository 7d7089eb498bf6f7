"""The GPU that tests use on a host that has several: the first that CUDA_VISIBLE_DEVICES lets be seen."""

from __future__ import annotations

from splatbatch.machine import gpu
from splatbatch.machine.slots import visible_cards


def given_card() -> gpu.Gpu:
    """Return it; torch's first device is the same."""
    return visible_cards()[0]
