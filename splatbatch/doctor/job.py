"""Judges what a batch asks of the machine: its folder, the disk, its trainers, optional parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from splatbatch.config import Recipe
from splatbatch.doctor.facts import OF_MACHINE, OF_TRAINER, Finding, Job, ok, problem, warning
from splatbatch.files import MIB
from splatbatch.scene.footprint import Footprint

FLOAT = 4  # bytes
BESIDES_MIB = 20
"""Of each patch: pictures, log, progress (estimated, not measured)."""


def of_job(job: Job) -> Iterator[Finding]:
    """Yield what there is to say of a batch."""
    yield output_folder(job)
    yield disk(job)
    yield from trainers(job.lacking)


def output_folder(job: Job) -> Finding:
    """Judge whether the output can be written."""
    if job.can_write:
        return ok("output folder", f"{job.folder} can be written")
    remedy = "Choose another output.folder, or mend its permissions."
    return problem("output folder", f"{job.folder} cannot be written", remedy, OF_MACHINE)


def disk(job: Job) -> Finding:
    """Judge the room for the output: below `limits.free_disk_mib` nothing is started."""
    if job.free_mib is None:
        return ok("disk", f"it is not known how much room {job.folder} has")
    room, remedy = f"{job.free_mib:,} MiB free for {job.folder}", "Free space, or choose another output.folder."
    if job.free_mib < job.wanted_mib:
        said = f"{room}, wanted {job.wanted_mib:,} MiB (limits.free_disk_mib): nothing is started before"
        return problem("disk", said, remedy, OF_MACHINE)
    if job.free_mib < job.need_mib + job.wanted_mib:
        said = f"{room}; the batch will write about {job.need_mib:,} MiB and pauses below {job.wanted_mib:,} MiB"
        return warning("disk", said, remedy)
    return ok("disk", f"{room}, the batch will write about {job.need_mib:,} MiB")


def trainers(lacking: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Judge whether the programs that train are here."""
    for name, missing in lacking.items():
        if missing:
            remedy = (
                f"Mend trainers.{name} in the YAML, or install it: `splatbatch doctor --trainers` says what is found."
            )
            yield problem(f"trainer {name}", "; ".join(missing), remedy, OF_TRAINER)
        else:
            yield ok(f"trainer {name}", "found")


def extras(versions: Mapping[str, str], wanted: frozenset[str], *, has_viewer: bool) -> Iterator[Finding]:
    """Say which optional parts are installed; one that the YAML asks for and is not here is a warning."""
    for extra, (package, purpose) in EXTRAS.items():
        remedy = f"pip install 'splatbatch[{extra}]'"
        if package in versions:
            yield ok(f"extra {extra}", f"{package} {versions[package]}: {purpose}")
        elif extra in wanted:
            yield warning(f"extra {extra}", f"not installed, and the YAML asks for it: {purpose}", remedy)
        else:
            yield ok(f"extra {extra}", f"not installed (optional): {purpose}: {remedy}")
    without = "not packed: this was installed from sources without npm; a wheel of a release has it"
    yield ok("3D viewer", "packed into the report" if has_viewer else without)


EXTRAS = {
    "web": ("gsply", "splats that open in 3D in report.html"),
    "notify": ("apprise", "notify.urls"),
    "tensorboard": ("tensorboard", "evaluation.tensorboard"),
    "lpips": ("torchmetrics", "LPIPS beside PSNR and SSIM"),
    "geo": ("pyproj", "3D Tiles on the globe"),
    "mlflow": ("mlflow-skinny", "tracking.mlflow"),
    "ray": ("ray", "executor.engine: ray"),
}
"""The package of each optional part, and what it is for."""


def disk_mib(recipes: Mapping[str, Recipe], footprints: Mapping[str, Footprint]) -> int:
    """Return what the training of some patches will write: splats, checkpoints, pictures; from above."""
    total = 0
    for name, footprint in footprints.items():
        training = recipes[name].training
        floats = 11 + 3 * (training.sh_degree + 1) ** 2  # position, scales, quaternion, opacity; harmonics
        copies = 4 if training.checkpoint_every else 1  # a checkpoint also has Adam's two moments
        total += BESIDES_MIB + footprint.num_gaussians * floats * FLOAT * copies // MIB
    return total
