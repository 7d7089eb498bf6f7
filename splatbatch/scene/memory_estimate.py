"""Estimates memory and time of a patch's training before it starts, by arithmetic on counts and sizes.

Memory is an upper bound: what is reserved once the cap is reached, with photographs where the config puts them.

A step's time is linear in the pixels of its photograph and in the Gaussians at that time. Measured:

- CPU: one core of an Intel Xeon (2026), one thread, `mcmc`, SH degree 3, seconds per step at fixed numbers of Gaussians
  on real photographs. Of whole runs, start and evaluation left out: steps took 0.14 s (320x241, `default`, 4,000 to
  12,917 Gaussians), 0.10 s (`mcmc`, 4,000 to 5,359) and 1.5 s (995x748, 27,583).

  | photographs | Gaussians | measured | model |
  |---|---|---|---|
  | 320x241 | 3,000, 30,000, 300,000 | 0.07, 0.16, 1.60 | 0.13, 0.27, 1.62 |
  | 498x374 | 10,000, 100,000, 400,000 | 0.29, 0.54, 1.88 | 0.33, 0.78, 2.28 |
  | 995x748 | 10,000, 100,000, 400,000, 1,000,000 | 0.91, 1.27, 3.22, 6.00 | 1.17, 1.62, 3.12, 6.12 |

- GPU: one H200, patches of 7,000 steps at 995x748 from start to exit: 13 s with `default` (some 200,000 Gaussians at
  the end), 20 s with `mcmc` to 400,000; the model says 14 and 19. Other GPUs differ; nothing here knows by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from splatbatch.config import Recipe, Training
from splatbatch.config.schedule import schedule
from splatbatch.files import MIB
from splatbatch.scene.colmap.reconstruction import count_observations, count_points, read_cameras, read_images
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import divisor_of, stored_photographs
from splatbatch.scene.photos.headers import Size

FLOAT = 4  # bytes
GPU_CONTEXT_MIB = 512
"""CUDA's context with the kernels of torch and gsplat: 290 MiB (loaded lazily) to 667 MiB (pytorch PR #86509)."""
COPIES = 4
"""Copies of each parameter in memory: itself, its gradient, and Adam's two moments.

944 bytes per Gaussian at SH degree 3.
"""
PLAIN_SH_COPIES = 2
"""Further copies of the harmonics with `kernels: gsplat`: joined for gsplat's rasteriser, and the gradient of that."""
RASTER_BYTES = 136
"""Bytes per Gaussian for projection and tile lists.

With the copies above 1,080 bytes per Gaussian at SH degree 3: on one H200 steps took 287 MiB of torch's memory at
250,000, 1,038 at 1 M and 3,052 at 3 M (1,054 each). With the plain copies 1,464: gsplat's documentation has 1.75 GB for
1 M and 4.97 GB for 3.2 M (1,463 each).
"""
PIXEL_BYTES = 140
"""Bytes per pixel of the largest photograph: rendering, gradient, SSIM maps; 135 on an H200, 995x748 to 1548x1357."""
TONE_BYTES, PLAIN_TONE_BYTES = 24, 75
"""Further bytes per pixel where colours are corrected: with our kernels, and with torch's own operations.

Derived, not measured: the corrected target and the gradient that clipped pixels weigh, float32 each. With torch's own
operations also gain and falloff, the photograph as float32, the rendering drawn to the target, and a mask.
"""
GROWTH = 1.05  # at most, per refinement of `mcmc` (gsplat's MCMCStrategy)
HOST_MIB = 2560
"""Host memory of a process with torch and a CUDA context (estimated, not measured); 600 without CUDA."""
HOST_WITHOUT_CUDA_MIB = 600
DECODERS = 16  # at most at a time
DECODED_BYTES = 8  # per pixel while it is decoded: as stored, as RGB, and shrunk
MOST_PHOTOS = 1000
"""Most photographs of a whole scene that a backdrop is trained on; they fit any host and show every place coarsely."""
FITS = 0.9
"""Share of a GPU's memory that may be planned with; the rest is for fragmentation and uncounted parts."""
DEFAULT_GROWTH = 6.0
"""Smallest factor by which the Gaussians of a run with `default` grow over the sparse points, below the cap.

4 to 6 in runs of 400 to 7,000 steps. Longer runs grow as `mcmc` does, by 5 % at each refinement, or not at all; that is
an upper bound.
"""


