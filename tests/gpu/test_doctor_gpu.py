"""`doctor` on a machine with a GPU, and that after --warm no kernel is left to compile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import invoke

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)


def findings(*arguments: str) -> dict[str, dict[str, str]]:
    ended = invoke("doctor", "--json", *arguments)
    found = {one["check"]: one for one in json.loads(ended.out)["findings"]}
    assert ended.code == 0, found
    return found


def test_a_machine_that_trains_has_no_problem() -> None:
    found = findings()
    assert found["driver"]["message"].startswith("NVIDIA driver ")
    assert "compute capability" in found["gpu 0"]["message"]
    assert found["torch"]["state"] == found["cuda"]["state"] == "ok"


def test_after_warm_nothing_is_left_to_build() -> None:
    found = findings("--warm")
    assert {one["state"] for name, one in found.items() if name.startswith("build ")} == {"ok"}
    assert (found["gsplat"]["state"], found["triton"]["state"]) == ("ok", "ok")
