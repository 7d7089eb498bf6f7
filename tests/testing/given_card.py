"""The GPU that tests use on a host that has several: the first that CUDA_VISIBLE_DEVICES lets be seen."""

from __future__ import annotations

import os

from splatbatch.machine import gpu
from splatbatch.machine.slots import given_cards


def given_card() -> gpu.Gpu:
    """Return it; torch's first device is the same."""
    numbers = given_cards(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return next(one for one in gpu.gpus() if not numbers or one.index == numbers[0])
