"""Opens a batch: from the YAML to its tasks. Every command on a batch begins here.

Modules that compare files are imported by the methods that need them, so that `status` starts quickly.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from splatbatch import __version__
from splatbatch import config as configuration
from splatbatch.config import Config, Recipe
from splatbatch.errors import ConfigError, OutputError, SceneError, SplatbatchError
from splatbatch.hashing import short_hash
from splatbatch.output.events import TaskUnit
from splatbatch.output.layout import OutputFolder
from splatbatch.scene.patches import Patch, find_patches
from splatbatch.scene.photos.folders import is_folder
from splatbatch.tasks.backdrop import as_cut
from splatbatch.tasks.patch_state import PatchState, due
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions, stamps_of
from splatbatch.tasks.task import Names, Task, apply_overrides, as_names, only, patches_of, select, tasks_of
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.output.results import Depth
    from splatbatch.scene.frame import ModelExtent
    from splatbatch.tasks.freshness import FreshnessChecker


@dataclass(frozen=True)
class Batch:
    """A batch: its config, the tasks selected for a command, and the shared decisions; immutable."""

    config: Config
    tasks: tuple[Task, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed by --set, for every task of this run, by full name; empty: none."""
    path: Path = Path()
    """Path of the YAML, relative paths from the working folder; "-" for standard input."""
    every: tuple[Task, ...] = ()
    """All tasks of the config; `tasks` are those selected for the command."""
    shared: SharedDecisions = field(default_factory=SharedDecisions)
    """Shared decisions, such as the offset; `tasks` and `every` have them applied already."""

    def whole(self) -> Batch:
        """Return the batch with all its tasks selected and without --set, for report, metrics and status."""
        return replace(self, tasks=self.every, changes={})

    @property
    def file(self) -> Path:
        """Absolute path of the YAML, for other processes, which read the file again.

        Raises:
            ConfigError: the YAML came from standard input.
        """
        if self.path == configuration.STDIN:
            raise ConfigError("this command needs a YAML file, not standard input", "Name the file: --config FILE.")
        return self.path.resolve()

    def check_apart(self, option: str, place: Path, folder: Path) -> None:
        """Check that a folder to be written is not inside the photographs, masks or models of the batch.

        Args:
            option: option of the command line, for the message.
            place: value of the option, for the message.
            folder: folder to be written; it need not exist.

        Raises:
            OutputError: the folder is such a folder of inputs, or lies inside of it.
        """
        patches = patches_of(self.every)
        homes = {home for one in patches for home in (one.images, one.masks, one.sparse) if home is not None}
        for home in sorted(one.resolve() for one in homes):
            if folder.resolve().is_relative_to(home):
                message = f"{option} {place}: lies inside {home}, which holds inputs of the batch"
                raise OutputError(message, "Name a folder outside of the photographs, masks and models.")

    @property
    def plan_hash(self) -> str:
        """Hash of version, recipes, deadline, and keys of products that are no splats.

        Workers with different hashes must not share the batch.
        """
        by = [f"by {self.config.deadline}"] if self.config.deadline else []
        recipes = sorted({task.yaml_settings.without_deadline.recipe_hash for task in self.every})
        own = (task.inputs for task in self.every if task.inputs)
        return short_hash(" ".join([__version__, *recipes, *by, *own]))

    @property
    def names(self) -> list[str]:
        """Names of the selected tasks, in their order."""
        return [task.name for task in self.tasks]

    @property
    def noun(self) -> TaskUnit:
        """Unit in which the tasks are counted; all are of one kind. Without tasks it is "patch"."""
        return next((task.noun for task in self.tasks), "patch")

    @property
    def output(self) -> OutputFolder:
        """Output folder of the batch; it may not exist yet."""
        return OutputFolder(self.config.output.folder)

    def recipes(self) -> dict[str, Recipe]:
        """Return the recipe of each selected task, by the YAML and --set, by the task's name.

        Raises:
            ConfigError: a recipe is invalid; not for a batch from `open_batch`, which has checked all recipes.
        """
        return {task.name: task.requested_settings.recipe for task in self.tasks}

    def with_shared(self, shared: SharedDecisions) -> Batch:
        """Return the batch under other shared decisions, which hold until a file of the decisions changes.

        Tasks stay the same objects if no decision differs.
        """
        now = replace(shared, stamps=stamps_of(self.config, self.output))
        if not now.is_other(self.shared):
            return replace(self, shared=now)
        return replace(self, tasks=now.apply(self.tasks), every=now.apply(self.every), shared=now)

    def standing(self, depth: Depth = "time") -> FreshnessChecker:
        """Return a new freshness checker for the selected tasks.

        No file is read before the checker is asked for a state.

        Args:
            depth: how thoroughly files are compared: "time": by size and time; "content": also by content where these
                have changed; "every byte": splats are read in full.
        """
        from splatbatch.tasks.freshness import FreshnessChecker

        return FreshnessChecker(self.config, self.path, self.tasks, self.shared, depth=depth)

    def states(self, rejections: Mapping[str, str]) -> dict[str, PatchState]:
        """Return the state of each selected task, by name; files whose size or time has changed are read.

        Args:
            rejections: reasons why the audit rejects tasks, by name; tasks without a reason are not rejected.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        standing = self.standing("content")
        return {name: standing.state(name, rejections.get(name, "")) for name in self.names}

    def with_required(self) -> Batch:
        """Return the batch with the tasks whose products the selected ones need, placed first, if these are due.

        Up-to-date products are not made again: their tasks are not added.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        needed = {name for task in self.tasks for name in task.required}.difference(self.names)
        lacking = replace(self, tasks=tuple(task for task in self.every if task.name in needed))
        first = lacking.only(due(lacking.states({}))).tasks if lacking.tasks else ()
        return replace(self, tasks=(*first, *self.tasks)) if first else self

    def with_dependents(self, names: Iterable[str]) -> Batch:
        """Return the batch with the named tasks and the tasks that are made from their products, directly or not.

        Only selected tasks are considered; unknown names are ignored.
        """
        wanted = set(names)
        while more := {task.name for task in self.tasks if wanted.intersection(task.required)} - wanted:
            wanted |= more
        return self.only(wanted)

    def only(self, names: Iterable[str]) -> Batch:
        """Return the batch with only the named tasks selected; names that are not selected already are ignored."""
        wanted = set(names)
        return replace(self, tasks=tuple(task for task in self.tasks if task.name in wanted))


