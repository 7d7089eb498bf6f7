"""One real training on the CPU, from settings.json to splat.ply; what it says of itself, and how it gives up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from small_patch import STEPS, prepared, recipe, trained

from splatbatch.config import Recipe, Training
from splatbatch.config.schedule import schedule
from splatbatch.errors import SceneError, SplatbatchError, TrainerError
from splatbatch.files import read_json, read_lines
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Points
from splatbatch.scene.patches import Patch, find_patches
from splatbatch.splats import read_splat
from splatbatch.splats.health import Expectations
from splatbatch.trainers import open_trainer
from splatbatch.training.__main__ import main
from splatbatch.training.attempt import prepare, train_attempt
from splatbatch.training.frame import LocalFrame
from splatbatch.training.gaussians import as_parameters, export, init_from_points, thinned
from splatbatch.training.photos.dataset import PhotoFolders, decode_views
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.stop_request import exit_code_of

QUARRY = Path(__file__).parents[2] / "examples/quarry"


@pytest.mark.all(but="default")
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_a_training_shows_photographs_it_has_never_seen_better_than_its_start(patch: Patch, strategy: str) -> None:
    _, splat = trained(patch, recipe(strategy=strategy))
    initial, final = splat.metrics["initial"], splat.metrics["final"]
    assert final["psnr"] >= initial["psnr"] + 3
    assert final["ssim"] > initial["ssim"]
    assert list(final["images"]) == ["img0.png", "img8.png"]
    assert 0 < splat.num_gaussians <= 150


def test_a_cap_may_be_a_multiple_of_the_points(patch: Patch) -> None:
    folder = prepared(patch, recipe(cap_max="1.5x"))
    settings = folder.read_settings()
    asked = Recipe.model_validate(settings.recipe)
    assert prepare(settings, asked, ProgressRecorder(folder.progress, STEPS)).recipe.training.cap_max == 54


def test_progress_tells_every_phase_and_ends_with_the_last_step(patch: Patch) -> None:
    folder, _ = trained(patch, recipe())
    records = list(read_lines(folder.progress))
    assert list(dict.fromkeys(record["phase"] for record in records)) == [
        "start", "load", "init", "train", "eval", "export", "done",
    ]  # fmt: skip
    steps = [record for record in records if "loss" in record]
    assert (steps[0]["step"], steps[-1]["step"], records[-1]["step"]) == (1, STEPS, STEPS)
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert all(record["grad_norm"] > 0 and record["max_steps"] == STEPS for record in steps)


def test_preparing_leaves_everything_in_host_memory_and_cuda_alone(patch: Patch) -> None:
    folder = prepared(patch, recipe())
    settings = folder.read_settings()
    asked = Recipe.model_validate(settings.recipe)
    ready = prepare(settings, asked, ProgressRecorder(folder.progress, STEPS))
    tensors = [*ready.gaussians.values(), *(photo.pixels for photo in ready.views.training)]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    assert not torch.cuda.is_initialized()
    assert [record["phase"] for record in read_lines(folder.progress)] == ["start", "load"]


@pytest.mark.all
def test_the_same_seed_gives_the_same_splat_and_another_gives_another(patch: Patch) -> None:
    splats = [trained(patch, recipe(seed=seed), name)[1] for name, seed in (("a-1", 1), ("a-2", 1), ("a-3", 2))]
    one, same, other = (splat.path.read_bytes() for splat in splats)
    assert one == same
    assert one != other


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_a_splat_has_the_degree_that_was_asked_for(patch: Patch, degree: int) -> None:
    _, splat = trained(patch, recipe(sh_degree=degree, max_steps=5))
    assert splat.sh_degree == degree


def test_without_holdout_a_splat_is_trained_and_nothing_is_measured(patch: Patch) -> None:
    settings = Recipe.model_validate({**recipe(max_steps=5).model_dump(), "evaluation": {"holdout_every": 0}})
    folder, splat = trained(patch, settings)
    assert (splat.metrics["initial"], splat.metrics["final"]) == (None, None)
    assert not any("psnr" in record for record in read_lines(folder.progress))


def test_what_is_odd_about_the_photographs_is_noted(patch: Patch) -> None:
    Pillow.new("RGB", (16, 12)).save(patch.images / "img3.png")
    folder, _ = trained(patch, recipe(max_steps=5))
    assert [record["warning"] for record in read_lines(folder.progress) if "warning" in record] == [
        "1 photograph differs in size from its camera, as img3.png: the intrinsics were rescaled"
    ]


def test_without_points_there_is_nothing_to_start_from(patch: Patch) -> None:
    (patch.sparse / "points3D.txt").write_text("# none\n")
    with pytest.raises(SplatbatchError, match="0 points at initialisation"):
        train_attempt(prepared(patch, recipe()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_that_is_demanded_and_not_there_is_said(patch: Patch) -> None:
    with pytest.raises(TrainerError, match="no CUDA GPUs are available"):
        train_attempt(prepared(patch, recipe(device="cuda")))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_auto_on_a_gpu_that_torch_cannot_use_does_not_train_on_the_cpu(
    patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0123")
    with pytest.raises(TrainerError, match="no CUDA GPUs are available"):
        train_attempt(prepared(patch, recipe(device="auto")))


def test_a_failure_leaves_one_line_an_exit_code_and_no_splat(patch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = prepared(patch, recipe())
    (patch.images / "img3.png").unlink()
    assert main(folder.path) == SceneError.exit_code
    assert capsys.readouterr().err.startswith(f"splatbatch: {patch.images}/img3.png: missing image")
    assert not folder.splat.exists()
    assert [record["phase"] for record in read_lines(folder.progress)][-1] == "load"


def test_a_failure_says_its_remedy_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise SceneError("camera 1: OPENCV has no parameter f", "Undistort the model.")

    assert exit_code_of(refuse) == 3
    assert capsys.readouterr().err == "splatbatch: camera 1: OPENCV has no parameter f. Hint: Undistort the model.\n"


def test_gaussians_start_at_the_points_and_are_written_in_world_coordinates(patch: Patch) -> None:
    model = read_reconstruction(patch.sparse)
    frame = decode_views(model, PhotoFolders(patch.images), frozenset(), Training()).frame
    assert frame.scale != 1
    settings = Training(init_scale=1.0, init_opacity=0.25, sh_degree=2)
    splat = export(as_parameters(init_from_points(model.points, frame, settings), torch.device("cpu")), frame)
    assert np.allclose(splat.means, model.points.xyz, atol=1e-5)
    # a grid of 0.4: the three nearest of an inner point are 0.4 away
    assert np.median(np.exp(splat.scales)) == pytest.approx(0.4, rel=1e-3)
    assert np.allclose(1 / (1 + np.exp(-splat.opacities)), 0.25)
    assert np.allclose(np.linalg.norm(splat.quats, axis=1), 1, atol=1e-5)
    assert np.allclose(0.5 + 0.28209479177387814 * splat.sh0, model.points.rgb / 255, atol=1e-6)
    assert splat.shN.shape == (36, 8, 3)


def test_one_point_alone_has_a_size(patch: Patch) -> None:
    (patch.sparse / "points3D.txt").write_text("1 0 0 3 128 100 90 0.5 1 0\n")
    _, splat = trained(patch, recipe(max_steps=3, strategy="default"))
    assert np.isfinite(read_splat(splat.path).scales).all()


def progress_of(folder: Path, max_steps: int = 300) -> ProgressRecorder:
    progress, settings = ProgressRecorder(folder / "progress.jsonl", max_steps), recipe(max_steps=max_steps)
    progress.expect(Expectations.of(settings, schedule(settings)))
    return progress


def norms(num: int, gradient: float | None) -> dict[str, torch.Tensor]:
    return {} if gradient is None else {"means": torch.full((num, 3), gradient).norm()}


@pytest.mark.parametrize(
    ("num", "gradient", "loss", "why"),
    [
        (0, 0.0, 0.5, "health: zero_gaussians"),
        (3, 1.0, float("nan"), "health: nan_loss: loss nan"),
        (3, float("inf"), 0.5, "health: nan_loss"),
        (3, 0.0, 0.5, "health: zero_gradients: every gradient was exactly zero at the last 3 recorded steps"),
        (3, None, 0.5, "health: zero_gradients"),
    ],
)
def test_a_hopeless_run_ends_itself(tmp_path: Path, num: int, gradient: float, loss: float, why: str) -> None:
    progress = progress_of(tmp_path)

    def run() -> None:
        for step in range(3):
            progress.step(step, torch.tensor(loss), {"means": torch.zeros(num, 3)}, norms(num, gradient))

    with pytest.raises(TrainerError, match=why):
        run()
    assert json.dumps(list(read_lines(tmp_path / "progress.jsonl")), allow_nan=False)


def test_a_gradient_between_zeros_is_a_sign_of_life(tmp_path: Path) -> None:
    progress = progress_of(tmp_path)
    for step, gradient in enumerate([0.0, 0.0, 1.0, 0.0, 0.0]):
        progress.step(step, torch.tensor(0.5), {"means": torch.zeros(3, 3)}, norms(3, gradient))
    written = [record["grad_norm"] > 0 for record in read_lines(tmp_path / "progress.jsonl")]
    assert written == [False, False, True, False, False]


@pytest.mark.parametrize(("max_steps", "records"), [(1, 1), (30, 30), (300, 61), (30_000, 301)])
def test_figures_are_read_seldom_enough_and_at_the_last_step(tmp_path: Path, max_steps: int, records: int) -> None:
    progress = ProgressRecorder(tmp_path / "progress.jsonl", max_steps)
    due = [step for step in range(max_steps) if progress.due(step)]
    assert (len(due), due[-1]) == (records, max_steps - 1)


def train_for_real(patches: str, images: str, folder: Path, max_steps: int) -> dict[str, Any]:
    """Train through the command line; return the report."""
    config = folder / "splat_config.yml"
    settings = {"patches": patches, "images": images}
    training = {"max_steps": max_steps, "device": "cpu"}
    config.write_text(json.dumps({"scene": settings, "training": training, "output": {"folder": str(folder / "out")}}))
    command = [sys.executable, "-m", "splatbatch", "train", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_json(folder / "out/report.json") or {}


@pytest.mark.all
@pytest.mark.parametrize(("max_steps", "psnr"), [(60, 22.5), pytest.param(300, 25.5, marks=pytest.mark.long)])
def test_real_photographs_reach_their_psnr_on_the_cpu(
    real_photos: Path, tmp_path: Path, max_steps: int, psnr: float
) -> None:
    report = train_for_real(str(real_photos), str(real_photos / "images"), tmp_path, max_steps)
    patch = report["patches"][0]
    assert patch["psnr"] >= psnr
    assert patch["initial_psnr"] < 20


@pytest.mark.all
@pytest.mark.skipif(not (QUARRY / "patches/p0/sparse").exists(), reason="examples/quarry is not here")
def test_a_patch_of_the_quarry_gets_better_in_30_steps(tmp_path: Path) -> None:
    from splatbatch.config import load

    patch = find_patches(load(QUARRY / "splat_config.yml").scene)[0]
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    settings = recipe(max_steps=30, cap_max=20_000)
    open_trainer(settings).command(patch, folder)
    train_attempt(folder)
    metrics = read_json(folder.metrics) or {}
    assert metrics["final"]["psnr"] >= metrics["initial"]["psnr"] + 3


def test_a_single_photograph_is_trained_on_unless_it_is_held_out(patch: Patch) -> None:
    images = patch.sparse / "images.txt"
    images.write_text("".join(line + "\n" for line in images.read_text().splitlines()[:2]))
    with pytest.raises(SceneError, match="no training cameras: 0 of 1 photographs are left"):
        trained(patch, recipe())
    training = {"max_steps": STEPS, "device": "cpu", "coarse_to_fine": True}
    settings = Recipe.model_validate({"training": training, "evaluation": {"holdout_every": 0}})
    _, splat = trained(patch, settings, "attempt-02")
    assert splat.num_gaussians > 0
    assert splat.metrics["final"] is None


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
@pytest.mark.parametrize("cap_max", [20, "0.6x"])
def test_more_points_than_the_cap_are_thinned_to_it_and_that_is_said(
    patch: Patch, strategy: str, cap_max: int | str
) -> None:
    asked = recipe(strategy=strategy, cap_max=cap_max)
    folders = [prepared(patch, asked, name) for name in ("attempt-01", "attempt-02")]
    first, again = (prepare(each.read_settings(), asked, ProgressRecorder(each.progress, STEPS)) for each in folders)
    num, cap = len(first.gaussians["means"]), first.recipe.training.cap()
    assert 0.6 * cap <= num <= cap < 36
    assert first.identity == again.identity  # the same points each time
    said = [line["warning"] for line in read_lines(folders[0].progress) if "warning" in line]
    start = f"training starts from {num} of 36 sparse points, evenly chosen in space"
    assert said == [f"{start}: training.cap_max, {cap}, allows no more"]


def _points(xyz: np.ndarray[Any, Any]) -> Points:
    num = len(xyz)
    return Points(xyz, np.zeros((num, 3), np.uint8), np.zeros(num), np.full(num, 2), np.arange(num, dtype=np.uint64))


@pytest.mark.parametrize("most", [1, 7, 500, 999])
def test_points_are_thinned_evenly_and_as_large_as_those_left_lie_apart(most: int) -> None:
    dense = np.random.default_rng(1).uniform(-1, 1, (5000, 3)) * 0.1
    sparse = np.random.default_rng(2).uniform(-1, 1, (1000, 3))
    points = _points(np.concatenate([dense, sparse]))
    training = recipe().training
    first = init_from_points(points, LocalFrame(np.zeros(3), 1.0, 1.0), training)
    left = thinned(first, most, training)
    assert min(most - 1, 0.9 * most) <= len(left["means"]) <= most
    share = float((left["means"].abs().max(dim=1).values < 0.1).float().mean())
    assert most < 500 or share < 0.5  # of 6,000 points 5 of 6 lie there
    assert most < 500 or left["scales"].mean() > first["scales"].mean()


def test_points_in_one_place_are_thinned_to_one() -> None:
    points = _points(np.ones((9, 3)))
    training = recipe().training
    first = init_from_points(points, LocalFrame(np.zeros(3), 1.0, 1.0), training)
    assert len(thinned(first, 5, training)["means"]) == 1
