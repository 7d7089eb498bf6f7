"""A task: makes one product of one subject, most often the splat of a patch, in a sweep under one of its variants."""

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


@dataclass(frozen=True, eq=False)
class TaskSettings:
    """Settings of a task at one level (YAML, --set, after retries); recipe and trainer are made on first use."""

    config: Config
    patch: str
    variant: Variant | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of settings, by --set and by rungs."""
    budgets: tuple[StepBudget, ...] = ()
    """For a deadline: the one of now, and others whose splats count as well; none: it has none."""

    @cached_property
    def recipe(self) -> Recipe:
        """The settings, checked; a ConfigError says what is wrong with them."""
        return self.config.recipe(self.patch, self.all_changes, self.variant)

    @cached_property
    def all_changes(self) -> Mapping[str, Any]:
        """All changes, those for a deadline included; changes requested by name take precedence."""
        return (
            {**changes_of(self.without_deadline.recipe, self.budgets[0]), **self.changes}
            if self.budgets
            else self.changes
        )

    @cached_property
    def without_deadline(self) -> TaskSettings:
        """What would train if there were time."""
        return replace(self, budgets=()) if self.budgets else self

    @cached_property
    def recipe_hash(self) -> str:
        """The hash of the recipe."""
        return recipe_hash(self.recipe)

    @cached_property
    def acceptable_hashes(self) -> frozenset[str]:
        """The hashes of the recipes whose splats are fresh: of a deadline also of those with more steps.

        A splat that made all its steps is fresh where it might have ended early, unless that number was set.
        """
        every = {self, self.without_deadline, *(replace(self, budgets=(one,)) for one in self.budgets[1:])}
        recipes = (one.recipe for one in every)
        full = (one.in_full() for one in recipes if one.evaluation.stop_after == "auto" and one.stops_after())
        return frozenset(map(recipe_hash, full)).union(one.recipe_hash for one in every)

    @cached_property
    def trainer(self) -> Trainer:
        """Made for the recipe; loaded only now, for `status` needs none."""
        from splatbatch.trainers import open_trainer

        return open_trainer(self.recipe)

    @cached_property
    def differences(self) -> tuple[SettingDifference, ...]:
        """In what its settings differ from those of a patch for which the YAML sets nothing."""
        sections = {name: getattr(self.config, name).model_dump() for name in RECIPE_SECTIONS}
        program = self.config.trainers.get(self.recipe.training.trainer)
        sections["setting"] = program.settings if program else {}
        batch = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
        recipe = self.without_deadline.recipe
        own = {key: value for key, value in recipe.as_given().items() if key in recipe.reads()}
        return differences(own, batch, Recipe().as_given())

    def changed(self, changes: Mapping[str, Any]) -> TaskSettings:
        """Return what trains under further changes."""
        return replace(self, changes={**self.changes, **changes}) if changes else self


@dataclass(frozen=True, eq=False)
class Task:
    """One product to be made: all that plan, loop, retry and acceptance ask. A rung of a ladder makes another task.

    What is not said otherwise is that of a small product, which a process of ours makes: nothing is required first, and
    no setting changes it. settings.json of its attempt says what is wanted, metrics.json what was found or made.
    """

    id: TaskId
    patch: Patch
    """That it is of, or what stands in its place."""
    yaml_settings: TaskSettings
    """By the YAML: what results are held against."""
    requested_settings: TaskSettings
    """By the YAML and --set."""
    next_settings: TaskSettings
    """What the next attempt trains by: what was asked for, and the rungs that were taken."""
    memory_estimate: MemoryEstimate | None = None
    """What it is expected to take, as far as its model can be read."""
    claim: Claim | None = None
    """Under which claim it is ours; None as long as it is not."""
    orders: InspectionSettings | EvaluationSettings | StageSettings | None = None
    """What settings.json says; None: the command says it."""
    attempts: PatchFolder | None = None
    """Where its attempts lie; None: in the folder of the task."""
    takes: Literal["gpu", "any", "cpu"] = "gpu"
    """A slot as the batch has them; "cpu": never one of a GPU; "any": a GPU that is ready, else one of the CPU.

    Only what takes a GPU, or trains on a CPU, waits until one is free and cool.
    """
    expected: tuple[float, float] | None = None
    """Seconds, and MiB of the host at their highest, that it is expected to take; None: its recipe says that."""
    module: ClassVar[str] = ""
    """Makes the product, run with the folder of the attempt."""
    limits: ClassVar[Mapping[str, float]] = {}
    """Those of the YAML that are others for it."""
    noun: ClassVar[TaskUnit] = "patch"
    """What people count tasks of its class in."""
    tries: ClassVar[int] = 1
    """How often an attempt is made; what may pass is tried again."""
    waits: ClassVar[bool] = False
    """What may pass by itself is waited for; else it is tried again at once."""
    stands_by: ClassVar[bool] = False
    """Its process may be started ahead of its turn: until `go` it then prepares without touching a GPU."""

    @property
    def name(self) -> str:
        """Its name in messages and records, and that of its folder: "p0@base"."""
        return str(self.id)

    @property
    def output(self) -> OutputFolder:
        """The output folder of its batch."""
        return OutputFolder(self.yaml_settings.config.output.folder)

    @property
    def home(self) -> PatchFolder:
        """Where its attempts lie."""
        return self.attempts or self.output.patch(self.name)

    @property
    def inputs(self) -> str:
        """The key of the product, on which all workers must agree; empty: none is compared."""
        return self.orders.inputs if self.orders else ""

    @property
    def ladders(self) -> Mapping[str, tuple[Rung, ...]]:
        """What is changed, rung by rung, for causes that an unchanged attempt cannot mend."""
        return {}

    @property
    def program(self) -> Trainer | Task:
        """What names the command that makes the product, and judges what is left."""
        return self

    @property
    def required(self) -> tuple[str, ...]:
        """The tasks whose products it is made from: where they are made now, it waits."""
        return ()

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare an attempt and return the command of its process."""
        if self.orders:
            write_json(folder.settings, self.orders.to_record())
        return (sys.executable, "-m", self.module, str(folder.path))

    def collect(self, folder: AttemptFolder) -> Splat | Made | Rejected:
        """Return the product, if metrics.json is of what the process was told."""
        found = MeasurementRecord.read(folder.metrics)
        return Made(folder.metrics) if found and found.inputs == self.inputs else Rejected("")

    def product(self) -> PatchState | None:
        """Return how the product stands that lies there; None: a splat, see `freshness.FreshnessChecker`.

        Missing, where none is recorded: the program itself compares part by part, and leaves what is there.
        """
        return Missing()

    def is_fresh(self) -> bool:
        """Return whether its product is what would be made now; of a splat `freshness.FreshnessChecker` says it."""
        return isinstance(self.product(), UpToDate)

    def keep(self, folder: AttemptFolder) -> None:
        """Put what an attempt has made where it belongs, unless that is a splat, which is accepted."""

    def depends_on(self) -> Fingerprint:
        """Return what its product depends on; read by a reader, just before it is made."""
        return Fingerprint()

    def why_unfit(self) -> str:
        """Look anew whether it can be made; return why not, empty if it can."""
        return ""

    def retry(self) -> Retry:
        """Return when it is tried again, and by which ladders."""
        return Retry(max_attempts=self.tries).model_copy(update={"ladders": self.ladders})

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that it reads, by the names that rungs have for them."""
        return {}

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the task under other settings."""
        return self

    @property
    def recipe(self) -> Recipe:
        """What would train it today, by the YAML."""
        return self.yaml_settings.recipe

    def input_files(self, facts: FileFacts | None = None) -> InputFiles:
        """Return the files that it would be trained from today; None: they are asked anew."""
        return InputFiles(self.patch, self.recipe, facts or FileFacts())

    @property
    def length(self) -> float:
        """How long it is, on a scale of its own: images x pixels x steps."""
        return (
            self.requested_settings.recipe.training.max_steps * self.memory_estimate.photos_mib
            if self.memory_estimate
            else 0.0
        )


