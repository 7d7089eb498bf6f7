"""Opening a batch: from the YAML to its tasks. Every command that has a batch begins here.

What compares files is loaded by the methods that do so: `status` does without, and should be quick.
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
    from splatbatch.output.index import Index
    from splatbatch.output.results import Depth
    from splatbatch.scene.frame import ModelExtent
    from splatbatch.tasks.freshness import FreshnessChecker


@dataclass(frozen=True)
class Batch:
    """The tasks a command is about, and where their results go."""

    config: Config
    tasks: tuple[Task, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed by --set, for every task of this run."""
    path: Path = Path()
    """Of the YAML."""
    every: tuple[Task, ...] = ()
    """All tasks of the config, of which `tasks` are those that a command is about."""
    shared: SharedDecisions = field(default_factory=SharedDecisions)
    """What is decided for it."""

    def whole(self) -> Batch:
        """Return the batch with all its tasks, as report, metrics and status are about."""
        return replace(self, tasks=self.every, changes={})

    @property
    def file(self) -> Path:
        """Return the YAML, as others can read it again.

        Raises:
            ConfigError: it came from standard input.
        """
        if self.path == configuration.STDIN:
            raise ConfigError("this needs the YAML in a file, not from standard input", "Name it: --config FILE.")
        return self.path.resolve()

    def check_apart(self, option: str, place: Path, folder: Path) -> None:
        """See that a folder that is to be written to lies among no photographs, masks or models of the batch.

        Raises:
            OutputError: it does.
        """
        patches = patches_of(self.every)
        homes = {home for one in patches for home in (one.images, one.masks, one.sparse) if home is not None}
        there = folder.resolve()
        for home in sorted(one.resolve() for one in homes):
            if there.is_relative_to(home):
                message = f"{option} {place}: lies inside the inputs of the batch, {home}"
                raise OutputError(message, "Name a folder outside of them.")

    @property
    def plan_hash(self) -> str:
        """Return a hash of what all workers of the batch must agree on."""
        by = [f"by {self.config.deadline}"] if self.config.deadline else []
        recipes = sorted({task.yaml_settings.without_deadline.recipe_hash for task in self.every})
        own = (task.inputs for task in self.every if task.inputs)
        return short_hash(" ".join([__version__, *recipes, *by, *own]))

    @property
    def names(self) -> list[str]:
        """Return the names of the tasks."""
        return [task.name for task in self.tasks]

    @property
    def noun(self) -> TaskUnit:
        """Return what its tasks are counted in: they are of one kind."""
        return next((task.noun for task in self.tasks), "patch")

    @property
    def output(self) -> OutputFolder:
        """Return the output folder."""
        return OutputFolder(self.config.output.folder)

    def recipes(self) -> dict[str, Recipe]:
        """Return what trains each task in this run, by its name."""
        return {task.name: task.requested_settings.recipe for task in self.tasks}

    def with_shared(self, shared: SharedDecisions) -> Batch:
        """Return the batch under other shared decisions, which hold until one of their files changes."""
        now = replace(shared, stamps=stamps_of(self.config, self.output))
        if not now.is_other(self.shared):
            return replace(self, shared=now)
        return replace(self, tasks=now.apply(self.tasks), every=now.apply(self.every), shared=now)

    def standing(self, depth: Depth = "time", index: Index | None = None) -> FreshnessChecker:
        """Return what tells how each patch stands."""
        from splatbatch.tasks.freshness import FreshnessChecker

        return FreshnessChecker(self.config, self.path, self.tasks, self.shared, depth=depth, index=index)

    def states(self, rejections: Mapping[str, str]) -> dict[str, PatchState]:
        """Return how its tasks stand; files whose size or time have moved are read."""
        standing = self.standing("content")
        return {name: standing.state(name, rejections.get(name, "")) for name in self.names}

    def with_required(self) -> Batch:
        """Return the batch with what its tasks need first, where that is not made, or stale."""
        needed = {name for task in self.tasks for name in task.required}.difference(self.names)
        lacking = replace(self, tasks=tuple(task for task in self.every if task.name in needed))
        first = lacking.only(due(lacking.states({}))).tasks if lacking.tasks else ()
        return replace(self, tasks=(*first, *self.tasks)) if first else self

    def with_dependents(self, names: Iterable[str]) -> Batch:
        """Return the batch with the named tasks, and those that are made from their products, directly or not."""
        wanted = set(names)
        while more := {task.name for task in self.tasks if wanted.intersection(task.required)} - wanted:
            wanted |= more
        return self.only(wanted)

    def only(self, names: Iterable[str]) -> Batch:
        """Return the batch with the named tasks alone."""
        wanted = set(names)
        return replace(self, tasks=tuple(task for task in self.tasks if task.name in wanted))


