"""Tasks: each makes one product, most often the splat of a patch, in a sweep under one variant."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from splatbatch.config import Config, Recipe, Retry, Rung, TaskId, Variant, no_such_patch
from splatbatch.config.load import RECIPE_SECTIONS
from splatbatch.errors import ConfigError
from splatbatch.failures.settings import SettingDifference, differences
from splatbatch.files import write_json
from splatbatch.hashing import FileFacts
from splatbatch.outcome import Made, Rejected, Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import TaskUnit
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.deadline import StepBudget
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.metrics import MeasurementRecord
from splatbatch.scene.patches import Patch, list_names
from splatbatch.tasks.fingerprint import fingerprint, is_drawn_behind, recipe_hash
from splatbatch.tasks.input_files import InputFiles
from splatbatch.tasks.patch_state import Missing, PatchState, UpToDate
from splatbatch.tasks.step_budget import changes_of

if TYPE_CHECKING:
    from splatbatch.output.records.attempt import Claim
    from splatbatch.output.records.evaluation import EvaluationSettings
    from splatbatch.output.records.quality import InspectionSettings
    from splatbatch.reconstruction.plan import StageSettings
    from splatbatch.scene.memory_estimate import MemoryEstimate
    from splatbatch.trainers import Trainer

KINDS = ("variant", "patch")
"""Kinds of conditions of `--only`."""


@dataclass(frozen=True, eq=False)
class TaskSettings:
    """Settings of a task at one level (YAML, --set, after retries); recipe and trainer are made on first use.

    `patch` is empty for a task that trains nothing; patches without settings of their own share an object, with the
    name of the first. `variant` is None without a sweep, and for the backdrop.
    """

    config: Config
    patch: str
    variant: Variant | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changed settings at this level, by full name, from --set and from rungs of ladders; empty: none."""
    budgets: tuple[StepBudget, ...] = ()
    """Step budgets for a deadline: first the present one, then those whose splats are also up to date; empty: none."""

    @cached_property
    def recipe(self) -> Recipe:
        """Recipe of these settings, validated on first use.

        Raises:
            ConfigError: the settings are invalid.
        """
        return self.config.recipe(self.patch, self.all_changes, self.variant)

    @cached_property
    def all_changes(self) -> Mapping[str, Any]:
        """All changed settings by full name, with those of the step budget.

        Changes by --set and rungs take precedence.

        Raises:
            ConfigError: the settings are invalid.
        """
        return (
            {**changes_of(self.without_deadline.recipe, self.budgets[0]), **self.changes}
            if self.budgets
            else self.changes
        )

    @cached_property
    def without_deadline(self) -> TaskSettings:
        """The same settings without a step budget; these settings themselves if they have none."""
        return replace(self, budgets=()) if self.budgets else self

    @cached_property
    def recipe_hash(self) -> str:
        """Hash of the recipe, as fingerprints (hashes of settings and inputs, recorded with each splat) hold it.

        Raises:
            ConfigError: the settings are invalid.
        """
        return recipe_hash(self.recipe)

    @cached_property
    def acceptable_hashes(self) -> frozenset[str]:
        """Hashes of all recipes whose splats are up to date under these settings.

        With a deadline these are the recipes of every budget, and the recipe without a budget. Splats with more steps
        or Gaussians than `auto` might choose count too, see `Recipe.acceptable`.

        Raises:
            ConfigError: the settings are invalid.
        """
        every = {self, self.without_deadline, *(replace(self, budgets=(one,)) for one in self.budgets[1:])}
        return frozenset(recipe_hash(recipe) for one in every for recipe in one.recipe.acceptable())

    @cached_property
    def trainer(self) -> Trainer:
        """Trainer of the recipe; its module is loaded on first use, since `status` needs no trainer.

        Raises:
            ConfigError: the settings are invalid.
        """
        from splatbatch.trainers import open_trainer

        return open_trainer(self.recipe)

    @cached_property
    def differences(self) -> tuple[SettingDifference, ...]:
        """Settings in which this patch differs from a patch without settings of its own in the YAML; empty: none."""
        sections = {name: getattr(self.config, name).model_dump() for name in RECIPE_SECTIONS}
        program = self.config.trainers.get(self.recipe.training.trainer)
        sections["setting"] = program.settings if program else {}
        batch = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
        recipe = self.without_deadline.recipe
        own = {key: value for key, value in recipe.as_given().items() if key in recipe.reads()}
        return differences(own, batch, Recipe().as_given())

    def changed(self, changes: Mapping[str, object]) -> TaskSettings:
        """Return these settings with further changes, which replace earlier changes of the same setting."""
        return replace(self, changes={**self.changes, **changes}) if changes else self