@dataclass(frozen=True)
class PatchSize:
    """Sizes and counts of a patch that determine its memory."""

    num_points: int
    sizes: tuple[Size, ...]
    """Width and height of every photograph, as its camera has it."""
    stored: int = 1
    """Factor by which the stored photographs are smaller than the cameras: 2 where only images_2 exists."""
    num_behind: int = 0
    """Most Gaussians of the backdrop that are drawn with the patch's own."""
    track_length: float = 0.0
    """Mean number of photographs in which a point was found; 0: unknown."""

    def pixels(self, resolution: str) -> list[int]:
        """Return the pixels of every photograph at a training resolution."""
        divisor = self.stored * max(1, divisor_of(resolution, self.sizes) // self.stored)
        return [-(-width // divisor) * -(-height // divisor) for width, height in self.sizes]

    def settle(self, recipe: Recipe) -> Recipe:
        """Return a recipe with `cap_max` as a number for this patch."""
        pixels = sum(self.pixels(recipe.training.resolution))
        surface_px = pixels / self.track_length if self.track_length else math.inf
        return recipe.with_training({"cap_max": recipe.training.cap(self.num_points, surface_px)})


@dataclass(frozen=True)
class MemoryEstimate:
    """Expected peak memory of one training, with its parts."""

    gpu_mib: int
    """GPU memory as NVML counts it, with the process's context; 0 on the CPU."""
    host_mib: int
    num_gaussians: int
    """Largest number of Gaussians at the end."""
    photos: Literal["gpu", "host"]
    photos_mib: int
    """All photographs of the patch at training resolution, 3 bytes per pixel."""
    num_points: int = 0
    """Number of Gaussians at the start, one per sparse point."""
    mean_px: int = 0
    """Mean pixels of a photograph at training resolution."""

    def in_words(self) -> str:
        """Return the estimate as one line for people."""
        where = f", {self.gpu_mib:,} MiB of GPU memory" if self.gpu_mib else ""
        photos = f"{self.photos_mib:,} MiB of photographs in {'GPU' if self.photos == 'gpu' else 'host'} memory"
        return f"up to {self.num_gaussians:,} Gaussians{where}, {self.host_mib:,} MiB of host memory, {photos}"


def measure(patch: Patch) -> PatchSize:
    """Return the sizes and counts of a patch; cameras and images are read, points and photographs are not.

    Raises:
        ModelError: the model cannot be read.
    """
    num_points, cameras = count_points(patch.sparse), read_cameras(patch.sparse)
    found = extent_of(num_points, count_observations(patch.sparse), read_images(patch.sparse), cameras)
    return replace(found, stored=stored_photographs(patch.images)[1])


def extent_of(
    num_points: int, num_observations: int, images: Iterable[Image], cameras: Mapping[int, Camera]
) -> PatchSize:
    """Return the sizes and counts of a model that was read."""
    used = (cameras.get(image.camera_id) for image in images)
    sizes = tuple(camera.size for camera in used if camera)
    return PatchSize(num_points, sizes, track_length=num_observations / max(1, num_points))


def thinned(extent: PatchSize, most_points: int) -> PatchSize:
    """Return the sizes and counts of a whole scene, reduced as for training its backdrop."""
    return replace(
        extent, num_points=min(extent.num_points, most_points), sizes=extent.sizes[:: every(len(extent.sizes))]
    )


def every(num_photos: int) -> int:
    """Return the step in which a backdrop takes the photographs of a scene, so that at most `MOST_PHOTOS` are used."""
    return max(1, -(-num_photos // MOST_PHOTOS))


def estimate(recipe: Recipe, extent: PatchSize, card_mib: int | None = None) -> MemoryEstimate:
    """Return the memory that the training of a patch is expected to need.

    Args:
        recipe: settings of the training.
        extent: sizes and counts of the patch.
        card_mib: memory of the GPU; None: unknown, and photographs are expected to fit.
    """
    training = recipe.training
    pixels = extent.pixels(training.resolution)
    num, photos = expected_gaussians(recipe, extent.num_points), 3 * sum(pixels)
    work = num * bytes_per_gaussian(training) + bytes_per_pixel(training) * max(pixels, default=0)
    work += bytes_behind(training, num, extent.num_behind)
    host = photos + DECODED_BYTES * DECODERS * max((width * height for width, height in extent.sizes), default=0)
    mean_px = sum(pixels) // max(1, len(pixels))
    if training.device == "cpu":
        return MemoryEstimate(
            0, HOST_WITHOUT_CUDA_MIB + _mib(work + host), num, "host", _mib(photos), extent.num_points, mean_px
        )
    both = GPU_CONTEXT_MIB + _mib(work + photos)
    fits = training.images == "gpu" or (training.images == "auto" and (card_mib is None or both <= FITS * card_mib))
    gpu_mib = both if fits else GPU_CONTEXT_MIB + _mib(work + 2 * 3 * max(pixels, default=0))
    where: Literal["gpu", "host"] = "gpu" if fits else "host"
    return MemoryEstimate(gpu_mib, HOST_MIB + _mib(host), num, where, _mib(photos), extent.num_points, mean_px)


def why_tight(need: MemoryEstimate, card_mib: int) -> str:
    """Return why a training may not fit a GPU with so much memory; empty if it is expected to fit."""
    if need.gpu_mib <= FITS * card_mib:
        return ""
    return (
        f"expected to need {need.gpu_mib:,} MiB of GPU memory at {need.num_gaussians:,} Gaussians, the GPU has"
        f" {card_mib:,}: lower training.cap_max or training.resolution, or set training.images to host"
    )


def expected_gaussians(recipe: Recipe, num_points: int) -> int:
    """Return the largest expected number of Gaussians: at most the cap; `mcmc` adds 5 % per refinement."""
    cap = recipe.training.cap(num_points)
    if recipe.training.strategy != "mcmc":
        return cap
    plan = schedule(recipe)
    refinements = 1 + max(0, plan.refine_stop - plan.refine_start) // plan.refine_every
    growth = GROWTH ** min(refinements, 1000)
    return min(cap, round(num_points * growth))


def bytes_per_gaussian(training: Training) -> int:
    """Return the bytes of memory that one Gaussian takes during training."""
    harmonics = 3 * (training.sh_degree + 1) ** 2
    joined = PLAIN_SH_COPIES if training.kernels == "gsplat" else 0
    parameters = 3 + 3 + 4 + 1 + harmonics  # mean, scales, quaternion, opacity
    return FLOAT * (COPIES * parameters + joined * harmonics) + RASTER_BYTES


def bytes_per_pixel(training: Training) -> int:
    """Return the bytes that a step takes per pixel of its photograph, with colour correction where it may be used."""
    if training.colors == "as_is":
        return PIXEL_BYTES
    is_plain = training.kernels == "gsplat" or training.device == "cpu"
    return PIXEL_BYTES + (PLAIN_TONE_BYTES if is_plain else TONE_BYTES)


def bytes_behind(training: Training, num: int, num_behind: int) -> int:
    """Return the bytes that a backdrop takes: itself, joined to the patch's own Gaussians, and the gradient."""
    if not num_behind:
        return 0
    parameters = FLOAT * (3 + 3 + 4 + 1 + 3 * (training.sh_degree + 1) ** 2)
    return num_behind * (parameters + RASTER_BYTES) + 2 * (num + num_behind) * parameters


def _mib(num_bytes: int) -> int:
    return -(-num_bytes // MIB)


@dataclass(frozen=True)
class TrainingSpeed:
    """Coefficients of training time, in seconds, for one device."""

    start: float
    """Time from process start to the first step, plus from the last step to the end."""
    step: float
    """Constant time of each step."""
    pixel: float
    """Time of each step per pixel."""
    gaussian: float
    """Time of each step per Gaussian."""


CPU = TrainingSpeed(start=4.0, step=0.0, pixel=1.5e-6, gaussian=5e-6)


H200 = TrainingSpeed(start=3.0, step=0.3e-3, pixel=0.5e-9, gaussian=5e-9)


def training_s(recipe: Recipe, need: MemoryEstimate, throughput: TrainingSpeed, steps: float) -> float:
    """Return the expected seconds of one attempt of `steps` steps, from process start to end."""
    return throughput.start + stepping_s(recipe, need, throughput, steps)


def stepping_s(recipe: Recipe, need: MemoryEstimate, throughput: TrainingSpeed, until: float | None = None) -> float:
    """Return the expected seconds of an attempt's steps: of the first `until`, or of all."""
    steps = recipe.training.max_steps if until is None else min(until, recipe.training.max_steps)
    of_each = throughput.step + throughput.pixel * need.mean_px
    return steps * of_each + throughput.gaussian * gaussian_steps(recipe, need, steps)


def gaussian_steps(recipe: Recipe, need: MemoryEstimate, until: float) -> float:
    """Return the sum of the Gaussians over the first `until` steps; they grow by a factor at each refinement."""
    plan, first = schedule(recipe), max(1, need.num_points)
    refinements = max(1, (plan.refine_stop - plan.refine_start) // plan.refine_every)
    growth = math.log(GROWTH)
    if recipe.training.strategy == "default":
        growth = max(growth, math.log(DEFAULT_GROWTH) / refinements)
    total = min(refinements * growth, math.log(max(1.0, need.num_gaussians / first)))
    grown_at = min(plan.max_steps, plan.refine_start + total / growth * plan.refine_every)
    before = min(plan.refine_start, grown_at, until)
    meanwhile = min(until, grown_at) - before
    after = until - before - meanwhile
    rate = total / (grown_at - min(plan.refine_start, grown_at)) if grown_at > plan.refine_start else 0.0
    grown = first * math.expm1(rate * meanwhile) / rate if rate else first * meanwhile  # exponential growth, summed up
    return first * before + grown + first * math.exp(total) * after
