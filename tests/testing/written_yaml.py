"""A YAML that a test writes, and what is said against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatbatch.config import load
from splatbatch.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "splat_config.yml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text))
    return caught.value.message