@dataclass(frozen=True)
class PendingTasks:
    """The tasks to train, as far as known while shared decisions are made; input of each such decision."""

    tasks: tuple[Task, ...]
    spans: Callable[[], Mapping[str, ModelExtent]]
    """Returns the extents of the models of all patches that can be trained, by name.

    Models are read when it is called.
    """
    names_in: Callable[[Batch], Sequence[str]] = lambda batch: [task.name for task in batch.tasks]
    """Returns the names of the tasks that would be due under the shared decisions of the given batch.

    That batch differs from the present batch in its decisions only. By default all its tasks are due.
    """
    say: Callable[[str], None] = lambda words: None
    """Prints a message for the user; by default nothing is printed."""


class FolderNamed(ConfigError):
    """Error: a folder was named instead of a patch; `own` is the path at which its YAML is, or would be.

    `folder` is the named folder. If `own` exists, the hint names it; else the hint says how to write a YAML, or why no
    patches are found there.
    """

    def __init__(self, folder: Path, own: Path, hint: str) -> None:
        what = "is a folder, not the name of a patch" if own.is_file() else f"this folder has no {own.name}"
        super().__init__(f"{folder}: {what}", hint)
        self.folder, self.own = folder, own


def named_batch(path: Path | str | None, names: Names) -> tuple[Path | None, tuple[str, ...]]:
    """Return the YAML and the patches that a user names; the YAML is None for the default one.

    If the first name is a folder, its YAML or its output folder, this name stands for the batch and is no patch. A
    patch of that name in the default batch takes precedence.

    Args:
        path: YAML of `--config`; None or empty: none is given. With a path, no name stands for the batch.
        names: names of patches, perhaps with a folder first.

    Raises:
        FolderNamed: a folder without a YAML is named.
        ConfigError: a name is no text.
        LaterFormatError: a later version of splatbatch wrote partition.json in a named folder.
    """
    path, names = Path(path) if path else None, as_names(names)
    first = Path(names[0]) if names else None
    if path or first is None or not ((own := configuration.config_in(first)) or is_folder(first)):
        return path, names
    if configuration.has_config(None):
        with contextlib.suppress(SplatbatchError):  # errors of the default batch, which is then not meant
            every = _opened(None, (), {}, ()).every
            if not _unknown(every, [_of_folder(names[0], patches_of(every))]):
                return None, names
    if own is None:
        told = _config_of_folder(first)
        if not told.own.is_file():
            raise told
        own = told.own
    return own, names[1:]


