"""Estimates memory and time of a patch's training before the training starts, by arithmetic on counts and sizes.

Memory is estimated at its peak: with the most Gaussians that are expected, and photographs in GPU or host memory as
the config says.

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
  the end), 20 s with `mcmc` to 400,000; the model says 14 and 19. Other GPUs were not measured.
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
"""GPU memory in MiB of CUDA's context with the kernels of torch and gsplat.

Measured: 290 MiB (kernels loaded lazily) to 667 MiB (pytorch PR #86509).
"""
COPIES = 4
"""Copies of each parameter in memory: the parameter, its gradient, and Adam's two moments.

Together 944 bytes per Gaussian at SH degree 3.
"""
PLAIN_SH_COPIES = 2
"""Further copies of the spherical harmonics with `training.kernels: gsplat`: the joined array and its gradient.

gsplat's rasteriser takes all coefficients in one array.
"""
RASTER_BYTES = 136
"""Bytes per Gaussian for projection and tile lists.

With `COPIES` 1,080 bytes per Gaussian at SH degree 3. On one H200 steps took 287 MiB of torch's memory at 250,000
Gaussians, 1,038 MiB at 1 M and 3,052 MiB at 3 M (1,054 bytes each). With `PLAIN_SH_COPIES` 1,464 bytes: gsplat's
documentation has 1.75 GB for 1 M and 4.97 GB for 3.2 M (1,463 bytes each).
"""
PIXEL_BYTES = 140
"""Bytes of memory per pixel of the largest photograph: rendering, gradient and SSIM maps.

Measured on an H200: 135 bytes, at 995x748 to 1548x1357 px.
"""
TONE_BYTES, PLAIN_TONE_BYTES = 24, 75
"""Further bytes per pixel if colours are corrected: with splatbatch's CUDA kernels, and with torch's operations.

Derived, not measured. Both hold the corrected target and the gradient's weights of clipped pixels, float32 each. With
torch's operations also gain and falloff, the photograph as float32, the rendering drawn to the target, and a mask.
"""
GROWTH = 1.05  # at most, per refinement of `mcmc` (gsplat's MCMCStrategy)
HOST_MIB = 2560
"""Host memory in MiB of a process with torch and a CUDA context; estimated, not measured."""
HOST_WITHOUT_CUDA_MIB = 600
DECODERS = 16  # at most at a time
DECODED_BYTES = 8  # per pixel while it is decoded: as stored, as RGB, and shrunk
MOST_PHOTOS = 1000
"""Most photographs of a whole scene that a backdrop is trained on, evenly taken.

So few fit into the memory of any host, and still show every place coarsely.
"""
FITS = 0.9
"""Largest share of a GPU's memory that a training may use; the rest is for fragmentation and uncounted parts."""
DEFAULT_GROWTH = 6.0
"""Least growth assumed for `strategy: default`: Gaussians at the end over sparse points, unless the cap is lower.

Measured: 4 to 6 in runs of 400 to 7,000 steps. For longer runs the 5 % of `GROWTH` at each refinement is assumed, which
is an upper bound.
"""


@dataclass(frozen=True)
class PatchSize:
    """Sizes and counts of a patch that determine the memory of its training."""

    num_points: int
    """Number of sparse points, with which the Gaussians begin."""
    sizes: tuple[Size, ...]
    """Width and height of every photograph in pixels, as its camera has them; photographs without a camera left out."""
    stored: int = 1
    """Factor by which the stored photographs are smaller than the cameras: 2 where only images_2/ exists.

    1: the originals exist, or no copies either.
    """
    num_behind: int = 0
    """Most Gaussians of the backdrop that are drawn with the patch's own; 0: no backdrop, or one of unknown size."""
    track_length: float = 0.0
    """Mean number of photographs in which a point was found; 0: unknown."""

    def pixels(self, resolution: str) -> list[int]:
        """Return the number of pixels of every photograph, in the order of `sizes`.

        Args:
            resolution: value of `training.resolution`; photographs are never larger than they are stored.

        Raises:
            KeyError: the resolution is unknown.
        """
        divisor = self.stored * max(1, divisor_of(resolution, self.sizes) // self.stored)
        return [-(-width // divisor) * -(-height // divisor) for width, height in self.sizes]

    def settle(self, recipe: Recipe) -> Recipe:
        """Return a copy of a recipe in which `training.cap_max`, which may be `auto`, is a number for this patch."""
        pixels = sum(self.pixels(recipe.training.resolution))
        surface_px = pixels / self.track_length if self.track_length else math.inf
        return recipe.with_training({"cap_max": recipe.training.cap(self.num_points, surface_px)})


@dataclass(frozen=True)
class MemoryEstimate:
    """Expected peak memory of one training, or of the inspection of a splat, with its parts; memory in MiB."""

    gpu_mib: int
    """GPU memory as NVML counts it, with the process's CUDA context; 0: the training uses the CPU."""
    host_mib: int
    """Memory of the process on the host."""
    num_gaussians: int
    """Largest number of Gaussians that the training may reach; for an inspection that of the splat."""
    photos: Literal["gpu", "host"]
    """Memory in which the photographs are kept during the training."""
    photos_mib: int
    """All photographs of the patch at training resolution, 3 bytes per pixel; 0 for an inspection.

    A part of `host_mib`, and of `gpu_mib` too if they are kept there.
    """
    num_points: int = 0
    """Number of Gaussians at the start, one per sparse point; 0 for an inspection."""
    mean_px: int = 0
    """Mean number of pixels of a photograph at training resolution; 0: no photographs, or an inspection."""

    def in_words(self) -> str:
        """Return the estimate as one line for people, without a full stop; GPU memory is left out if it is 0."""
        where = f", {self.gpu_mib:,} MiB of GPU memory" if self.gpu_mib else ""
        photos = f"{self.photos_mib:,} MiB of photographs in {'GPU' if self.photos == 'gpu' else 'host'} memory"
        return f"up to {self.num_gaussians:,} Gaussians{where}, {self.host_mib:,} MiB of host memory, {photos}"


def measure(patch: Patch) -> PatchSize:
    """Return the sizes and counts of a patch; cameras and images are read, points (of a .bin) and photographs are not.

    Raises:
        ModelError: a file of the model is missing or cannot be read.
        OSError: points3D.bin cannot be reached, as a link to a file that does not exist.
    """
    num_points, cameras = count_points(patch.sparse), read_cameras(patch.sparse)
    found = extent_of(num_points, count_observations(patch.sparse), read_images(patch.sparse), cameras)
    return replace(found, stored=stored_photographs(patch.images)[1])


def extent_of(
    num_points: int, num_observations: int, images: Iterable[Image], cameras: Mapping[int, Camera]
) -> PatchSize:
    """Return the sizes and counts of a model that was read; `stored` and `num_behind` have their defaults.

    Args:
        num_points: number of sparse points.
        num_observations: number of observations of all points, the sum of their track lengths.
        images: images of the model; one whose camera is missing is left out.
        cameras: cameras of the model, by id.
    """
    used = (cameras.get(image.camera_id) for image in images)
    sizes = tuple(camera.size for camera in used if camera)
    return PatchSize(num_points, sizes, track_length=num_observations / max(1, num_points))


def thinned(extent: PatchSize, most_points: int) -> PatchSize:
    """Return the sizes and counts with which the backdrop of a whole scene is trained.

    Args:
        extent: sizes and counts of the whole scene.
        most_points: most points of a backdrop; fewer points stay as they are.
    """
    return replace(
        extent, num_points=min(extent.num_points, most_points), sizes=extent.sizes[:: every(len(extent.sizes))]
    )


def every(num_photos: int) -> int:
    """Return n where a backdrop is trained on every n-th photograph of a scene, at most `MOST_PHOTOS`; 1: on all."""
    return max(1, -(-num_photos // MOST_PHOTOS))


def estimate(recipe: Recipe, extent: PatchSize, card_mib: int | None = None) -> MemoryEstimate:
    """Return the memory that the training of a patch is expected to need.

    Args:
        recipe: settings of the training.
        extent: sizes and counts of the patch.
        card_mib: memory of the GPU in MiB; None: unknown. With `training.images: auto` photographs are kept in GPU
            memory if they are expected to fit, and if the GPU's memory is unknown.
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
    """Return why a training may not fit into a GPU, and what to change; empty if the training is expected to fit.

    Args:
        need: expected memory of the training.
        card_mib: memory of the GPU in MiB, of which the share `FITS` may be used.
    """
    if need.gpu_mib <= FITS * card_mib:
        return ""
    return (
        f"expected to need {need.gpu_mib:,} MiB of GPU memory at {need.num_gaussians:,} Gaussians, but the GPU has"
        f" {card_mib:,} MiB: lower training.cap_max or training.resolution, or set training.images to host"
    )


def expected_gaussians(recipe: Recipe, num_points: int) -> int:
    """Return the largest expected number of Gaussians of a training.

    With `strategy: mcmc` the sparse points grow by 5 % at each refinement, up to the cap; else the cap is expected.

    Args:
        recipe: settings of the training, with `cap_max` and the schedule of refinements. A `cap_max` of `auto` that
            `PatchSize.settle` has not made a number counts as its most.
        num_points: number of sparse points, with which the Gaussians begin.
    """
    cap = recipe.training.cap(num_points)
    if recipe.training.strategy != "mcmc":
        return cap
    plan = schedule(recipe)
    refinements = 1 + max(0, plan.refine_stop - plan.refine_start) // plan.refine_every
    growth = GROWTH ** min(refinements, 1000)
    return min(cap, round(num_points * growth))


def bytes_per_gaussian(training: Training) -> int:
    """Return the bytes of memory that one Gaussian takes during training, with gradients and Adam's moments."""
    harmonics = 3 * (training.sh_degree + 1) ** 2
    joined = PLAIN_SH_COPIES if training.kernels == "gsplat" else 0
    parameters = 3 + 3 + 4 + 1 + harmonics  # mean, scales, quaternion, opacity
    return FLOAT * (COPIES * parameters + joined * harmonics) + RASTER_BYTES


def bytes_per_pixel(training: Training) -> int:
    """Return the bytes of memory that a training step takes per pixel of its photograph.

    Memory for colour correction is included unless `training.colors` is `as_is`.
    """
    if training.colors == "as_is":
        return PIXEL_BYTES
    is_plain = training.kernels == "gsplat" or training.device == "cpu"
    return PIXEL_BYTES + (PLAIN_TONE_BYTES if is_plain else TONE_BYTES)


def bytes_behind(training: Training, num: int, num_behind: int) -> int:
    """Return the bytes of memory that a backdrop takes during training; 0 without a backdrop.

    Counted are its Gaussians, a copy joined to the patch's own Gaussians, and the gradient of that copy.

    Args:
        training: settings of the training.
        num: number of the patch's own Gaussians.
        num_behind: number of Gaussians of the backdrop; 0: there is no backdrop.
    """
    if not num_behind:
        return 0
    parameters = FLOAT * (3 + 3 + 4 + 1 + 3 * (training.sh_degree + 1) ** 2)
    return num_behind * (parameters + RASTER_BYTES) + 2 * (num + num_behind) * parameters


def _mib(num_bytes: int) -> int:
    return -(-num_bytes // MIB)


@dataclass(frozen=True)
class TrainingSpeed:
    """Coefficients of training time for one device, in seconds."""

    start: float
    """Time of an attempt outside its steps, in s: from process start to the first step, and after the last step."""
    step: float
    """Constant time of each step, in s."""
    pixel: float
    """Time of each step per pixel of its photograph, in s."""
    gaussian: float
    """Time of each step per Gaussian, in s."""


CPU = TrainingSpeed(start=4.0, step=0.0, pixel=1.5e-6, gaussian=5e-6)


H200 = TrainingSpeed(start=3.0, step=0.3e-3, pixel=0.5e-9, gaussian=5e-9)


def stepping_s(recipe: Recipe, need: MemoryEstimate, speed: TrainingSpeed, until: float = math.inf) -> float:
    """Return the expected seconds of an attempt's steps, without its start and end.

    Args:
        recipe: settings of the training.
        need: expected memory, with the numbers of Gaussians and pixels.
        speed: coefficients of the device.
        until: number of first steps to count, at most `training.max_steps`; by default all.
    """
    steps = min(until, recipe.training.max_steps)
    of_each = speed.step + speed.pixel * need.mean_px
    return steps * of_each + speed.gaussian * gaussian_steps(recipe, need, steps)


def gaussian_steps(recipe: Recipe, need: MemoryEstimate, until: float) -> float:
    """Return the sum, over the first `until` steps, of the number of Gaussians at each step.

    The number begins with the sparse points, and grows by a constant factor at each refinement up to
    `need.num_gaussians`. Multiplied by the time per Gaussian, the sum is a part of the training time.
    """
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
