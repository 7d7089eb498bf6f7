"""A task: a patch, in a sweep under one of its variants, with the recipe and the trainer that train it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from splatbatch.config import Config, Recipe, TaskId, Variant, nearest
from splatbatch.config.load import RECIPE_SECTIONS
from splatbatch.errors import ConfigError
from splatbatch.failures.settings import Difference, differences
from splatbatch.scene.patches import Patch, spell
from splatbatch.store.records.deadline.choice import Pace
from splatbatch.tasks.deadline.pace import changes_of

if TYPE_CHECKING:
    from splatbatch.scene.footprint import Footprint
    from splatbatch.store.records.attempt import Claimed
    from splatbatch.trainers import Trainer

KINDS = ("variant", "patch")


@dataclass(frozen=True, eq=False)
class Setup:
    """What attempts train by: the recipe of some settings, and its trainer; each made once, when first asked for."""

    config: Config
    patch: str
    variant: Variant | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of settings, by --set and by rungs."""
    paces: tuple[Pace, ...] = ()
    """For a deadline: the one of now, and others whose splats count as well; none: it has none."""

    @cached_property
    def recipe(self) -> Recipe:
        """The settings, checked; a ConfigError says what is wrong with them."""
        return self.config.recipe(self.patch, self.told, self.variant)

    @cached_property
    def told(self) -> Mapping[str, Any]:
        """All changes, those for a deadline included; what somebody asks for by name goes before these."""
        return (
            {**changes_of(self.without_deadline.recipe, self.paces[0]), **self.changes} if self.paces else self.changes
        )

    @cached_property
    def without_deadline(self) -> Setup:
        """What would train if there were time."""
        return replace(self, paces=()) if self.paces else self

    @cached_property
    def counting(self) -> tuple[Recipe, ...]:
        """The recipes whose splats are fresh: of a deadline also those with more steps, none at all given up first."""
        others = (self.recipe, self.without_deadline.recipe) if self.paces else (self.recipe,)
        return (*others, *(replace(self, paces=(pace,)).recipe for pace in self.paces[1:]))

    @cached_property
    def trainer(self) -> Trainer:
        """Made for the recipe; loaded only now, for `status` needs none."""
        from splatbatch.trainers import open_trainer

        return open_trainer(self.recipe)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """In what its settings differ from those of a patch for which the YAML sets nothing."""
        sections = {name: getattr(self.config, name).model_dump() for name in RECIPE_SECTIONS}
        program = self.config.trainers.get(self.recipe.training.trainer)
        sections["setting"] = program.settings if program else {}
        batch = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
        return differences(self.without_deadline.recipe.as_given(), batch, Recipe().as_given())

    def paced(self, paces: tuple[Pace, ...]) -> Setup:
        """Return what trains at another pace."""
        return self if paces == self.paces else replace(self, paces=paces)

    def changed(self, changes: Mapping[str, Any]) -> Setup:
        """Return what trains under further changes."""
        return replace(self, changes={**self.changes, **changes}) if changes else self


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """A patch under a variant, and what trains it. A rung of a ladder makes another one of the same name."""

    id: TaskId
    patch: Patch
    today: Setup
    """By the YAML: what results are held against."""
    asked: Setup
    """By the YAML and --set."""
    setup: Setup
    """What the next attempt trains by: what was asked for, and the rungs that were taken."""
    footprint: Footprint | None = None
    """What it is expected to take, as far as its model can be read."""
    claim: Claimed | None = None
    """Under which claim it is ours; None as long as it is not."""

    @property
    def name(self) -> str:
        """Its name in messages and records, and that of its folder: "p0@base"."""
        return str(self.id)

    @property
    def recipe(self) -> Recipe:
        """What would train it today, by the YAML."""
        return self.today.recipe

    @property
    def length(self) -> float:
        """How long it is, on a scale of its own: images x pixels x steps."""
        return self.asked.recipe.training.max_steps * self.footprint.photos_mib if self.footprint else 0.0