class TrainTask(Task):
    """Trains the splat of a patch, by its recipe; in a sweep under one of its variants."""

    waits = True

    @property
    def program(self) -> Trainer:
        """Its trainer."""
        return self.next_settings.trainer

    @property
    def required(self) -> tuple[str, ...]:
        """The whole scene, where its splat is drawn behind the patch."""
        behind = self.patch.behind
        return (behind.name,) if behind and is_drawn_behind(self.patch, self.recipe) else ()

    def product(self) -> None:
        """Return None: `freshness.FreshnessChecker` says how a splat stands."""

    def depends_on(self) -> Fingerprint:
        """Return the settings of the YAML, those really in force, and the inputs."""
        return replace(fingerprint(self.patch, self.recipe), effective=self.next_settings.recipe_hash)

    def why_unfit(self) -> str:
        """Audit the patch anew, by itself."""
        from splatbatch.scene.audit.audit import AuditExtent, audit_patches
        from splatbatch.trainers import rules_of

        recipe = self.next_settings.recipe
        extent = AuditExtent(evaluations={self.patch.name: recipe.evaluation})
        audit = audit_patches([self.patch], None, rules_of([recipe]), extent)
        return next((finding.in_words() for finding in audit.errors()), "")

    def retry(self) -> Retry:
        """Return what the YAML says; external trainers have ladders of their own."""
        return self.next_settings.config.retry_of(self.next_settings.recipe)

    def settings(self) -> Mapping[str, Any]:
        """Return those of its recipe, and what has been changed; of a program what it reads."""
        recipe = self.next_settings.recipe
        settings = {**self.next_settings.changes, **recipe.settings()}
        return {key: value for key, value in settings.items() if key in recipe.reads()}

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the task under other settings; its recipe says whether there are such."""
        return replace(self, next_settings=self.next_settings.changed(changes))


def untrained(config: Config) -> tuple[TaskSettings, TaskSettings, TaskSettings]:
    """Return the settings of a task that trains nothing."""
    settings = TaskSettings(config, "")
    return settings, settings, settings


def tasks_of(config: Config, patches: Iterable[Patch]) -> tuple[Task, ...]:
    """Return a task for every patch or, in a sweep, for each under each variant; a patch's variants stand together.

    Patches that are trained alike share their setup. The backdrop is left out where external trainers alone train the
    patches: they draw none.
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


