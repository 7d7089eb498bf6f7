"""From a YAML file to a checked `Config`, or to all its mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from splatbatch.config.program_checks import check_programs
from splatbatch.config.programs import Program
from splatbatch.config.recipe import Evaluation, LearningRates, PatchOverrides, Recipe, Refinement, Training
from splatbatch.config.section import Section
from splatbatch.config.sections import Cooldown, Executor, Limits, Output, Retry, Scene
from splatbatch.config.source import Keys, Source, dump, nearest, parse_value
from splatbatch.errors import ConfigError

DEFAULT_CONFIG = "splat_config.yml"
CONFIG_VARIABLE = "SPLATBATCH_CONFIG"
AnySection = TypeVar("AnySection", bound=Section)
Mistake = tuple[str, str]  # where, what
RECIPE_SECTIONS = ("training", "refinement", "learning_rates", "evaluation")


class Config(Section):
    """The whole configuration of a batch."""

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
    trainers: dict[str, Program] = {}
    """Programs that `training.trainer` can name besides ours."""
    patches: dict[str, PatchOverrides] = {}
    """Overrides by patch name."""

    def recipe(self, patch: str, changes: Mapping[str, Any] | None = None) -> Recipe:
        """Return what trains `patch`: the config, its overrides, then `changes` such as {"training.seed": 1}.

        Raises:
            ConfigError: a change names no setting, or its value does not fit.
        """
        changed, overrides = dict(changes or {}), self.patches.get(patch, PatchOverrides())
        arguments = tuple(changed.pop("arguments", ()))
        tree = {name: getattr(self, name).model_dump() | getattr(overrides, name) for name in RECIPE_SECTIONS}
        program = self.trainers.get(str(changed.get("training.trainer", tree["training"]["trainer"])))
        tree["setting"] = program.settings | overrides.setting if program else {}
        for key, value in changed.items():
            section_name, _, setting = key.partition(".")
            if setting not in tree.get(section_name, {}):
                known = [f"{name}.{setting}" for name, section in tree.items() for setting in section]
                raise ConfigError(f"{key}: unknown setting", nearest(key, known))
            tree[section_name][setting] = value
        settings = tree.pop("setting")
        told = program.called_with(arguments).model_dump() | {"settings": settings} if program else None
        return _validated(Recipe, Source(f"settings of {patch}", {**tree, "program": told}))

    def retry_of(self, patch: str, changes: Mapping[str, Any]) -> Retry:
        """Return when and with what a patch is tried again: a program of somebody else climbs its own ladders."""
        program = self.recipe(patch, changes).program
        return self.retry.model_copy(update={"ladders": program.ladders}) if program else self.retry


def find_config(path: Path | None) -> Path:
    """Return the config a command uses: the given one, else $SPLATBATCH_CONFIG, else splat_config.yml here.

    Raises:
        ConfigError: there is none.
    """
    chosen = path or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)
    if not chosen.is_file():
        raise ConfigError(
            f"{chosen}: no such configuration file",
            "Write one with `splatbatch init DIR`, or name yours with --config FILE.",
        )
    return chosen


def load(path: Path) -> Config:
    """Read a config; paths in it are relative to the file.

    Raises:
        ConfigError: all mistakes of the file at once, each with line, key, value and remedy.
    """
    source = Source.read(path)
    mistakes: list[Mistake] = []
    config = Config()
    try:
        config = Config.model_validate(source.tree)
    except ValidationError as error:
        mistakes += [_mistake(Config, detail, source) for detail in error.errors()]
    mistakes += _override_mistakes(source)
    mistakes += [_described(keys, message, source) for keys, message in check_programs(source.tree, config.trainers)]
    _raise_all(mistakes, source)
    return _anchored(config, path.resolve().parent)


def to_yaml(section: Section) -> str:
    """Return a config, or a part of it, as YAML."""
    return dump(section.model_dump(mode="json"))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the YAML, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def parse_change(assignment: str) -> tuple[str, Any]:
    """Split `training.init_scale=0.3`, as given to --set, into key and value (read as YAML).

    Raises:
        ConfigError: there is no "=", or the value is no YAML.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {assignment}: not of the form key=value", "For example --set training.init_scale=0.3")
    return key.strip(), parse_value(text)


