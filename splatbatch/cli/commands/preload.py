"""What takes longest to load is loaded while everything else of `train` is only imported and read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from splatbatch.files import MIB, read_regular
from splatbatch.machine import supervisors

TRAINING = "splatbatch.training"
_OTHERS = re.compile(rb"\b(trainers?|engine)\b")


def load_training(config: Path | None) -> None:
    """Have our training loaded, if a YAML names no other program and no engine: what it says is not read yet."""
    path = config or Path(os.environ.get("SPLATBATCH_CONFIG") or "splat_config.yml")
    try:
        says = read_regular(path, MIB)
    except OSError:
        return
    if not _OTHERS.search(says):
        supervisors.start_ahead(TRAINING)