@dataclass(frozen=True, eq=False)
class Task:
    """One product to make, with everything that plan, run, retry and acceptance need; immutable.

    The methods of this class are for a small product made by a module of splatbatch, which needs no other task. Rungs
    do not change such a task. The module reads settings.json of the attempt, and writes metrics.json. Subclasses
    differ.
    """

    id: TaskId
    patch: Patch
    """Patch to train; for a task that trains nothing, a stand-in that gives names and paths."""
    yaml_settings: TaskSettings
    """Settings by the YAML, by which results are judged to be up to date."""
    requested_settings: TaskSettings
    """Settings by the YAML and --set."""
    next_settings: TaskSettings
    """Settings of the next attempt: the requested settings, changed by the rungs taken after failures."""
    memory_estimate: MemoryEstimate | None = None
    """Memory that the task is expected to need.

    None: not estimated yet, the model cannot be read, or an external trainer trains the task. A task that trains
    nothing may have none, too.
    """
    claim: Claim | None = None
    """Claim of this worker on the task; None: the task is not claimed yet, or no claims are made."""
    orders: InspectionSettings | EvaluationSettings | StageSettings | None = None
    """Content of settings.json; None: the trainer writes it, or the task has none."""
    attempts: PatchFolder | None = None
    """Folder of the task's attempts; None: the folder of the task."""
    takes: Literal["gpu", "any", "cpu"] = "gpu"
    """Kind of slot: "gpu": a GPU if the batch has any, else cores; "cpu": never a GPU; "any": an idle GPU, else cores.

    Only "gpu" waits until a GPU is free and cool.
    """
    expected: tuple[float, float] | None = None
    """Expected seconds, and peak memory of the host in MiB; None: both follow from the recipe."""
    module: ClassVar[str] = ""
    """Python module that makes the product; it is run with the folder of the attempt as its argument.

    Empty: a trainer makes the product.
    """
    limits: ClassVar[Mapping[str, float]] = {}
    """Limits that replace those of the YAML for this class, by the name of the setting; empty: none."""
    noun: ClassVar[TaskUnit] = "patch"
    """Unit in which tasks of this class are counted."""
    tries: ClassVar[int] = 1
    """Most attempts at the task, where the YAML's retry settings do not apply."""
    waits: ClassVar[bool] = False
    """Whether a retry after a failure that passes by itself waits first; False: the task is tried again at once."""
    stands_by: ClassVar[bool] = False
    """Whether the process may start as a standby, before a slot is free.

    A standby imports its modules without touching a GPU, and begins once go.json lies in the folder of its attempt.
    """

    @property
    def name(self) -> str:
        """Name of the task in messages and records, and of its folder: "p0@base"."""
        return str(self.id)

    @property
    def output(self) -> OutputFolder:
        """Output folder of the batch; it may not exist yet."""
        return OutputFolder(self.yaml_settings.config.output.folder)

    @property
    def home(self) -> PatchFolder:
        """Folder of the task's attempts, and of its accepted splat."""
        return self.attempts or self.output.patch(self.name)

    @property
    def inputs(self) -> str:
        """Key of the product, see `product.key_of`, which must be equal on all workers.

        Empty: the product has no key.
        """
        return self.orders.inputs if self.orders else ""

    @property
    def ladders(self) -> Mapping[str, tuple[Rung, ...]]:
        """Ladders of changed settings, by cause, for failures that an unchanged attempt would repeat; empty: none."""
        return {}

    @property
    def program(self) -> Trainer | Task:
        """Object that gives the command of an attempt, and collects its product: a trainer, or the task itself."""
        return self

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the tasks whose products this task needs; it waits while these are being made. Empty: none."""
        return ()

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json of an attempt, and return the command of its process.

        Without `orders` nothing is written.

        Args:
            patch: patch to train; a subclass may read it.
            folder: folder of the attempt.

        Raises:
            OSError: settings.json cannot be written.
        """
        if self.orders:
            write_json(folder.settings, self.orders.to_record())
        return (sys.executable, "-m", self.module, str(folder.path))

    def collect(self, folder: AttemptFolder) -> Splat | Made | Rejected:
        """Return the product of an ended attempt: its metrics.json, if the inputs named there are those ordered.

        `Rejected` without a reason: metrics.json is missing, unreadable or of other inputs.

        Raises:
            LaterFormatError: a later version of splatbatch wrote metrics.json.
        """
        found = MeasurementRecord.read(folder.metrics)
        return Made(folder.metrics) if found and found.inputs == self.inputs else Rejected("")

    def product(self) -> PatchState | None:
        """Return the state of the present product; None for a splat, which `freshness.FreshnessChecker` judges.

        This class returns `Missing`: the task then always runs, and its program skips the parts that are up to date.
        """
        return Missing()

    def is_fresh(self) -> bool:
        """Return whether the product is up to date; False for splats, which `freshness.FreshnessChecker` judges."""
        return isinstance(self.product(), UpToDate)

    def keep(self, folder: AttemptFolder) -> None:
        """Move the product of an attempt to its place; here nothing is done.

        Splats are accepted instead, never moved by this.
        """

    def depends_on(self) -> Fingerprint:
        """Return the fingerprint (hashes) of settings and inputs, here a blank one.

        A reader process asks just before an attempt starts.
        """
        return Fingerprint()

    def why_unfit(self) -> str:
        """Audit the inputs again, since they have changed; return the first error.

        Empty: no error, or nothing to audit.
        """
        return ""

    def retry(self) -> Retry:
        """Return the retry settings: how many attempts, and the ladders; other retry settings have their defaults."""
        return Retry(max_attempts=self.tries).model_copy(update={"ladders": self.ladders})

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that the task reads, by the names used in rungs; empty: rungs change none."""
        return {}

    def changed(self, changes: Mapping[str, object]) -> Self:
        """Return the task with changed settings for its next attempt, as a rung of a ladder asks.

        Here the task unchanged.

        Args:
            changes: changed settings, by the names that `settings` returns.
        """
        return self

    @property
    def recipe(self) -> Recipe:
        """Recipe by the YAML, without --set and rungs.

        Raises:
            ConfigError: the settings of the YAML are invalid.
        """
        return self.yaml_settings.recipe

    def input_files(self, facts: FileFacts | None = None) -> InputFiles:
        """Return the input files under the recipe of the YAML.

        Args:
            facts: known hashes of files; None: every file is looked at again.
        """
        return InputFiles(self.patch, self.recipe, facts or FileFacts())

    @property
    def length(self) -> float:
        """Relative length of the task, to begin with the longest: MiB of photographs x steps; 0 if unknown."""
        return (
            self.requested_settings.recipe.training.max_steps * self.memory_estimate.photos_mib
            if self.memory_estimate
            else 0.0
        )


class TrainTask(Task):
    """A task that trains the splat of a patch, or the backdrop, by its recipe; in a sweep under one variant."""

    waits = True

    @property
    def program(self) -> Trainer:
        """Trainer of the next attempt."""
        return self.next_settings.trainer

    @property
    def required(self) -> tuple[str, ...]:
        """Name of the backdrop's task, if the backdrop is drawn behind the patch; else empty."""
        behind = self.patch.behind
        return (behind.name,) if behind and is_drawn_behind(self.patch, self.recipe) else ()

    def product(self) -> None:
        """Return None: `freshness.FreshnessChecker` judges splats."""

    def depends_on(self) -> Fingerprint:
        """Return the fingerprint: hashes of the YAML's settings, of the settings really in force, and of the inputs.

        All input files are looked at, and the model is read. It is recorded with the splat.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the manifest of the backdrop.
        """
        return replace(fingerprint(self.patch, self.recipe), effective=self.next_settings.recipe_hash)

    def why_unfit(self) -> str:
        """Audit this patch alone again; return the first error in words, empty if there is none.

        Raises:
            OSError: a mask was removed during the audit.
        """
        from splatbatch.scene.audit.audit import AuditExtent, audit_patches
        from splatbatch.trainers import rules_of

        recipe = self.next_settings.recipe
        extent = AuditExtent(evaluations={self.patch.name: recipe.evaluation})
        audit = audit_patches([self.patch], None, rules_of([recipe]), extent)
        return next((finding.in_words() for finding in audit.errors()), "")

    def retry(self) -> Retry:
        """Return the retry settings of the YAML; an external trainer has its own ladders."""
        retry, program = self.next_settings.config.retry, self.next_settings.recipe.program
        return retry.model_copy(update={"ladders": program.ladders}) if program else retry

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of the recipe and the changes, by full name, as far as the trainer reads them.

        `training.cap_max` is a number even where the recipe has "auto", since rungs multiply it.
        """
        recipe = self.next_settings.recipe
        settings = {**self.next_settings.changes, **recipe.settings()}
        if settings["training.cap_max"] == "auto":  # a rung takes a factor of it
            estimate = self.memory_estimate
            settings["training.cap_max"] = estimate.num_gaussians if estimate else recipe.training.cap()
        return {key: value for key, value in settings.items() if key in recipe.reads()}

    def changed(self, changes: Mapping[str, object]) -> Self:
        """Return the task with changed settings for its next attempt.

        If they are invalid, its recipe raises ConfigError.
        """
        return replace(self, next_settings=self.next_settings.changed(changes))


def untrained(config: Config) -> tuple[TaskSettings, TaskSettings, TaskSettings]:
    """Return the three settings (YAML, requested, next) for a task that trains nothing; all are the same."""
    settings = TaskSettings(config, "")
    return settings, settings, settings


def tasks_of(config: Config, patches: Iterable[Patch]) -> tuple[Task, ...]:
    """Return a task for every patch or, in a sweep, for each patch and variant, ordered by patch.

    Patches with the same settings share a `TaskSettings`. The backdrop is left out if only external trainers train the
    patches, since they draw none.

    Raises:
        ConfigError: the scene has a backdrop, and the settings of a patch are invalid.
    """
    shared: dict[TaskId, TaskSettings] = {}
    found = []
    for patch in patches:
        for variant in (not patch.is_whole and config.variants.values()) or (None,):
            task_id = TaskId(patch.name, variant.name if variant else "")
            alike = task_id if patch.name in config.patches else TaskId("", task_id.variant)
            setup = shared.get(alike) or shared.setdefault(alike, TaskSettings(config, patch.name, variant))
            found.append(TrainTask(task_id, patch, setup, setup, setup))
    is_drawn = any(task.patch.behind and task.recipe.program is None for task in found)
    return tuple(task for task in found if is_drawn or not task.patch.is_whole)


def apply_overrides(changes: Mapping[str, object], tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks with the changes by --set in their requested and next settings; the settings of the YAML stay.

    Args:
        changes: changed settings by full name; empty: none.
        tasks: the tasks.
    """
    setups = {setup: setup.changed(changes) for setup in {task.yaml_settings for task in tasks}}
    return tuple(
        replace(task, requested_settings=setups[task.yaml_settings], next_settings=setups[task.yaml_settings])
        for task in tasks
    )


