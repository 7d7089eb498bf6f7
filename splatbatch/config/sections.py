"""The sections of the YAML around the training: what is trained, where, what happens when it fails, who is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_serializer, model_validator

from splatbatch.config.section import HIDDEN, FilePath, Offset, Seconds, Section, SomeSeconds, as_list, either

DEFAULT_PATCHES = Path("patches")


class Scene(Section):
    """What is trained."""

    patches: FilePath = DEFAULT_PATCHES
    """Folder whose sub-folders are patches (each with sparse/0), or a single COLMAP scene."""
    images: FilePath | None = None
    """Folder of the photographs when the patches share one; else `images/` beside each patch's `sparse/`."""
    masks: FilePath | None = None
    """Folder of masks, photo.jpg.png or photo.png: black pixels are ignored; else `masks/` beside the photographs."""
    source: FilePath | None = None
    """The COLMAP scene the patches were cut from: hold-out is chosen on it, drift is checked against it."""
    scenes: Annotated[tuple[FilePath, ...], BeforeValidator(as_list)] = ()
    """Instead of all that: COLMAP scenes, each trained by itself; folders, or patterns such as "360_v2/*"."""
    offset: Annotated[Literal["none"] | Offset | None, either("three numbers [x, y, z], or none")] = None
    """Taken off all coordinates before training, [x, y, z] in units of the model; none: nothing is. Left out: whole
    units where the scene lies so far from its origin (UTM) that float32 would blur it."""

    crs: str | None = None
    """Of the model's coordinates, metres east, north and up, as EPSG:32632: 3D Tiles then lie on the globe."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Scene:
        given = [name for name in ("images", "source") if getattr(self, name) is not None]
        given += ["patches"] if self.patches.name != DEFAULT_PATCHES.name else []
        if self.scenes and given:
            raise ValueError(f"each scene of `scenes` has its own images: leave out {', '.join(given)}")
        if self.scenes and isinstance(self.offset, tuple):
            raise ValueError("each scene of `scenes` has its own offset: remove offset, or write none")
        return self


Rung = dict[str, bool | int | float | str | tuple[str, ...]]
"""Settings changed together: a value, a factor such as "x0.6" on the value in force, or words that are added."""

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
    """Whether and how often a failed patch is tried again, and what is changed for it."""

    max_attempts: Annotated[int, Field(ge=1, le=20)] = 5
    """Attempts per patch and run, the first included."""
    keep: Literal["better", "newer"] = "better"
    """What `retry` leaves: the newer splat, or the better by hold-out PSNR, on covered pixels where there are such. A
    measured one gives way only to one that was measured no worse on the same photographs."""
    ladders: Annotated[dict[LadderName, tuple[Rung, ...]], BeforeValidator(_with_default_ladders)] = DEFAULT_LADDERS
    """What is changed, rung by rung, for causes that an unchanged attempt cannot mend; [] for none."""


class Cooldown(Section):
    """What must be true of a GPU before the next attempt starts on it."""

    floor_s: Seconds = 0.0
    """Wait at least this long after an attempt."""
    below_c: float | None = None
    """Wait until the GPU is cooler than this."""
    longest_s: Seconds = 3600.0
    """Give the attempt up as `cuda_busy_or_unavailable` after waiting this long for the GPU."""


class Limits(Section):
    """When an attempt is ended from outside."""

    wall_s: SomeSeconds = 14_400.0
    """Longest time of one attempt, in seconds, or as 4h; so are all spans of time."""
    grace_s: Seconds = 10.0
    """Time between the request to stop (SIGTERM) and SIGKILL."""
    stall_s: Seconds = 1800.0
    """End an attempt that for so long makes no progress, says nothing and uses neither GPU nor CPU; 0: never."""
    free_disk_mib: Annotated[int, Field(ge=0)] = 2048
    """Start nothing while the disk of the output folder has less room than this; 0: do not look."""


class Output(Section):
    """Where results go."""

    folder: FilePath = Path("output")
    """Everything a run writes lies here."""
    previews_mib: Annotated[int, Field(ge=0)] = 48
    """Of report.html, for splats that open in 3D, about 4 each; 0: none. `view` shows the others."""


PublishedAs = Literal["ply", "compressed", "sog", "streamed", "spz", "glb", "tiles", "html"]


class Publish(Section):
    """Files for other programs, which a run writes at its end into a folder to hand over."""

    formats: Annotated[tuple[PublishedAs, ...], BeforeValidator(as_list)] = ()
    """As which the merged scene, else every trained patch, is published at the end of a run; []: nothing is."""
    folder: FilePath = Path("published")
    """They go there."""
    allow_missing: bool = False
    """Merge and publish the scene, as `scene` and `train` do at their end, also if patches are missing: it has holes
    there."""
    measure: bool = True
    """Render what was compressed, on held-out photographs, and write down what that costs in dB."""


class Tracking(Section):
    """Where else a batch is recorded: runs of MLflow, one for each attempt, below one for the batch."""

    mlflow: str = ""
    """Its tracking store (extra `mlflow`): sqlite:///mlflow.db for a file beside the YAML, or a server's URL. Empty:
    none. The experiment is $MLFLOW_EXPERIMENT_NAME, else splatbatch; a password belongs into
    $MLFLOW_TRACKING_PASSWORD."""
    splats: bool = False
    """Store the splats, too; else logs, figures and the report."""


def _from_environment(value: object) -> object:
    """Expand $VARIABLES; an error does not name the variable, since it may be part of a password."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise ValueError("names an environment variable that is not set (write %24 for a $ of a URL)")
    return expanded


def _as_words(given: object) -> object:
    """Return a program's name as a command of one word; refuse a shell line, without quoting it in the message."""
    if isinstance(given, str) and len(given.split()) > 1:
        raise ValueError("should be a list of words, as [mail, -s, done, me]: no shell reads it")
    return as_list(given)


Secret = Annotated[SecretStr, BeforeValidator(_from_environment), Field(min_length=1)]


class Notify(Section):
    """Who is told when a batch ends or a patch fails for good; a message that is not delivered fails no batch.

    What may hold a password is never shown: not in errors, batch.yaml or the report.
    """

    command: Annotated[tuple[Secret, ...], BeforeValidator(_as_words)] = ()
    """A command and its arguments, run without a shell; it gets JSON on stdin. $VARIABLES are expanded."""
    urls: Annotated[tuple[Secret, ...], BeforeValidator(as_list)] = ()
    """Apprise URLs (extra `notify`), such as mailto://, ntfy://, slack://; $VARIABLES are expanded."""

    @field_serializer("command", "urls", when_used="always")
    def _hidden(self, secrets: tuple[SecretStr, ...]) -> list[str]:
        return [HIDDEN] * len(secrets)