def open_batch(
    path: Path | str | None = None,
    names: Names = (),
    changes: Mapping[str, object] | None = None,
    conditions: Names = (),
) -> Batch:
    """Return the batch of a YAML, with its tasks found and all settings of the selected ones checked.

    Args:
        path: path of the YAML, or of its folder; None: the default one, see `config.find_config`.
        names: names of the selected patches, with or without a variant of the sweep; none: all; a text: one. The first
            may name the batch instead, see `named_batch`.
        changes: settings changed by --set, by full name; None: none.
        conditions: conditions for the selected patches, as "variant=base"; none: all patches.

    Raises:
        ConfigError: the YAML, a patch name, a change or a condition is wrong.
        SceneError: there are no patches, or the partition is broken.
        FolderNamed: a folder without a YAML is named, or a folder instead of a patch.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
        PermissionError: a folder of the scene may not be entered.
    """
    chosen, patches = named_batch(path, names)
    return _opened(chosen, patches, changes or {}, as_names(conditions))


def _opened(path: Path | None, names: Sequence[str], changes: Mapping[str, object], conditions: Sequence[str]) -> Batch:
    try:
        file = configuration.find_config(path)
    except ConfigError as error:
        if path or not names:
            raise
        raise ConfigError(f"{error.message}; {names[0]}: there is no such folder either", error.hint) from error
    return batch_of(configuration.load(file), file, names, changes, conditions)


def batch_of(
    config: Config, file: Path, names: Sequence[str], changes: Mapping[str, object], conditions: Sequence[str]
) -> Batch:
    """Return the batch of a loaded config.

    Args:
        config: the config.
        file: path of its YAML, which need not exist yet.
        names: names of the selected patches; empty: all.
        changes: settings changed by --set, by full name; empty: none.
        conditions: conditions for the selected patches, as "variant=base"; empty: all patches.

    Raises:
        ConfigError: a patch name, a change or a condition is wrong, or a file of failure signatures is.
        SceneError: there are no patches, or the partition is broken.
        FolderNamed: a folder is named instead of a patch.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
        PermissionError: a folder of the scene may not be entered.
    """
    try:
        patches, output = find_patches(config.scene), OutputFolder(config.output.folder)
    except SceneError as error:
        raise SceneError(configuration.placed(file, error.message), error.hint) from error
    config, patches = as_cut(config, patches, output)
    known = [patch.name for patch in patches]
    names = [_of_folder(name, patches) for name in names]
    for name in config.patches:
        if name not in known:
            message = configuration.placed(file, f"patches.{name}: no such patch")
            raise ConfigError(message, configuration.nearest(name, known))
    shared = SharedDecisions.known(config, output)
    every = shared.apply(tasks_of(config, patches))
    if folder := next((Path(name) for name in _unknown(every, names) if is_folder(Path(name))), None):
        raise _config_of_folder(folder)
    chosen = apply_overrides(changes, only(select(every, names), conditions))
    batch = Batch(config, chosen, dict(changes), file, every, shared)
    batch.recipes()  # for its errors
    for task in batch.tasks if batch.changes else ():
        recipe = task.requested_settings.recipe
        if unread := sorted(batch.changes.keys() - recipe.reads()):
            name = recipe.training.trainer
            message = f"--set {unread[0]}: the command of {name}, which trains {task.name}, does not read this setting"
            hint = (
                f"It reads: {', '.join(sorted(recipe.reads()))}. To pass another setting, put {{setting.NAME}} into"
                f" trainers.{name}.command."
            )
            raise ConfigError(message, hint)
    if config.failures:
        from splatbatch.failures.signatures import site_signatures  # few have any: no other command waits for it

        site_signatures(config.failures)  # for its errors
    return batch


def _unknown(tasks: Iterable[Task], names: Sequence[str]) -> list[str]:
    """Return the names that are neither those of tasks nor of their patches."""
    known = {name for task in tasks for name in (task.name, task.patch.name)}
    return [name for name in names if name not in known]


def _of_folder(name: str, patches: Sequence[Patch]) -> str:
    """Return the name of the patch whose folder was given, as a shell completes it; else the given name."""
    folder = Path(name)
    if os.sep not in name or not is_folder(folder):
        return name
    home = folder.resolve()
    mine = (one.name for one in patches if one.name == home.name and one.sparse.resolve().is_relative_to(home))
    return next(mine, name)


def _config_of_folder(folder: Path) -> FolderNamed:
    """Return the error for a named folder: its hint names the YAML, or the command that writes one."""
    from splatbatch.scene.finder import find_layout

    own = folder / configuration.DEFAULT_CONFIG
    try:
        found = None if own.is_file() else find_layout(folder)
    except SceneError as error:
        return FolderNamed(folder, own, f"{error.message}. {error.hint}")
    own = found.top / configuration.DEFAULT_CONFIG if found else own
    if own.is_file() or found is None:
        return FolderNamed(folder, own, f"Name its configuration: --config {quote(str(own))}")
    what = "; ".join((f"{found.top}: {plural(len(found.patches), 'patch', 'es')}", *found.notes))
    return FolderNamed(folder, own, f"{what}. Write its configuration first: splatbatch init {quote(str(folder))}")
