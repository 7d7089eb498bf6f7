"""On a GPU: photographs where they are expected to fit, no more memory than was expected, masks and exposures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as Pillow
from small_patch import prepared, recipe, trained

from splatbatch.config import load
from splatbatch.files import read_json
from splatbatch.scene.patches import Patch, find_patches

QUARRY = Path(__file__).parents[2] / "examples/quarry"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


def quarry(tmp_path: Path) -> Patch:
    found = find_patches(load(QUARRY / "splat_config.yml").scene)[0]
    (tmp_path / "images").symlink_to(found.images)
    return Patch("p0", found.sparse, tmp_path / "images")


@pytest.mark.parametrize("cap_max", [20_000, 300_000])
def test_a_training_takes_no_more_memory_than_was_expected(tmp_path: Path, cap_max: int) -> None:
    settings = recipe(device="cuda", max_steps=2_000, cap_max=cap_max)
    folder = prepared(quarry(tmp_path), settings)
    subprocess.run([sys.executable, "-m", "splatbatch.training", str(folder.path)], check=True)
    metrics: dict[str, Any] = read_json(folder.metrics) or {}
    print(metrics["expected"], metrics["peak"])
    assert metrics["peak"]["training_mib"] + 300 < metrics["expected"]["gpu_mib"]
    assert metrics["expected"]["photos"] == "gpu"


@pytest.mark.parametrize("changes", [{"images": "host"}, {"exposure": True}, {"exposure": True, "images": "host"}])
@pytest.mark.parametrize("masks", [False, True])
def test_photographs_on_the_host_masks_and_exposures_train_on_a_gpu(
    tmp_path: Path, patch: Patch, changes: dict[str, Any], masks: bool
) -> None:
    if masks:
        (tmp_path / "masks").mkdir()
        for path in patch.images.iterdir():
            mask = Pillow.new("L", (32, 24), 255)
            mask.paste(0, (0, 0, 6, 24))
            mask.save(tmp_path / "masks" / f"{path.name}.png")
    there = Patch("p0", patch.sparse, patch.images, masks=tmp_path / "masks" if masks else None)
    _, splat = trained(there, recipe(device="cuda", max_steps=300, **changes))
    assert splat.metrics["final"]["psnr"] > splat.metrics["initial"]["psnr"] + 3