def apply_overrides(changes: Mapping[str, Any], tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks as --set asks for them."""
    setups = {setup: setup.changed(changes) for setup in {task.yaml_settings for task in tasks}}
    return tuple(
        replace(task, requested_settings=setups[task.yaml_settings], next_settings=setups[task.yaml_settings])
        for task in tasks
    )


def with_step_budget(tasks: Sequence[Task], budgets: tuple[StepBudget, ...]) -> tuple[Task, ...]:
    """Return the tasks as a deadline leaves time for them; patches that are trained alike share their setup still."""
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
    """Return the patches that tasks train, each once."""
    return tuple({task.patch.name: task.patch for task in tasks if isinstance(task, TrainTask)}.values())


def of_patches(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks that train a patch of the scene: not those of the whole scene, which is only drawn behind."""
    return tuple(task for task in tasks if not task.patch.is_whole)


Names = str | Iterable[str]
"""What functions of the Python API take as names: several, or a text for one."""


def as_names(names: Names) -> tuple[str, ...]:
    """Return names as a tuple; a text is one name.

    Raises:
        ConfigError: they are no names.
    """
    if isinstance(names, str):
        return (names,)
    found = tuple(names) if isinstance(names, Iterable) else (names,)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise ConfigError(
            f"names of patches: {wrong[0]!r} should be a string or a list of strings", 'As "p0", or ["p0", "p1"].'
        )
    return found


def select(tasks: Sequence[Task], names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks that were named on the command line, by their own name or by their patch's; without one all.

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

    Of several conditions of a kind one must be fulfilled.

    Raises:
        ConfigError: a condition is none, or is fulfilled by nothing.
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
            raise ConfigError(f"--only {kind}={pattern}: there is none", f"Known: {there}.")
        wanted[kind].append(pattern)
    for kind, patterns in wanted.items():
        tasks = [task for task in tasks if any(fnmatchcase(getattr(task.id, kind), one) for one in patterns)]
    if not tasks:
        raise ConfigError(f"--only {', '.join(conditions)}: no patch matches all conditions")
    return tuple(tasks)


def single_task(tasks: Sequence[Task], name: str) -> Task:
    """Return the one task that is meant.

    Raises:
        ConfigError: it is a patch with several variants.
    """
    if len(tasks) > 1:
        names = [task.name for task in tasks]
        raise ConfigError(f"{name}: has {len(names)} variants", f"Name one of {list_names(names)}.")
    return tasks[0]