@dataclass(frozen=True)
class PendingTasks:
    """The tasks to train, as far as known while shared decisions are made."""

    tasks: tuple[Task, ...]
    spans: Callable[[], Mapping[str, ModelExtent]]
    """Returns where the patches lie that can be trained, by name."""
    names_in: Callable[[Batch], Sequence[str]] = lambda batch: [task.name for task in batch.tasks]
    """Returns which tasks of a batch would have to be trained; the batch differs in its decisions alone."""
    say: Callable[[str], None] = lambda words: None
    """Tells the person who has started the run."""


class FolderNamed(ConfigError):
    """A folder was named in place of a patch; `own` is where its YAML lies, or would."""

    def __init__(self, folder: Path, own: Path, hint: str) -> None:
        what = "a folder, not the name of a patch" if own.is_file() else f"a folder without {own.name}"
        super().__init__(f"{folder}: {what}", hint)
        self.folder, self.own = folder, own


def named_batch(path: Path | str | None, names: Names) -> tuple[Path | None, tuple[str, ...]]:
    """Return the YAML and the patches that a user names; the YAML is None where the usual one is meant.

    A folder, its YAML or its output folder that stands first names the batch. A patch of the usual batch goes first.

    Raises:
        FolderNamed: a folder without a YAML is named.
        ConfigError: a name is no text.
    """
    path, names = Path(path) if path else None, as_names(names)
    first = Path(names[0]) if names else None
    if path or first is None or not ((own := configuration.config_in(first)) or is_folder(first)):
        return path, names
    if configuration.has_config(None):
        with contextlib.suppress(SplatbatchError):  # of a batch that is not meant
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
    changes: Mapping[str, Any] | None = None,
    conditions: Names = (),
) -> Batch:
    """Load the config, find its tasks and see that everything it says of them holds.

    Args:
        path: of the YAML, or its folder; None for the usual one.
        names: of the patches that are meant, with or without a variant of the sweep; none for all, a text for one.
            What stands first may name the batch: see `named_batch`.
        changes: settings that differ from the YAML.
        conditions: of the patches that are meant, as "variant=base".

    Raises:
        ConfigError: the YAML, a patch name, a change or a condition is wrong.
        SceneError: there are no patches.
        FolderNamed: a folder without a YAML is named.
    """
    chosen, patches = named_batch(path, names)
    return _opened(chosen, patches, changes or {}, as_names(conditions))


def _opened(path: Path | None, names: Sequence[str], changes: Mapping[str, Any], conditions: Sequence[str]) -> Batch:
    try:
        file = configuration.find_config(path)
    except ConfigError as error:
        if path or not names:
            raise
        raise ConfigError(f"{error.message}; {names[0]}: there is no folder of that name", error.hint) from error
    return batch_of(configuration.load(file), file, names, changes, conditions)


def batch_of(
    config: Config, file: Path, names: Sequence[str], changes: Mapping[str, Any], conditions: Sequence[str]
) -> Batch:
    """Return the batch of a config, which stands in a file, or will.

    Raises:
        SplatbatchError: as of `open_batch`.
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
            message = f"--set {unread[0]}: the command of {name}, which trains {task.name}, does not read it"
            hint = (
                f"It reads: {', '.join(sorted(recipe.reads()))}. For another, put {{setting.NAME}} into"
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
    """Return the patch whose folder is named, as a shell completes it; else what was named."""
    folder = Path(name)
    if os.sep not in name or not is_folder(folder):
        return name
    home = folder.resolve()
    mine = (one.name for one in patches if one.name == home.name and one.sparse.resolve().is_relative_to(home))
    return next(mine, name)


def _config_of_folder(folder: Path) -> FolderNamed:
    """Return where the configuration of a folder lies; where it has none, what lies there and what begins with it."""
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
