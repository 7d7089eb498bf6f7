"""One attempt from settings.json to splat.ply: prepare without a GPU, then train, evaluate and export."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.errors import SceneError, TrainerError
from splatbatch.files import MIB, aside, write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.frame import shifted
from splatbatch.scene.memory_estimate import GPU_CONTEXT_MIB, PatchSize, estimate, extent_of
from splatbatch.scene.photos.folders import stored_photographs
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.splats import mode_comments, offset_comments, read_splat, write_splat
from splatbatch.training.border import as_trained, boundary_init, num_covering, read_border, why_alone
from splatbatch.training.checkpoint import Checkpoints, identity
from splatbatch.training.cuda.driver import open_context
from splatbatch.training.cuda.precompile import compile_kernels
from splatbatch.training.evaluation.evaluate import Evaluator, SplatFiles
from splatbatch.training.evaluation.pictures import from_one, picture_views
from splatbatch.training.gaussians import as_parameters, export, init_from_points, load_splat, select, thinned
from splatbatch.training.loop import train
from splatbatch.training.photos.coarse import content_of
from splatbatch.training.photos.dataset import (
    PhotoFolders,
    TrainingImages,
    boundary_mask,
    covered_of,
    decode_views,
    find_repeats,
    why_not_covered,
    with_covered,
)
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.standby import rehearse, wait_for_go
from splatbatch.training.stop_request import StopRequest

STANDBY_VARIABLE = "SPLATBATCH_STANDBY"
"""Environment variable, 1 for an attempt on standby, which prepares, then waits for go.json, its order to begin.

