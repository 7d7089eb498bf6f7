from __future__ import annotations

from pathlib import Path

import pytest
from scenes import MadeScene

DATA = Path(__file__).resolve().parents[3] / "shared/data"


@pytest.fixture
def scene(tmp_path: Path) -> MadeScene:
    return MadeScene(tmp_path / "scene").write()


@pytest.fixture
def caliterra() -> Path:
    if not DATA.is_dir():
        pytest.skip("the sample photographs (shared/data) are not here")
    return DATA / "caliterra"
