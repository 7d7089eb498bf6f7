"""Bundles: a task that travels through a store, with exactly the files that its training reads, by relative names."""

from __future__ import annotations

import contextlib
import os
import shlex
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatbatch import __version__
from splatbatch.config import Config, TaskId
from splatbatch.config.load import RECIPE_SECTIONS
from splatbatch.errors import ConfigError, SceneError, StoreError
from splatbatch.fields import mapping, text
from splatbatch.files import fault_of_name, write_json
from splatbatch.hashing import FileFacts
from splatbatch.output.folders import RESULT, SPLAT, PatchFolder
from splatbatch.output.records.colors import tones_from_record
from splatbatch.output.records.fingerprint import Fingerprint, is_content
from splatbatch.output.records.record import TypedRecord
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.partition.border import Border
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.scene.photos.folders import see_name
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import is_drawn_behind
from splatbatch.tasks.input_files import InputFiles
from splatbatch.tasks.task import Task, TaskSettings, TrainTask
from splatbatch.transfer.blobs import FileRef

_KINDS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": lambda value: value == "True"}
"""Conversion of an environment variable's text to the type that the YAML had, by the name of the type."""
TRAVELLING = (*RECIPE_SECTIONS, "retry", "limits")
"""Sections of the YAML that travel in a bundle; the others concern the home of the batch, or the worker's own
machine."""
MOST_SHOWN = 200
"""Most characters of a command that a message quotes."""
SOURCE, BACKDROP = "source", "backdrop"
"""Names of the folders of a bundle beside sparse, images and masks: the model before cutting, and the backdrop."""


@dataclass(frozen=True)
class Bundle(TypedRecord):
    """The manifest of a task that travels through a store; its name there is its hash."""

    version: str = ""
    """Version of splatbatch that packed the task; a worker of another version leaves it."""
    home: str = ""
    """Unique name of the output folder that the bundle comes from; empty: the manifest cannot be read."""
    number: str = ""
    """Random number that tells two packings of the same task apart."""
    patch: str = ""
    variant: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """Sections of the YAML, and the external trainer; of the trainer's environment variables only names and types."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Changes of these settings (--set, retries), as an attempt at home would record them."""
    is_retry: bool = False
    """Whether the user requested the task by `retry`."""
    depends_on: Fingerprint = field(default=Fingerprint())
    """Settings and inputs that the task depends on."""
    follows: int = 0
    """Number of the newest accepted record when the task was packed; the bundle's splat can only become the next one.

    Accepted records are numbered files at home, one for each splat of the patch that was accepted. 0: there was none.
    """
    held_out: tuple[str, ...] = ()
    """Names of the held-out photographs; empty: none."""
    border: dict[str, Any] = field(default_factory=dict)
    """Boxes of space of a patch that was cut from a scene; empty: the patch was not cut."""
    is_whole: bool = False
    """Whether the task trains the backdrop, of the whole scene."""
    pieces: tuple[FileRef, ...] = ()
    """The files of the bundle."""

    @property
    def task(self) -> str:
        """Name of the task, as "p0@base", or "p0" without a sweep; empty if the manifest could not be read."""
        return str(TaskId(self.patch, self.variant))

    @property
    def max_steps(self) -> int:
        """Number of steps of the training; 0 if the manifest does not say."""
        steps = self.changes.get("training.max_steps", mapping(self.settings.get("training")).get("max_steps"))
        return steps if isinstance(steps, int) else 0