def _override_mistakes(source: Source) -> list[Mistake]:
    """Check each patch's overrides against the sections they override, before any patch is trained."""
    mistakes: list[Mistake] = []
    patches = source.tree.get("patches") if isinstance(source.tree, dict) else None
    for patch, overrides in patches.items() if isinstance(patches, dict) else ():
        for name, info in Recipe.model_fields.items():
            given = overrides.get(name) if isinstance(overrides, dict) else None
            section = info.annotation
            if isinstance(given, dict) and isinstance(section, type) and issubclass(section, Section):
                try:
                    section.model_validate(given)
                except ValidationError as error:
                    place = ("patches", patch, name)
                    mistakes += [_mistake(section, detail, source, place) for detail in error.errors()]
    return mistakes


def _validated(model: type[AnySection], source: Source) -> AnySection:
    try:
        return model.model_validate(source.tree)
    except ValidationError as error:
        _raise_all([_mistake(model, detail, source) for detail in error.errors()], source)
        raise


def _raise_all(mistakes: list[Mistake], source: Source) -> None:
    # a value that fits no member of a union is one mistake, although pydantic lists one for each member
    grouped: dict[str, dict[str, None]] = {}
    for place, message in mistakes:
        grouped.setdefault(place, {})[message] = None
    lines = [f"{place}: {'; or '.join(messages)}" for place, messages in grouped.items()]
    if lines:
        count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        raise ConfigError(
            "\n  ".join([f"{source.name}: {count}", *lines]),
            "`splatbatch config schema` lists every key; configs/ holds complete examples.",
        )


def _mistake(model: type[Section], detail: ErrorDetails, source: Source, above: Keys = ()) -> Mistake:
    """Return where a mistake is, by line and key, and what: its value, what it should be, the nearest known name."""
    # pydantic appends the members of a union to the place; only keys that stand in the YAML are shown
    place = tuple(detail["loc"])
    while len(place) > 1 and (*above, *place) not in source.lines and source.lines:
        place = place[:-1]
    key = ".".join(str(part) for part in (*above, *place))
    where = source.where((*above, *place))
    if detail["type"] == "extra_forbidden":
        return f"{where}{key}", f"unknown key. {nearest(str(place[-1]), _known_keys(model, place[:-1]))}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{where}{key}", f"{detail['input']!r}: {message[0].lower()}{message[1:]}"


def _described(keys: Keys, message: str, source: Source) -> Mistake:
    return f"{source.where(keys)}{'.'.join(map(str, keys))}", message


def _known_keys(model: type[Section], place: Keys) -> list[str]:
    """Return the keys known at a place of the YAML."""
    current: type[Section] = model
    for key in place:
        info = current.model_fields.get(str(key))
        annotation = info.annotation if info else PatchOverrides
        current = annotation if isinstance(annotation, type) and issubclass(annotation, Section) else PatchOverrides
    return list(current.model_fields)


def _anchored(config: Config, base: Path) -> Config:
    """Make every path of the config absolute, relative ones from the folder of the YAML."""

    def anchor(section: Section) -> Section:
        return section.model_copy(update={key: base / value for key, value in section if isinstance(value, Path)})

    def anchor_overrides(overrides: PatchOverrides) -> PatchOverrides:
        checked = anchor(Evaluation.model_validate(overrides.evaluation))
        paths = {key: value for key, value in checked if key in overrides.evaluation and isinstance(value, Path)}
        return overrides.model_copy(update={"evaluation": overrides.evaluation | paths})

    sections: dict[str, Any] = {key: anchor(value) for key, value in config if isinstance(value, Section)}
    sections["patches"] = {name: anchor_overrides(overrides) for name, overrides in config.patches.items()}
    sections["trainers"] = {name: anchor(program) for name, program in config.trainers.items()}
    return config.model_copy(update=sections)
