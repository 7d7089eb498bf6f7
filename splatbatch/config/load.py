"""Reading of a YAML file into a checked `Config`; all mistakes of the file are reported at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from os.path import normpath
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from splatbatch.config.deadline import Deadline
from splatbatch.config.executor import Executor
from splatbatch.config.recipe import Evaluation, LearningRates, PatchOverrides, Recipe, Refinement, Training
from splatbatch.config.rungs import check_rungs
from splatbatch.config.section import FilePath, Section
from splatbatch.config.sections import Cooldown, Limits, Notify, Output, Publish, Retry, Scene, Tracking
from splatbatch.config.sweep.checks import TRAINER, check_sweep, normal
from splatbatch.config.sweep.sweep import Sweep, TaskId, Variant, expand
from splatbatch.config.trainers.program_checks import check_programs
from splatbatch.config.trainers.programs import OUR_TRAINER, Program
from splatbatch.config.yaml.limits import STDIN
from splatbatch.config.yaml.mistakes import MOST_MISTAKES, InvalidSettings, mistake, raise_all, validated
from splatbatch.config.yaml.source import Mistake, YamlSource, dump, near, nearest, no_such, parse_value
from splatbatch.errors import ConfigError

DEFAULT_CONFIG = "splat_config.yml"
CONFIG_VARIABLE = "SPLATBATCH_CONFIG"
RECIPE_SECTIONS = ("training", "refinement", "learning_rates", "evaluation")
KEY = ("output", "folder")


class Config(Section):
    """The whole configuration of a batch, as the sections of its YAML."""

    scene: Scene = Scene()
    training: Training = Training()
    refinement: Refinement = Refinement()
    learning_rates: LearningRates = LearningRates()
    evaluation: Evaluation = Evaluation()
    retry: Retry = Retry()
    cooldown: Cooldown = Cooldown()
    limits: Limits = Limits()
    executor: Executor = Executor()
    output: Output = Output()
    notify: Notify = Notify()
    publish: Publish = Publish()
    tracking: Tracking = Tracking()
    deadline: Deadline | None = None
    """When all patches should be trained: 07:00, 2026-11-24 07:00, or 8h30m from the start. If time is short, steps are
    lowered, then the size of photographs. Left out: no deadline."""
    failures: FilePath | None = None
    """TOML file that names failures of your own programs by patterns of their log lines. Its entries are tried before
    the built-in ones. Left out: none."""
    trainers: dict[str, Program] = {}
    """External trainers by name, for `training.trainer`. The name `gsplat` is splatbatch's own trainer."""
    patches: dict[str, PatchOverrides] = {}
    """Settings of single patches, by patch name; they replace those of the batch."""
    sweep: Sweep = Sweep()

    @cached_property
    def variants(self) -> Mapping[str, Variant]:
        """The variants of the sweep by name, in the order of the YAML; empty without a sweep."""
        return {one.name: one for one in expand(self.sweep, self.unswept)}

    def unswept(self, changes: Mapping[str, object]) -> Recipe:
        """Return the recipe of a patch without overrides, with `changes` and without any variant of the sweep.

        Raises:
            ConfigError: a change names no setting, or its value does not fit.
        """
        return self.recipe("", changes)

    def recipe(self, patch: str, changes: Mapping[str, object] | None = None, variant: Variant | None = None) -> Recipe:
        """Return the recipe of a patch: the config, changed by the patch's overrides, then its variant, then `changes`.

        Args:
            patch: the name of the patch; empty: a patch without overrides.
            changes: settings by their full names, as {"training.seed": 1}; None: none.
            variant: the variant of the sweep; None: none.

        Raises:
            ConfigError: a change names no setting, or its value does not fit.
        """
        if variant and not changes and patch not in self.patches:
            return variant.recipe
        task = TaskId(patch, variant.name if variant else "")
        changed = {**(variant.settings if variant else {}), **(changes or {})}
        overrides = self.patches.get(patch, PatchOverrides()).model_dump()
        arguments = _words(task, changed.pop("arguments", ()))
        tree = {name: getattr(self, name).model_dump() | overrides[name] for name in RECIPE_SECTIONS}
        program = self.trainers.get(str(changed.get(TRAINER, tree["training"]["trainer"])))
        tree["setting"] = program.settings | overrides["setting"] if program else {}
        every = [f"{name}.{setting}" for name, section in tree.items() for setting in section]
        for key, value in changed.items():
            section_name, _, setting = key.partition(".")
            what, named, known = "unknown setting", key, every
            if key == TRAINER:
                what, named, known = f"{value!r}: no such trainer", str(value), [OUR_TRAINER, *self.trainers]
            if named not in known:
                hint = nearest(named, known)
                raise InvalidSettings(f"{key}: {what}", hint, [((key,), f"{what}. {hint}")])
            tree[section_name][setting] = value
        settings = tree.pop("setting")
        told = program.called_with(arguments).model_dump() | {"settings": settings} if program else None
        return validated(Recipe, YamlSource(f"settings of {task}", {**tree, "program": told}))