def bundle_of(home: str, is_retry: bool, task: Task) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the bundle of a task as a JSON object, and the local path of each of its blobs by SHA-256.

    Runs in a reader process, since it hashes all files.

    Args:
        home: unique name of the output folder that the task belongs to.
        is_retry: whether the user requested the task by `retry`.
        task: the task.

    Raises:
        SceneError: a file cannot be read, or its name leads out of its folder.
        ConfigError: the settings of the task are invalid after a change.
        LaterFormatError: a later version wrote the manifest of the backdrop.
        OSError: a file was removed meanwhile.
    """
    depends_on, facts = task.depends_on(), FileFacts()
    paths = dict(_files_of(task, depends_on))
    for name in paths:
        see_name(name, task.name)
    contents = {name: facts.sha256(path) for name, path in paths.items()}
    if lacking := [paths[name] for name, sha256 in contents.items() if not sha256]:
        raise SceneError(
            f"{task.name}: {lacking[0]}: cannot be read",
            "Repair the file; `splatbatch verify-dims` checks all files of a patch.",
        )
    known = {key: fact._replace(sha256=contents.get(key, fact.sha256)) for key, fact in depends_on.files.items()}
    bundle = Bundle(
        version=__version__,
        home=home,
        number=uuid.uuid4().hex,
        patch=task.id.patch,
        variant=task.id.variant,
        settings=_settings_of(task),
        changes=dict(task.next_settings.all_changes),
        is_retry=is_retry,
        depends_on=replace(depends_on, files=known),
        follows=task.home.newest_accepted(),
        held_out=choose_holdout(task.patch, task.next_settings.recipe.evaluation),
        border=task.patch.border.to_record() if task.patch.border else {},
        is_whole=task.patch.is_whole,
        pieces=tuple(FileRef(name, contents[name], Path(path).stat().st_size) for name, path in sorted(paths.items())),
    )
    return bundle.to_record(), {contents[name]: path for name, path in paths.items()}


def _files_of(task: Task, depends_on: Fingerprint) -> Iterator[tuple[str, str]]:
    """Yield the name in the bundle, and the local path, of each file that a training of the task reads."""
    patch, recipe = task.patch, task.next_settings.recipe
    place = InputFiles(patch, recipe).place
    for key, fact in depends_on.files.items():
        if is_content(key) and fact.num_bytes >= 0:
            yield key, place(key)
    for name in MODEL_FILE_NAMES if patch.source else ():
        if Path(path := place(key := f"{SOURCE}/{name}")).is_file():
            yield key, path
    if patch.behind and is_drawn_behind(patch, recipe):
        splat, sha256 = PatchFolder(patch.behind).accepted_splat()
        if sha256:
            yield f"{BACKDROP}/{SPLAT}", str(splat)


def _settings_of(task: Task) -> dict[str, Any]:
    """Return the settings of a task that travel, before changes: sections of the YAML, and its external trainer."""
    setup = task.next_settings
    recipe = setup.config.recipe(setup.patch, {}, setup.variant)
    found = {
        name: getattr(recipe if name in RECIPE_SECTIONS else setup.config, name).model_dump(mode="json")
        for name in TRAVELLING
    }
    if place := found["evaluation"].get("holdout_list"):
        found["evaluation"]["holdout_list"] = Path(place).name
    if recipe.program:
        kinds = {name: type(value).__name__ for name, value in recipe.program.env.items()}
        told = recipe.program.model_dump(mode="json") | {"env": kinds}
        place, user = recipe.program.working_folder, os.path.expanduser("~")  # noqa: PTH111 - it may be unknown
        if place and place.is_relative_to(user):  # the worker's user has another home
            told["working_folder"] = str("~" / place.relative_to(user))
        found["trainers"] = {recipe.training.trainer: told}
    return found


def why_left(bundle: Bundle, *, only_builtin: bool) -> str:
    """Return a line on why a worker must not train a bundle, by its manifest alone; "": the worker may train it.

    Args:
        bundle: the manifest. It is not trusted: anyone with write access to the store may have written it.
        only_builtin: whether the worker refuses commands from the store, as those of an external trainer.
    """
    if bundle.version != __version__:
        return f"{bundle.task}: was packed by splatbatch {bundle.version}, this is {__version__}; left to other workers"
    if why := fault_of_name(bundle.task):
        return f"a task in the store has an unsafe name: {why}; left to other workers"
    for name, told in mapping(bundle.settings.get("trainers")).items() if only_builtin else ():
        words = mapping(told).get("command")
        command = shlex.join(map(text, words if isinstance(words, list) else [words]))[:MOST_SHOWN]
        return (
            f"{bundle.task}: --only-builtin forbids the command from the store (trainers.{name}.command): {command!r};"
            " left to other workers"
        )
    return ""


def open_bundle(bundle: Bundle, scene: Path, output: Path) -> Batch:
    """Return a batch with the task of a bundle as its only task; all shared decisions are those of home.

    Args:
        bundle: the manifest.
        scene: folder with the files of the bundle, by their names.
        output: output folder for the attempts of the task.

    Raises:
        ConfigError: an external trainer needs an environment variable that is not set here, or is not a number here.
        StoreError: the settings or the border in the manifest are invalid, or its model names photographs outside of
            the bundle.
        OSError: the manifest of the backdrop cannot be written.
    """
    with contextlib.suppress(SceneError):  # a broken model fails in training, as at home
        if why := next(filter(None, (fault_of_name(image.name) for image in read_images(scene / "sparse"))), ""):
            raise StoreError(f"{bundle.task}: its model names a photograph by an unsafe path: {why}")
    pieces, behind = {one.name: one for one in bundle.pieces}, None
    if splat := pieces.get(f"{BACKDROP}/{SPLAT}"):  # with a manifest that marks it as accepted
        behind = scene / BACKDROP
        write_json(behind / RESULT, {"splat": {"sha256": splat.sha256, "bytes": splat.num_bytes}})
    try:
        border, setup = Border.from_record(bundle.border), _setup_of(bundle, scene, output)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{bundle.task}: the settings that came with the task from the store are invalid") from error
    patch = Patch(
        bundle.patch,
        scene / "sparse",
        scene / "images",
        source=scene / SOURCE if any(name.startswith(f"{SOURCE}/") for name in pieces) else None,
        masks=scene / "masks" if any(key.startswith("masks/") for key in bundle.depends_on.files) else None,
        offset=bundle.depends_on.offset,
        tones=tones_from_record(bundle.depends_on.tones),
        border=border,
        behind=behind,
        is_whole=bundle.is_whole,
        held_out=bundle.held_out,
        by_name=not bundle.depends_on.holdout,
    )
    task = TrainTask(TaskId(bundle.patch, bundle.variant), patch, setup, setup, setup)
    return Batch(setup.config, (task,), path=output / "bundle.yml", every=(task,))


def _setup_of(bundle: Bundle, scene: Path, output: Path) -> TaskSettings:
    sections = {name: bundle.settings.get(name, {}) for name in TRAVELLING}
    programs = {name: mapping(told) for name, told in mapping(bundle.settings.get("trainers")).items()}
    for name, told in programs.items():
        told["env"] = environment = mapping(told.get("env"))
        for variable, kind in environment.items():
            try:
                environment[variable] = _KINDS.get(kind, str)(os.environ[variable])
            except (KeyError, ValueError) as error:
                lack = "not a number" if variable in os.environ else "not set"
                raise ConfigError(
                    f"{bundle.task}: trainers.{name}.env: the variable {variable} is {lack} on this machine",
                    "The value is not sent, since it may be a password. Set the variable, then start the worker again.",
                ) from error
    places = {"scene": {"patches": scene}, "output": {"folder": output, "previews_mib": 0}}
    return TaskSettings(
        Config.model_validate({**sections, "trainers": programs, **places}), bundle.patch, None, bundle.changes
    )