def tasks_of(config: Config, patches: Iterable[Patch]) -> tuple[Task, ...]:
    """Return a task for every patch or, in a sweep, for each under each variant; a patch's variants stand together.

    Patches that are trained alike share their setup.
    """
    shared: dict[TaskId, Setup] = {}
    found = []
    for patch in patches:
        for variant in (not patch.is_backdrop and config.variants.values()) or (None,):
            task_id = TaskId(patch.name, variant.name if variant else "")
            alike = task_id if patch.name in config.patches else TaskId("", task_id.variant)
            setup = shared.get(alike) or shared.setdefault(alike, Setup(config, patch.name, variant))
            found.append(Task(task_id, patch, setup, setup, setup))
    return tuple(found)


def under(changes: Mapping[str, Any], tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks as --set asks for them."""
    if not changes:
        return tuple(tasks)
    setups = {setup: setup.changed(changes) for setup in {task.today for task in tasks}}
    return tuple(replace(task, asked=setups[task.today], setup=setups[task.today]) for task in tasks)


def at_pace(tasks: Sequence[Task], paces: tuple[Pace, ...]) -> tuple[Task, ...]:
    """Return the tasks as a deadline leaves time for them; patches that are trained alike share their setup still."""
    every = {setup for task in tasks for setup in (task.today, task.asked, task.setup)}
    now = {setup: setup.paced(paces) for setup in every}
    return tuple(replace(task, today=now[task.today], asked=now[task.asked], setup=now[task.setup]) for task in tasks)


def patches_of(tasks: Iterable[Task]) -> tuple[Patch, ...]:
    """Return the patches of tasks, each once."""
    return tuple({task.patch.name: task.patch for task in tasks}.values())


def select(tasks: Sequence[Task], names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks that were named on the command line, by their own name or by their patch's; without one all.

    Raises:
        ConfigError: a name is unknown.
    """
    if not names:
        return tuple(tasks)
    wanted, known = set(names), {name for task in tasks for name in (task.name, task.patch.name)}
    for name in wanted - known:
        raise ConfigError(f"{name}: no such patch", nearest(name, [task.name for task in tasks]))
    return tuple(task for task in tasks if task.name in wanted or task.patch.name in wanted)


def only(tasks: Sequence[Task], conditions: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks that fulfil conditions such as "variant=base", "variant=*default*" or "patch=p0".

    Of several conditions of a kind one must be fulfilled.

    Raises:
        ConfigError: a condition is none, or is fulfilled by nothing.
    """
    if not conditions:
        return tuple(tasks)
    kept = list(tasks)
    for kind in KINDS:
        wanted = [value for condition in conditions for value in [_wanted(condition, kind)] if value is not None]
        known = list(dict.fromkeys(getattr(task.id, kind) for task in tasks))
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in known):
                there = spell([name for name in known if name]) or "none: the config has no sweep"
                raise ConfigError(f"--only {kind}={pattern}: there is none", f"There are: {there}.")
        if wanted:
            kept = [task for task in kept if any(fnmatchcase(getattr(task.id, kind), one) for one in wanted)]
    if not kept:
        raise ConfigError(f"--only {', '.join(conditions)}: no patch is like all of this")
    return tuple(kept)


def the_task(tasks: Sequence[Task], name: str) -> Task:
    """Return the one task that is meant.

    Raises:
        ConfigError: it is a patch with several variants.
    """
    if len(tasks) > 1:
        names = [task.name for task in tasks]
        raise ConfigError(f"{name}: has {len(names)} variants", f"Name one of {spell(names)}.")
    return tasks[0]


def _wanted(condition: str, kind: str) -> str | None:
    """Return the value of a condition if it is of this kind."""
    found, equals, value = condition.partition("=")
    if not equals or found.strip() not in KINDS:
        raise ConfigError(f"--only {condition}: not of the form variant=NAME or patch=NAME", "* stands for anything.")
    return value.strip() if found.strip() == kind else None
