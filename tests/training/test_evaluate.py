"""What is measured on photographs, when, and at which cost in memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_patch import recipe, trained
from torch import nn

from splatbatch.config import Recipe
from splatbatch.errors import TrainerError
from splatbatch.files import read_json, read_lines
from splatbatch.scene.patches import Patch
from splatbatch.training.evaluation import evaluate
from splatbatch.training.evaluation.lpips import ALEXNET_FILE, LAYERS, Lpips, load_lpips
from splatbatch.training.photos.posed_image import PosedImage

CHANNELS = (3, 64, 192, 384, 256, 256)
SIZES = (11, 5, 3, 3, 3)


def with_evaluation(max_steps: int = 60, **evaluation: Any) -> Recipe:
    return Recipe.model_validate({**recipe(max_steps=max_steps).model_dump(), "evaluation": evaluation})


def alexnet() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for (name, *_), before, after, size in zip(LAYERS, CHANNELS[:-1], CHANNELS[1:], SIZES, strict=True):
        weights[f"{name}.weight"] = torch.randn(after, before, size, size, generator=generator) / size
        weights[f"{name}.bias"] = torch.zeros(after)
    return weights


def place_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(folder))
    file = Path(torch.hub.get_dir()) / "checkpoints" / ALEXNET_FILE
    file.parent.mkdir(parents=True)
    torch.save(alexnet(), file)


@pytest.mark.all
def test_every_evaluation_is_kept_with_each_photograph(patch: Patch) -> None:
    folder, _ = trained(patch, with_evaluation(every=20, steps=[30]))
    metrics = read_json(folder.metrics) or {}
    steps = [metrics["initial"], *metrics["between"], metrics["final"]]
    assert [one["step"] for one in steps] == [0, 20, 30, 40, 60]
    assert all(one["images"]["img0.png"].keys() >= {"psnr", "ssim"} and len(one["images"]) == 2 for one in steps)
    assert [record["step"] for record in read_lines(folder.progress) if "psnr" in record] == [20, 30, 40, 60]


def test_the_peak_of_a_training_counts_nothing_that_lay_on_the_gpu_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = {"now": 4, "highest": 32}  # what an earlier training in this process has left
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: mib["highest"] << 20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: mib.update(highest=mib["now"]))
    peaks = evaluate.TorchMemoryPeaks(torch.device("cuda"))
    mib["highest"] = max(mib["highest"], 14)
    assert peaks.to_record()["training_mib"] == 14


@pytest.mark.parametrize("name", ["img0.png", "img1.png"])  # held out, and trained on
def test_a_rendering_that_is_not_finite_is_no_good_picture(
    patch: Patch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    drawn = evaluate._render

    def spoilt(gaussians: Any, photo: PosedImage, settings: Recipe) -> torch.Tensor:
        return drawn(gaussians, photo, settings) * (math.nan if photo.name == name else 1)

    monkeypatch.setattr(evaluate, "_render", spoilt)
    with pytest.raises(TrainerError, match=f"health: nan_loss: the rendering of {name} is not finite"):
        trained(patch, recipe(max_steps=3))


@pytest.mark.all
def test_a_beginning_that_cannot_be_measured_ends_no_training(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = evaluate.Evaluator._measured

    def spoilt(self: evaluate.Evaluator, gaussians: Any, step: int) -> Any:
        if step == 0:
            raise TrainerError("health: nan_loss")
        return measured(self, gaussians, step)

    monkeypatch.setattr(evaluate.Evaluator, "_measured", spoilt)
    folder, splat = trained(patch, with_evaluation(every=20))
    assert folder.splat.exists()
    assert splat.metrics["initial"] is None
    assert [one["step"] for one in splat.metrics["between"]] == [20, 40]


@pytest.mark.all
def test_training_views_are_measured_beside_held_out_ones(patch: Patch) -> None:
    folder, _ = trained(patch, recipe())
    final = (read_json(folder.metrics) or {})["final"]
    assert list(final["training_images"]) == ["img1.png", "img2.png", "img4.png", "img6.png"]
    assert final["training_psnr"] > 15
    assert (read_json(folder.metrics) or {})["peak"]["host_mib"] > 100


def test_without_weights_a_note_says_where_they_belong(patch: Patch, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "none"))
        _, splat = trained(patch, recipe(max_steps=3))
    assert "lpips" not in splat.metrics["final"]
    assert f"weights not found at {tmp_path}/none/hub/checkpoints/alexnet" in splat.metrics["notes"][0]


@pytest.mark.parametrize("left", ["cut", "empty", "text"])
def test_weights_that_are_cut_are_a_note_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    place_weights(tmp_path, monkeypatch)
    file = next(tmp_path.rglob("*.pth"))
    file.write_bytes({"cut": file.read_bytes()[:-100], "empty": b"", "text": b"<html>not found</html>"}[left])
    note = load_lpips()
    assert isinstance(note, str)
    assert "cannot be read" in note


@pytest.mark.all
def test_lpips_is_zero_for_equal_pictures_and_grows_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchmetrics")
    place_weights(tmp_path, monkeypatch)
    lpips = load_lpips()
    assert isinstance(lpips, Lpips)
    picture = torch.rand(64, 80, 3, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(64, 80, 3, generator=torch.Generator().manual_seed(1))
    distances = [float(lpips((picture + strength * noise).clamp(0, 1), picture)) for strength in (0, 0.05, 0.3)]
    assert distances[0] == 0 < distances[1] < distances[2]


def network() -> nn.Sequential:
    """AlexNet's features as torchvision builds them, with our weights."""
    parts: list[nn.Module] = []
    for (_, stride, padding, is_pooled), before, after, size in zip(
        LAYERS, CHANNELS[:-1], CHANNELS[1:], SIZES, strict=True
    ):
        parts += [nn.MaxPool2d(3, 2)] * is_pooled + [nn.Conv2d(before, after, size, stride, padding), nn.ReLU()]
    built = nn.Sequential(*parts, nn.MaxPool2d(3, 2))
    built.load_state_dict({name.removeprefix("features."): value for name, value in alexnet().items()})
    return built


@pytest.mark.all
def test_lpips_is_that_of_torchmetrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = pytest.importorskip("torchmetrics.functional.image.lpips")
    monkeypatch.setattr(reference, "_get_tv_model_features", lambda *_: network())
    place_weights(tmp_path, monkeypatch)
    one, other = torch.rand(2, 70, 90, 3, generator=torch.Generator().manual_seed(0))
    theirs = reference._LPIPS(pretrained=True, net="alex", pnet_rand=True)
    expected = theirs(one.movedim(-1, 0)[None], other.movedim(-1, 0)[None], normalize=True)
    lpips = load_lpips()
    assert isinstance(lpips, Lpips)
    assert float(lpips(one, other)) == pytest.approx(float(expected), rel=1e-4)