def with_step_budget(tasks: Sequence[Task], budgets: tuple[StepBudget, ...]) -> tuple[Task, ...]:
    """Return the tasks under the step budgets of a deadline.

    Tasks with the same settings still share one `TaskSettings`.

    Args:
        tasks: the tasks.
        budgets: present budget first, then those whose splats are also up to date; empty: no deadline.
    """
    every = {setup for task in tasks for setup in (task.yaml_settings, task.requested_settings, task.next_settings)}
    now = {setup: setup if setup.budgets == budgets else replace(setup, budgets=budgets) for setup in every}
    return tuple(
        replace(
            task,
            yaml_settings=now[task.yaml_settings],
            requested_settings=now[task.requested_settings],
            next_settings=now[task.next_settings],
        )
        for task in tasks
    )


def patches_of(tasks: Iterable[Task]) -> tuple[Patch, ...]:
    """Return the patches that tasks train, each once, in the order of the tasks; other tasks are skipped."""
    return tuple({task.patch.name: task.patch for task in tasks if isinstance(task, TrainTask)}.values())


def of_patches(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks of patches of the scene, in their order: all except that of the backdrop."""
    return tuple(task for task in tasks if not task.patch.is_whole)


Names = str | Iterable[str]
"""Names in the Python API: several, or a text for a single name."""


def as_names(names: Names) -> tuple[str, ...]:
    """Return names as a tuple; a text is a single name.

    Raises:
        ConfigError: a name is no text.
    """
    if isinstance(names, str):
        return (names,)
    found = tuple(names) if isinstance(names, Iterable) else (names,)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise ConfigError(
            f"names of patches: {wrong[0]!r} should be a string or a list of strings", 'Write "p0", or ["p0", "p1"].'
        )
    return found


def select(tasks: Sequence[Task], names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks named on the command line, in the order of `tasks`; all tasks if there are no names.

    A name is that of a task ("p0@base"), or of a patch, which selects all its variants.

    Raises:
        ConfigError: a name is unknown.
    """
    if not names:
        return tuple(tasks)
    wanted, known = set(names), {name for task in tasks for name in (task.name, task.patch.name)}
    for name in wanted - known:
        raise no_such_patch(name, [task.name for task in tasks])
    return tuple(task for task in tasks if task.name in wanted or task.patch.name in wanted)


def only(tasks: Sequence[Task], conditions: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks that fulfil conditions such as "variant=base", "variant=*default*" or "patch=p0".

    Of several conditions on the variant, or on the patch, one must be fulfilled. Without conditions all tasks are
    returned.

    Raises:
        ConfigError: a condition is malformed, or no task fulfils it.
    """
    if not conditions:
        return tuple(tasks)
    wanted = defaultdict[str, list[str]](list)
    for condition in conditions:
        kind, equals, pattern = (part.strip() for part in condition.partition("="))
        if not equals or kind not in KINDS:
            raise ConfigError(
                f"--only {condition}: not of the form variant=NAME or patch=NAME", "`*` matches any name."
            )
        known = dict.fromkeys(getattr(task.id, kind) for task in tasks)
        if not any(fnmatchcase(name, pattern) for name in known):
            there = list_names([name for name in known if name]) or "none, since the YAML has no sweep"
            raise ConfigError(f"--only {kind}={pattern}: there is no such {kind}", f"Known: {there}.")
        wanted[kind].append(pattern)
    for kind, patterns in wanted.items():
        tasks = [task for task in tasks if any(fnmatchcase(getattr(task.id, kind), one) for one in patterns)]
    if not tasks:
        raise ConfigError(f"--only {', '.join(conditions)}: no patch matches all conditions; leave one out")
    return tuple(tasks)


def single_task(tasks: Sequence[Task], name: str) -> Task:
    """Return the only task of a selection, for commands that take a single patch.

    Args:
        tasks: selected tasks, at least one.
        name: name of the patch, for the message.

    Raises:
        ConfigError: the named patch has several variants.
    """
    if len(tasks) > 1:
        names = [task.name for task in tasks]
        raise ConfigError(f"{name}: has {len(names)} variants", f"Name one of {list_names(names)}.")
    return tasks[0]
