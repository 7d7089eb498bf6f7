"""What only a CUDA machine can show: both rasterisers agree, training runs, memory comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from given_card import given_card

from splatbatch.config import Cooldown
from splatbatch.machine import gpu
from splatbatch.training.loss import psnr
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


def a_scene(device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = 3000

    def noise(*shape: int, spread: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * spread).to(device).requires_grad_()

    return {
        "means": noise(num, 3, spread=0.6),
        "scales": (torch.randn(num, 3, generator=generator) * 0.3 - 3).to(device).requires_grad_(),
        "quats": noise(num, 4),
        "opacities": noise(num),
        "sh0": noise(num, 1, 3, spread=0.5),
        "shN": noise(num, 15, 3, spread=0.1),
    }


def a_view(device: str) -> RenderCamera:
    viewmat = torch.eye(4)
    viewmat[2, 3] = 3.0
    K = torch.tensor([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    return RenderCamera(viewmat.to(device), K.to(device), 320, 240)


def rendered_with_gradients(device: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    gaussians = a_scene(device)
    colors = rasterize(gaussians, a_view(device), RasterOptions(3)).colors
    weights = torch.linspace(0.5, 1.5, colors.numel()).reshape(colors.shape).to(device)
    (colors * weights).mean().backward()
    return colors.detach().cpu(), {name: value.grad.cpu() for name, value in gaussians.items()}


def test_both_rasterisers_draw_the_same_picture() -> None:
    ours, theirs = rendered_with_gradients("cpu")[0], rendered_with_gradients("cuda")[0]
    assert float(psnr(ours, theirs)) >= 60


@pytest.mark.parametrize("name", ["means", "scales", "quats", "opacities", "sh0", "shN"])
def test_both_rasterisers_have_the_same_gradients(name: str) -> None:
    ours, theirs = (rendered_with_gradients(device)[1][name] for device in ("cpu", "cuda"))
    assert float((ours - theirs).norm() / theirs.norm()) <= 1e-3


def test_nvml_names_every_gpu_and_knows_its_memory() -> None:
    card = given_card()
    assert card.uuid.startswith("GPU-")
    assert (gpu.sample(card.uuid).used_mib or 0) <= card.total_mib


def test_the_gate_sees_who_holds_the_gpu_and_that_it_is_gone() -> None:
    card = given_card()
    before = gpu.sample(card.uuid)
    hold = "import torch; x = torch.empty(1 << 30, dtype=torch.uint8, device='cuda'); print(1, flush=True); input()"
    squatter = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert squatter.stdout and squatter.stdout.readline()
    assert "more GPU memory in use" in gpu.why_not_ready(gpu.sample(card.uuid), before, Cooldown())
    squatter.kill()
    squatter.wait()
    deadline = time.monotonic() + 5
    while gpu.why_not_ready(gpu.sample(card.uuid), before, Cooldown()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not gpu.why_not_ready(gpu.sample(card.uuid), before, Cooldown())


VARIANTS = [
    {"name": "default", "set": {"training.strategy": "default"}},
    {"name": "mcmc", "set": {"training.strategy": "mcmc"}},
    {"name": "coarse", "set": {"training.coarse_to_fine": True, "training.checkpoint_every": 100}},
]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Train the quarry in three ways; return the output folder, and how many MiB more are in use afterwards."""
    folder, quarry = tmp_path_factory.mktemp("batch"), Path(__file__).parents[2] / "examples" / "quarry"
    settings = {
        "scene": {"patches": str(quarry / "patches"), "images": str(quarry / "images")},
        "training": {"max_steps": 300},
        "evaluation": {"every": 100},
        "sweep": {"variants": VARIANTS},
    }
    config = folder / "splat_config.yml"
    config.write_text(yaml.safe_dump(settings))
    before = gpu.sample(given_card().uuid).used_mib or 0
    patches = ("p0", "p1@default")  # one of the others tells as much as both
    subprocess.run([sys.executable, "-m", "splatbatch", "train", *patches, "--config", str(config)], check=True)
    return folder / "output", (gpu.sample(given_card().uuid).used_mib or 0) - before


def patches_of(output: Path, variant: str) -> list[dict[str, Any]]:
    patches = json.loads((output / "report.json").read_text())["patches"]
    found = [patch for patch in patches if patch["patch"].endswith(f"@{variant}") and patch["state"] == "trained"]
    assert found
    return found


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_batch_trains_on_the_gpu_and_gives_its_memory_back(batch: tuple[Path, int], strategy: str) -> None:
    output, more_mib = batch
    patches = patches_of(output, strategy)
    assert np.mean([patch["psnr"] for patch in patches]) > 24
    assert abs(more_mib) <= 8
    for patch in patches:
        torch_mib, own_mib = (patch["attempts"][0][key] for key in ("torch_peak_mib", "own_gpu_peak_mib"))
        assert torch_mib > 0
        # NVML is asked every two seconds, so that of a short run it misses the peak; None: a container
        assert own_mib is None or 0 < own_mib <= patch["attempts"][0]["gpu_peak_mib"]


@pytest.mark.parametrize("variant", ["default", "mcmc", "coarse"])
def test_evaluation_needs_hardly_more_memory_than_training(batch: tuple[Path, int], variant: str) -> None:
    metrics = list(batch[0].glob(f"patches/*@{variant}/attempt-01/metrics.json"))
    assert metrics
    for path in metrics:
        peak = json.loads(path.read_text())["peak"]
        assert 0 < peak["evaluation_mib"] <= 1.05 * peak["training_mib"]
