"""On a real GPU: cards our kernels do not serve, or of 8 GiB; photographs of 48 megapixels; a single photograph."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from fake_batch import FakeBatch
from given_card import given_card
from PIL import Image
from small_patch import paint

from splatbatch.files import read_json, read_lines

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
ONLY_TRAINING = 'import os, sys\nif "splatbatch.training" in sys.orig_argv:\n    '
UNSERVED = "import splatbatch.training.cuda as ours; ours.why_not_here = lambda: 'compute capability 6.1 is below 7.0'"
WITHOUT_GSPLAT = "; import splatbatch.training.rendering.gsplats as theirs; theirs.is_built = lambda: False"
OF_8_GIB = """os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    import torch
    LIMIT, real = 8 << 30, torch.cuda.set_stream
    def set_stream(stream):
        torch.cuda.set_per_process_memory_fraction(LIMIT / torch.cuda.get_device_properties(0).total_memory)
        real(stream)
    torch.cuda.set_stream = set_stream
    torch.cuda.mem_get_info = lambda device=None: (max(0, LIMIT - torch.cuda.memory_reserved()), LIMIT)
"""


def trained(
    batch: FakeBatch, hook: str, steps: int = 300, *, succeeds: bool = True
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train p0 on the GPU, with something else than usual in every training process; return result and progress."""
    (batch.folder / "hook").mkdir()
    (batch.folder / "hook/sitecustomize.py").write_text(ONLY_TRAINING + hook)
    batch.change(training={"max_steps": steps, "device": "cuda"}, executor={"gpus": [given_card().index]})
    path = os.pathsep.join([str(batch.folder / "hook"), *sys.path])
    command = [sys.executable, "-m", "splatbatch", "train", "--no-verify", "--config", str(batch.config)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if not succeeds:
        assert done.returncode == 1
        return {"said": done.stderr}, []
    assert done.returncode == 0, done.stderr[-3000:]
    result = read_json(batch.output / "patches/p0/result.json") or {}
    return result, list(read_lines(batch.output / "patches/p0" / result["attempt"] / "progress.jsonl"))


def test_a_gpu_that_our_kernels_do_not_serve_is_trained_on_with_gsplats_and_told(batch: FakeBatch) -> None:
    batch.make("p0")
    paint(batch.folder / "images")
    result, progress = trained(batch, UNSERVED)
    assert result["metrics"]["final"]["psnr"] > 15
    assert any("gsplat's slower kernels were used" in (line.get("warning") or "") for line in progress)


def test_where_neither_ours_nor_gsplats_work_the_attempt_ends_at_once_with_the_reason(batch: FakeBatch) -> None:
    batch.make("p0")
    paint(batch.folder / "images")
    result, _ = trained(batch, UNSERVED + WITHOUT_GSPLAT, succeeds=False)
    assert "not built for this GPU" in result["said"]
    assert not (batch.output / "patches/p0/attempt-02").exists()


def test_photographs_of_48_megapixels_are_trained_on_a_card_of_8_gib_or_smaller_ones_are(batch: FakeBatch) -> None:
    batch.make("p0")
    paint(batch.folder / "images")
    for path in (batch.folder / "images").iterdir():
        Image.open(path).resize((8000, 6000)).save(path, compress_level=1)
    result, progress = trained(batch, OF_8_GIB, 100)
    print(json.dumps({key: result.get(key) for key in ("attempt", "changes", "num_gaussians")}))
    assert result["metrics"]["final"]["psnr"] > 10
    assert max(line.get("peak_mib") or 0 for line in progress) <= 8192


def test_a_single_photograph_is_trained_on_and_nothing_is_measured_that_was_not_held_out(batch: FakeBatch) -> None:
    batch.make("p0")
    paint(batch.folder / "images")
    images = batch.folder / "patches/p0/sparse/0/images.txt"
    images.write_text("".join(line + "\n" for line in images.read_text().splitlines()[:2]))
    batch.change(evaluation={"holdout_every": 0})
    result, _ = trained(batch, "pass")
    assert result["metrics"]["final"] is None
