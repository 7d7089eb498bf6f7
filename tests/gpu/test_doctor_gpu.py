"""`doctor` on a machine with a GPU, and that after --warm no kernel is left to compile."""

from __future__ import annotations

import json

import pytest
import torch
from command_line import invoke

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


Findings = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Return what `doctor --warm` finds where nothing has been built yet."""
    folder = tmp_path_factory.mktemp("doctor")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("SPLATBATCH_CACHE", str(folder / "cache"))
        for name in ("CUDA_HOME", "CUDA_PATH"):
            patched.delenv(name, raising=False)
        patched.delenv("SPLATBATCH_CONFIG", raising=False)
        ended = invoke("doctor", "--json", "--warm")
    findings: Findings = {one["check"]: one for one in json.loads(ended.out)["findings"]}
    assert ended.code == 0, findings
    return findings


def test_a_machine_that_trains_has_no_problem(found: Findings) -> None:
    assert found["driver"]["message"].startswith("NVIDIA driver ")
    assert "compute capability" in found["gpu 0"]["message"]
    assert found["torch"]["state"] == found["cuda"]["state"] == "ok"


def test_after_warm_nothing_is_left_to_build(found: Findings) -> None:
    assert {name: one["state"] for name, one in found.items() if name.startswith("build ")} == {"build kernels": "ok"}
    assert found["kernels"]["message"] == "splatbatch's GPU kernels are compiled and work"
    assert "gsplat" not in found