def has_config(path: Path | None) -> bool:
    """Return whether a config is named by `path` or $SPLATBATCH_CONFIG, or the working folder holds splat_config.yml.

    Whether a named file exists is not checked.
    """
    return bool(path or os.environ.get(CONFIG_VARIABLE)) or Path(DEFAULT_CONFIG).is_file()


def config_in(place: Path) -> Path | None:
    """Return the YAML that a path stands for; None: it stands for none.

    These are tried in turn: splat_config.yml in the folder `place`, then `place` itself if it is a .yml or .yaml file.
    The last is the splat_config.yml beside `place`, if `place` is the output folder that it names. A YAML with mistakes
    there counts as none.
    """
    for own in (place / DEFAULT_CONFIG, place):
        if own.suffix in (".yml", ".yaml") and os.path.isfile(own):  # noqa: PTH113 - never raises
            return own
    above = place.parent / DEFAULT_CONFIG
    with contextlib.suppress(ConfigError):
        if os.path.isdir(place) and above.is_file() and load(above).output.folder.resolve() == place.resolve():  # noqa: PTH112
            return above
    return None


def find_config(path: Path | str | None) -> Path:
    """Return the path of the config for a command: `path`, else $SPLATBATCH_CONFIG, else splat_config.yml.

    "-" stands for standard input, a folder for its configuration: see `config_in`. Relative paths count from the
    working folder and stay relative.

    Raises:
        ConfigError: there is no such file.
    """
    chosen = Path(path or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)
    if chosen == STDIN:
        return chosen
    if not chosen.is_file():
        if own := config_in(chosen):
            return own
        hint = "Write one with `splatbatch init DIR`, or name yours with --config FILE (- reads standard input)."
        hint = f"{near(chosen)} {hint}" if path else hint
        raise ConfigError(f"{chosen}: {no_such(chosen, 'configuration file')}", hint)
    return chosen


def load(path: Path, text: str | None = None) -> Config:
    """Read and check a config; its relative paths are made absolute from the folder of the file.

    Args:
        path: the YAML file; "-": standard input, whose relative paths count from the working folder.
        text: the content of a file that is not written yet; None: read the file.

    Raises:
        ConfigError: the file cannot be read or has mistakes; up to `MOST_MISTAKES` of most kinds are listed, by line
            and key.
    """
    source = meant(YamlSource.read(path, text), Config.model_fields)
    mistakes: list[Mistake] = []
    config = Config()
    try:
        config = Config.model_validate(source.tree)
    except ValidationError as error:
        mistakes += [mistake(Config, detail, source) for detail in error.errors()[:MOST_MISTAKES]]
    for kind in (
        check_programs(source.tree, config.trainers),
        check_sweep(source.tree, config.trainers, config.unswept),
        _rung_mistakes(config),
    ):
        mistakes += islice(kind, MOST_MISTAKES)
    raise_all(mistakes or _mistakes_together(config), source)
    anchored = _anchored(config, path.resolve().parent)
    raise_all(list(place_mistakes(anchored.scene, anchored.output)), source)
    return anchored


def placed(path: Path, message: str) -> str:
    """Return a message with file and line number before each line that begins with a key, as "scene.masks: …".

    Lines are parted by a line break and two spaces. A line whose key does not stand in the file `path` stays as it is.

    Raises:
        ConfigError: the file cannot be read, or is no YAML.
    """
    return "\n  ".join(map(YamlSource.read(path).placed, message.split("\n  ")))


def to_yaml(section: Section) -> str:
    """Return a config, or one section of it, as YAML text; values that may be passwords are hidden."""
    return dump(section.model_dump(mode="json"))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the YAML, by which editors check and complete a config."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def parse_changes(assignments: Iterable[str]) -> dict[str, Any]:
    """Return the settings of --set options by full name; the value of `training.init_scale=0.3` is read as YAML.

    Raises:
        ConfigError: an assignment has no "=" or no key, or its value is no YAML.
    """
    changes = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            hint = "For example --set training.init_scale=0.3"
            raise ConfigError(f"--set {assignment}: should have the form KEY=VALUE", hint)
        changes[key.strip()] = parse_value(text)
    return changes