Any other value, or none, lets the attempt train at once.
"""


@dataclass(frozen=True)
class PreparedAttempt:
    """Result of `prepare` and input of `train_prepared`: everything computed without a GPU, in host memory."""

    recipe: Recipe
    """Recipe of the attempt, in which `cap_max` is a number."""
    views: TrainingImages
    """Decoded photographs with their cameras, for training and hold-out, and the border of the patch."""
    gaussians: Mapping[str, Tensor]
    """Gaussians at initialisation, before activation, within the bounds and the cap of the patch."""
    extent: PatchSize
    """Size of the patch for the estimate of its memory; its points are the initial Gaussians before the cap."""
    settings: TrainingSettings
    """Settings of the attempt, as paths, offset, the checkpoint to resume from, and the splat accepted before."""
    identity: str
    """Hash, 16 hexadecimal digits, of everything the training depends on; a checkpoint with another is not used."""


def train_attempt(
    folder: AttemptFolder, *, stands_by: bool = False, when_prepared: Callable[[], None] = lambda: None
) -> None:
    """Train the patch of an attempt folder, from its settings to metrics.json, pictures and splat.ply.

    splat.ply is renamed into place last, so that a splat.ply in the folder is complete.

    Args:
        folder: folder of the attempt, whose settings.json names all inputs.
        stands_by: whether the attempt, once prepared, waits without a limit for go.json, the order to begin.
        when_prepared: called after preparation and standby, before training.

    Raises:
        SplatbatchError: as no CUDA or kernels; no points, an unusable model, photographs or backdrop; during standby a
            supervisor that died or named another GPU; NaN pixels in a rendering, or a fatal health finding.
        KeyError: the checkpoint of this run lacks an entry of the state, or the border in the settings a key.
        ValueError: the recipe is invalid, or a parameter of the trained splat is not finite.
        OSError: a file cannot be written.
    """
    settings = folder.read_settings()
    recipe = Recipe.model_validate(settings.recipe)
    progress = ProgressRecorder(folder.progress, recipe.training.max_steps)
    prepared = prepare(settings, recipe, progress, has_gpu=not stands_by)
    if stands_by:
        wait_for_go(folder, progress, lambda: open_ahead(recipe))
    when_prepared()
    train_prepared(folder, prepared, progress)


def prepare(  # noqa: PLR0915 - it reads top to bottom
    settings: TrainingSettings, recipe: Recipe, progress: ProgressRecorder, *, has_gpu: bool = False
) -> PreparedAttempt:
    """Read the model, decode the photographs and initialise the Gaussians, all in host memory.

    Args:
        settings: names the folders of model, photographs and masks.
        recipe: settings of the training; its `cap_max` need not be a number.
        progress: records phases and warnings.
        has_gpu: whether to open the GPU in a thread meanwhile, and load its kernels, unless the recipe is for the CPU;
            else CUDA is not touched, since another process may still train on the GPU.

    Raises:
        SplatbatchError: no points, or none within reach of the core; an unusable model, photographs or backdrop; a
            fatal health finding.
        KeyError: the border in the settings lacks a key.
    """
    training = recipe.training
    # large computations here have their own threads; torch's threads of several attempts block each other: 11 s for 1
    torch.set_num_threads(1)
    progress.phase("start")
    opening = _begin_beside(recipe, has_gpu=has_gpu)

    progress.phase("load")
    whole = read_reconstruction(Path(settings.sparse), tracks=True)
    if not len(whole.points):
        raise SceneError(f"{settings.sparse}: the model has 0 points at initialisation: reconstruct the patch again")
    reconstruction = as_trained(shifted(whole, settings.offset), settings, training)
    folders = PhotoFolders.of(settings)
    load_lenses(reconstruction.cameras.values())
    with ThreadPoolExecutor(max_workers=1) as beside:  # while photographs are read, which waits for the disk
        covering = beside.submit(covered_of, settings, whole)
        views = decode_views(reconstruction, folders, frozenset(settings.holdout), training)
        progress.found(find_repeats(views.training))
        border = read_border(settings, views.frame, training)
        views = replace(views, border=border, content=content_of(views.training, recipe))

        gaussians = init_from_points(reconstruction.points, views.frame, training)
        if (outside := border.out_of_bounds(gaussians)) is not None:
            gaussians = select(gaussians, ~outside)
        if not len(gaussians["means"]):
            raise SceneError(
                f"{settings.sparse}: 0 points in the patch's core and its margin: run splatbatch split again"
            )
    views = with_covered(views, covering.result())
    for warning in (*views.warnings, *filter(None, [why_not_covered(views), why_alone(settings, training)])):
        progress.warn(warning)

    num_observations = int(whole.points.track_lengths.sum())
    extent = replace(
        extent_of(len(whole.points), num_observations, reconstruction.images, reconstruction.cameras),
        stored=stored_photographs(folders.images)[1],
        num_points=len(gaussians["means"]),
        num_behind=border.num_behind,
    )
    settled = (replace(extent, num_points=len(whole.points)) if settings.is_backdrop else extent).settle(recipe)
    cover, cap, num = border.boundary_init, settled.training.cap(), len(gaussians["means"])
    if num > (room := max(1, cap - num_covering(cover, cap))):
        gaussians = thinned(gaussians, room, settled.training)
        left = f"training starts from {len(gaussians['means']):,} of {num:,} sparse points, evenly chosen in space"
        progress.warn(f"{left}: training.cap_max, {cap:,}, allows no more")
    gaussians = boundary_init(gaussians, cover, cap)
    who = identity(settled, views, gaussians)  # hashes all pixels now, while no GPU is idle for it
    opening.join()
    return PreparedAttempt(settled, views, gaussians, extent, settings, who)


def _begin_beside(recipe: Recipe, *, has_gpu: bool) -> Thread:
    """Start, in a thread, to compile our kernels or, with `has_gpu`, to open the GPU, while photographs are read."""

    def open_gpu() -> None:
        with contextlib.suppress(Exception):  # the error is raised again at the first use
            if recipe.training.device == "cpu" or not torch.version.cuda:
                return
            if not has_gpu:
                return compile_kernels(recipe)
            open_context()
            if torch.cuda.is_available():
                open_ahead(recipe)

    opening = Thread(target=open_gpu, daemon=True)
    opening.start()
    return opening


def open_ahead(recipe: Recipe) -> None:
    """Open the CUDA context of an attempt and load its kernels, by a short training on a made-up scene.

    Raises:
        TrainerError: a GPU is asked for, or assigned to this process, and torch cannot use it; or it has no kernels.
    """
    device = open_device(recipe.training.device)
    rehearse(recipe.with_training({"device": device.type}), device)


def train_prepared(  # noqa: PLR0915 - it reads top to bottom
    folder: AttemptFolder, prepared: PreparedAttempt, progress: ProgressRecorder
) -> None:
    """Train a prepared attempt on the device of its recipe; write metrics.json, pictures and, last, splat.ply.

    The final metrics are measured on the splat as read back from its file. The checkpoint in the folder is then
    removed.

    Raises:
        SplatbatchError: no CUDA or kernels, no photograph that shows the patch, a rendering with NaN pixels, or a fatal
            finding of the health rules.
        KeyError: the checkpoint of this run lacks an entry of the state.
        ValueError: a parameter of the trained splat is not finite.
        OSError: a file cannot be written.
    """
    recipe, settings = prepared.recipe, prepared.settings

    progress.phase("init")
    device = open_device(recipe.training.device)
    torch.manual_seed(recipe.training.seed)
    # memory that this process may use on its GPU, its context included
    free_mib = GPU_CONTEXT_MIB + torch.cuda.mem_get_info(device)[0] // MIB if device.type == "cuda" else None
    footprint = estimate(recipe.with_training({"device": device.type}), prepared.extent, free_mib)
    views = boundary_mask(prepared.views.to(device, footprint.photos))
    gaussians = as_parameters(prepared.gaussians, device)
    if recipe.evaluation.tensorboard:
        progress.show_on(folder.tensorboard)
    evaluator = Evaluator(views, recipe, progress, device, folder)

    progress.phase("train")
    with StopRequest() as stop:
        every, resume = recipe.training.checkpoint_every, Path(settings.resume) if settings.resume else None
        checkpoints = Checkpoints(folder.checkpoint, prepared.identity, every, resume, progress, stop)
        gaussians = train(gaussians, views, recipe, evaluator, checkpoints)
    step, planned = evaluator.early.last_step, recipe.training.max_steps

    progress.phase("eval")
    views.border.clamp_scales(gaussians)
    with aside(folder.splat) as written:
        said = (*offset_comments(settings.offset), *mode_comments(recipe.training.antialiased))
        write_splat(written, export(gaussians, views.frame), step, planned, said)
        gaussians = load_splat(read_splat(written), views.frame, device)
        final = evaluator.measure(gaussians, step)
        files = SplatFiles(
            evaluator.photos, views.frame, recipe, device, settings.offset, views.border, views.are_evened
        )
        evaluator.measure_earlier(settings.earlier, files.figures)
        evaluator.measure_first(as_parameters(prepared.gaussians, device))
        made = {"resolution": dict(views.loaded), "expected": vars(footprint), "made_with": versions(device)}
        if views.coverage_masks is not None:
            write_json(folder.covered, views.coverage_masks.to_record())
        write_json(folder.metrics, {**evaluator.to_record(), **made})
        drawn = from_one(views.border.with_backdrop(gaussians), evaluator.photos)
        picture_views(folder, drawn, final, recipe)
        progress.phase("export")
    with contextlib.suppress(OSError):
        folder.checkpoint.unlink(missing_ok=True)
    progress.phase("done")
    if device.type == "cuda":
        # the end of the process frees everything; this only makes sure that no asynchronous error is pending
        torch.cuda.synchronize()


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions of Python, torch and gsplat, and the name of the device as "on", for metrics.json.

    gsplat is left out where its version is not known, as for a source tree on the path.
    """
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "on": name_of(device)}
    with contextlib.suppress(PackageNotFoundError):  # gsplat may be a source tree on the path
        versions["gsplat"] = version("gsplat")
    return versions


def name_of(device: torch.device) -> str:
    """Return the name of a CUDA device as its driver gives it, or "CPU" for any other device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def open_device(wanted: str) -> torch.device:
    """Return the device to train on, and set torch up for that device.

    On CUDA torch gets a stream of its own, which CUDA graphs need. On the CPU torch gets one thread, since patches in
    parallel use the cores better.

    Args:
        wanted: "cuda"; "cpu"; or "auto": CUDA if available, else the CPU, unless `CUDA_VISIBLE_DEVICES` names a GPU.

    Raises:
        TrainerError: a GPU is asked for, or assigned to this process, and torch cannot use it.
    """
    if wanted != "cpu" and torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]  # graphs are not recorded on the default stream
        return torch.device("cuda")
    if wanted == "cuda" or (wanted == "auto" and os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise TrainerError("no CUDA GPUs are available to the training process: see what splatbatch doctor says")
    torch.set_num_threads(1)
    return torch.device("cpu")
