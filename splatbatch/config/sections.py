"""The sections of the YAML around the training: scene, retries, limits, output, publishing and notifications."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_serializer, model_validator

from splatbatch.config.section import HIDDEN, FilePath, Offset, Seconds, Section, SomeSeconds, as_list, either

DEFAULT_PATCHES = Path("patches")


class Scene(Section):
    """Where the patches, photographs and masks of the batch lie, and in which coordinates."""

    patches: FilePath = DEFAULT_PATCHES
    """Folder whose sub-folders are patches (each with sparse/0), or a single COLMAP scene."""
    images: FilePath | None = None
    """Folder of the photographs if all patches share it. Left out: the folder `images` beside each patch's `sparse`."""
    masks: FilePath | None = None
    """Folder of masks, named photo.jpg.png or photo.png; black pixels are ignored. Left out: the folder `masks` beside
    the photographs, if there is one."""
    source: FilePath | None = None
    """The COLMAP scene from which the patches were cut; held-out photographs are chosen in it, and the patches' cameras
    are compared with it. Left out: photographs are held out in each patch by itself; patches of `split` know their
    scene."""
    scenes: Annotated[tuple[FilePath, ...], BeforeValidator(as_list)] = ()
    """Instead of `patches`, `images` and `source`: COLMAP scenes, each trained by itself, as folders or patterns such
    as "360_v2/*". []: none."""
    offset: Annotated[Literal["none"] | Offset | None, either("three numbers [x, y, z], or none")] = None
    """Vector [x, y, z] subtracted from all coordinates before training, in their units; none: nothing is subtracted.
    Left out: a vector of whole units if the scene lies so far from its origin (as with UTM) that float32 would blur
    it."""

    crs: str | None = None
    """Coordinate system of the model, as EPSG:32632, with metres east, north and up; with it, 3D Tiles lie at their
    place on the globe. Left out: unknown."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Scene:
        given = [name for name in ("images", "source") if getattr(self, name) is not None]
        given += ["patches"] if self.patches.name != DEFAULT_PATCHES.name else []
        if self.scenes and given:
            raise ValueError(f"each scene of `scenes` has its own folders: remove {', '.join(given)}")
        if self.scenes and isinstance(self.offset, tuple):
            raise ValueError("each scene of `scenes` gets its own offset: remove offset, or write offset: none")
        return self


Rung = dict[str, bool | int | float | str | tuple[str, ...]]
"""Settings changed together, by full name: a value, a factor such as "x0.6" on the value in force, or added words."""

LadderName = Literal["gpu_memory", "host_memory", "segfault", "numerics", "pruning"]

DEFAULT_LADDERS: dict[LadderName, tuple[Rung, ...]] = {
    "gpu_memory": ({"training.images": "host"}, {"training.cap_max": "x0.6"}, {"training.resolution": "x0.5"}),
    "host_memory": ({"training.workers": 4}, {"training.workers": 0}, {"slots": "x0.5"}),
    "segfault": ({"training.workers": 4}, {"training.workers": 0}),
    "numerics": ({"training.init_scale": "x3"}, {"learning_rates.means": "x0.5"}, {"training.strategy": "default"}),
    "pruning": ({"refinement.prune_opa": "x0.2"}, {"training.seed": 43}),
}


def _with_default_ladders(given: object) -> object:
    """Return the ladders of the YAML, with the default ones for those that it does not mention."""
    return DEFAULT_LADDERS | given if isinstance(given, dict) else given


class Retry(Section):
    """Whether and how often a failed patch is tried again, and which settings are changed for it."""

    max_attempts: Annotated[int, Field(ge=1, le=20)] = 5
    """Most attempts per patch in one run, the first included. Failures that another GPU, a GPU of its own, a start
    without MPS, or waiting for an hour at most may cure do not count."""
    keep: Literal["better", "newer"] = "better"
    """Which splat `retry` keeps: the `newer`, or the `better` by hold-out PSNR, on covered pixels if both are measured
    there. With `better`, a measured splat of the same inputs is only replaced by one measured no worse on the same
    photographs."""
    ladders: Annotated[dict[LadderName, tuple[Rung, ...]], BeforeValidator(_with_default_ladders)] = DEFAULT_LADDERS
    """Settings to change, one rung per further attempt, for causes that an unchanged attempt cannot mend; [] for no
    change."""


class Cooldown(Section):
    """What must be true of a GPU before the next attempt starts on it."""

    floor_s: Seconds = 0.0
    """Shortest wait between two attempts on a GPU, in seconds or as 5m; 0: none. With a wait, patches_per_gpu: auto is
    1."""
    below_c: float | None = None
    """Temperature in °C below which the GPU must fall before the next attempt. Left out: any."""
    longest_s: Seconds = 3600.0
    """Longest wait for the GPU after `floor_s`, in seconds or as 1h; after it, the patches go to the other GPUs. If no
    GPU is left, the waiting patches are given up with the cause `cuda_busy_or_unavailable`."""


class Limits(Section):
    """When splatbatch ends an attempt, and how much free disk space an attempt needs to start."""

    wall_s: SomeSeconds = 14_400.0
    """Longest time of one attempt, in seconds or as 4h."""
    grace_s: Seconds = 10.0
    """Time from the request to stop (SIGTERM) to SIGKILL, in seconds or as 10s."""
    stall_s: Seconds = 1800.0
    """End an attempt that for this time, in seconds or as 30m, makes no progress, writes no line and uses neither GPU
    nor CPU; 0: never."""
    free_disk_mib: Annotated[int, Field(ge=0)] = 2048
    """Free space in MiB that the disk of the output folder must have for an attempt to start; 0: not checked."""


class Output(Section):
    """Where the results of a batch are written."""

    folder: FilePath = Path("output")
    """Output folder: everything that a run writes lies here, except published files."""
    previews_mib: Annotated[int, Field(ge=0)] = 48
    """Space in report.html, in MiB, for splats that open in 3D, about 4 MiB each; 0: none. `view` shows the others."""


PublishedAs = Literal["ply", "compressed", "sog", "streamed", "spz", "glb", "tiles", "html"]


class Publish(Section):
    """Copies of the splats in formats of other programs, which a run writes at its end."""

    formats: Annotated[tuple[PublishedAs, ...], BeforeValidator(as_list)] = ()
    """Formats of the published files, one or several; the merged scene is published, or every trained patch if none is
    merged. []: nothing is published."""
    folder: FilePath = Path("published")
    """Folder for the published files."""
    allow_missing: bool = False
    """Merge and publish the scene at the end of `scene` and `train` even if patches are missing; there it has holes."""
    measure: bool = True
    """Render compressed files from held-out cameras, and record how many dB of PSNR the compression costs."""


class Tracking(Section):
    """Recording of a batch in MLflow: one run for the batch, and below it one for each attempt.

    A `train` by workers of an engine, and `work`, record nothing.
    """

    mlflow: str = ""
    """Tracking store of MLflow (extra `mlflow`): sqlite:///mlflow.db for a file beside the YAML, or the URL of a
    server. Empty: nothing is recorded. The experiment is $MLFLOW_EXPERIMENT_NAME, else splatbatch; a password belongs
    into $MLFLOW_TRACKING_PASSWORD."""
    splats: bool = False
    """Store the splats as well; false: only logs, figures and the report."""


def _from_environment(value: object) -> object:
    """Expand $VARIABLES; an error does not name the variable, since it may be part of a password."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise ValueError(
            "names an environment variable that is not set: set the variable, or write %24 for a $ of a URL"
        )
    return expanded


def _as_words(given: object) -> object:
    """Return a program's name as a command of one word; refuse a shell line, without quoting it in the message."""
    if isinstance(given, str) and len(given.split()) > 1:
        raise ValueError("should be a list of words, as [mail, -s, done, me], since no shell splits the command")
    return as_list(given)


Secret = Annotated[SecretStr, BeforeValidator(_from_environment), Field(min_length=1)]


class Notify(Section):
    """Who is told when a batch ends or a patch fails for good; a message that is not delivered fails no batch.

    `work` tells nobody. Values here may hold a password: they are never shown in errors, batch.yaml or the report.
    """

    command: Annotated[tuple[Secret, ...], BeforeValidator(_as_words)] = ()
    """A command and its arguments, run without a shell, with JSON on its standard input; $VARIABLES are expanded. []:
    none."""
    urls: Annotated[tuple[Secret, ...], BeforeValidator(as_list)] = ()
    """Apprise URLs (extra `notify`), such as mailto://, ntfy://, slack://; $VARIABLES are expanded. []: none."""

    @field_serializer("command", "urls", when_used="always")
    def _hidden(self, secrets: tuple[SecretStr, ...]) -> list[str]:
        return [HIDDEN] * len(secrets)