def _words(task: TaskId, arguments: object) -> tuple[str, ...]:
    """Return the extra words for the command of an external trainer.

    Raises:
        InvalidSettings: `arguments` is no list of words.
    """
    if isinstance(arguments, list | tuple) and all(isinstance(word, str) for word in arguments):
        return tuple(arguments)
    message = f"{arguments!r:.100}: should be a list of words, as [--downscale, 2]"
    raise InvalidSettings(f"settings of {task}: arguments: {message}", "", [(("arguments",), message)])


def _rung_mistakes(config: Config) -> Iterator[Mistake]:
    with contextlib.suppress(ConfigError):  # of settings, listed already
        yield from check_rungs(config.retry.ladders, config.unswept({}).settings(), config.unswept)


def _mistakes_together(config: Config) -> list[Mistake]:
    """Return the mistakes of settings that contradict each other, of the batch and of patches with overrides."""
    found: list[Mistake] = []
    for place, patch in (((), ""), *((("patches", name), name) for name in config.patches)):
        try:
            config.recipe(patch)
        except InvalidSettings as error:
            found += [((*place, *keys), message) for keys, message in error.mistakes]
    return found


def _anchored(config: Config, base: Path) -> Config:
    """Make every path of the config absolute, relative ones from the folder of the YAML."""

    def anchor(section: Section) -> Section:
        return section.model_copy(update={key: base / value for key, value in section if isinstance(value, Path)})

    def anchor_value(key: str, value: object) -> object:
        settled = normal(key, value, config.trainers, config.unswept)
        return base / settled if isinstance(settled, Path) else settled

    sections: dict[str, Any] = {key: anchor(value) for key, value in config if isinstance(value, Section)}
    scenes = tuple(base / place for place in config.scene.scenes)
    sections["scene"] = sections["scene"].model_copy(update={"scenes": scenes})
    sections["patches"] = {
        name: own.model_copy(update={"evaluation": anchor(own.evaluation)}) for name, own in config.patches.items()
    }
    sections["trainers"] = {name: anchor(program) for name, program in config.trainers.items()}
    sections["sweep"] = config.sweep.with_values(anchor_value)
    sections["failures"] = config.failures and base / config.failures
    return config.model_copy(update=sections)


def place_mistakes(scene: Scene, output: Output) -> Iterator[Mistake]:
    """Yield at most one mistake: that the output folder lies where it must not, as inside the scene.

    All paths must be absolute.
    """
    folder, patches = Path(normpath(output.folder)), Path(normpath(scene.patches))
    below = folder.relative_to(patches).parts if folder.is_relative_to(patches) else ()
    reasons = {
        "is the root of the disk": folder == folder.parent,
        **{
            f"lies among the {what} ({place})": place and folder.is_relative_to(normpath(place))
            for what, place in (("photographs", scene.images), ("masks", scene.masks))
        },
        "lies inside the scene": {"images", "masks", "sparse"}.intersection(below),
        "is the folder of the patches (scene.patches)": folder == patches,
        "is the scene itself (scene.source)": scene.source and folder == Path(normpath(scene.source)),
        "the splats would be written among the patches of the scene": folder / "patches" == patches,
    }
    found = (why for why, is_so in reasons.items() if is_so)
    yield from ((KEY, f"{folder}: {why}: choose another output folder") for why in islice(found, 1))


OWN = "x-"
"""Prefix of top-level keys of the YAML that are ignored, for notes and YAML anchors of the user."""


def meant(source: YamlSource, sections: Collection[str]) -> YamlSource:
    """Return a source without top-level keys that begin with `OWN`, and without sections that are left empty.

    `sections` are the names of sections that may be left empty, at the top and below each patch of `patches`.
    """
    tree = {key: value for key, value in source.tree.items() if not str(key).startswith(OWN)}
    tree = _without_empty(tree, sections)
    if isinstance(patches := tree.get("patches"), dict):
        tree["patches"] = {name: {} if own is None else _without_empty(own, sections) for name, own in patches.items()}
    return replace(source, tree=tree)


def _without_empty(tree: object, sections: Collection[str]) -> Any:
    return (
        {key: value for key, value in tree.items() if value is not None or key not in sections}
        if isinstance(tree, dict)
        else tree
    )
