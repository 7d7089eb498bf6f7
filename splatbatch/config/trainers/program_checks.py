"""Checks of external trainers beyond the types of their values: placeholders, names of trainers and of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import PurePath

from splatbatch.config.rungs import SLOTS, factor_of, no_factor, takes_factor
from splatbatch.config.trainers.programs import (
    ANYWHERE,
    ARGUMENTS,
    IN_WORDS,
    OUR_TRAINER,
    Program,
    names_in,
)
from splatbatch.config.yaml.source import Keys, Mistake, nearest
from splatbatch.fields import mapping
from splatbatch.files import fault_of_name

Found = Iterator[Mistake]
"""Mistakes: places in the YAML, each with a message."""
OF_A_RUNG = ("arguments", "slots", "training.max_steps", "training.seed")
"""Keys that a rung of an external trainer may have beside `setting.NAME`."""


def check_programs(tree: Mapping[str, object], programs: Mapping[str, Program]) -> Found:
    """Yield the mistakes of external trainers in a YAML: in `trainers`, and where patches or `training` name one.

    Args:
        tree: the whole YAML as it was read.
        programs: the external trainers by name; empty if their section has mistakes of its own.
    """
    for name, program in programs.items():
        place = ("trainers", name)
        if name == OUR_TRAINER:
            yield place, f"{name} is splatbatch's own trainer: give this program another name"
        for keys, message in chain(_placeholders(program), _rungs(program), _artifact(program)):
            yield (*place, *keys), message
    known = {OUR_TRAINER, *mapping(tree.get("trainers"))}
    yield from _trainer(("training",), tree, known)
    for patch, overrides in mapping(tree.get("patches")).items():
        yield from _trainer(("patches", patch, "training"), mapping(overrides), known)
        yield from _overrides(patch, mapping(overrides), tree, programs)


def _trainer(place: Keys, above: Mapping[str, object], known: set[str]) -> Found:
    name = mapping(above.get("training")).get("trainer", OUR_TRAINER)
    if isinstance(name, str) and name not in known:
        hint = (
            ""
            if len(known) > 1
            else " Programs stand under `trainers`; `splatbatch doctor --trainers` names files with complete examples."
        )
        yield (*place, "trainer"), f"{name!r}: no such trainer. {nearest(name, known)}{hint}"


def _overrides(
    patch: str, overrides: Mapping[str, object], tree: Mapping[str, object], programs: Mapping[str, Program]
) -> Found:
    default = mapping(tree.get("training")).get("trainer", OUR_TRAINER)
    trainer = str(mapping(overrides.get("training")).get("trainer", default))
    if trainer not in programs and trainer != OUR_TRAINER:
        return
    known = programs[trainer].settings if trainer in programs else {}
    for name in set(mapping(overrides.get("setting"))) - set(known):
        yield (
            ("patches", patch, "setting", name),
            f"the trainer {trainer} has no such setting. {nearest(str(name), known)}",
        )


def _placeholders(program: Program) -> Found:
    settings = [f"setting.{name}" for name in program.settings]
    for keys, template, is_glob in program.templates():
        known = [*(ANYWHERE if is_glob else IN_WORDS), *settings]
        for name in sorted(names_in([template]) - set(known)):
            if keys[0] == "command" and template == ARGUMENTS:
                continue
            braces = "A brace itself is written twice: {{ or }}."
            shown = "" if keys[0] == "env" else f"{template!r}: "
            yield keys, f"{shown}unknown placeholder {{{name}}}. {nearest(name, known)} {braces}"


def _rungs(program: Program) -> Found:
    for ladder, rungs in program.ladders.items():
        for index, rung in enumerate(rungs):
            for key, value in rung.items():
                if message := _why_no_change(program, key, value):
                    yield ("ladders", ladder, index, key), message


def _why_no_change(program: Program, key: str, value: object) -> str:
    """Return the message about one setting of a rung; empty if it is valid."""
    known, reads = [*OF_A_RUNG, *(f"setting.{name}" for name in program.settings)], {*program.reads(), SLOTS}
    if key not in known:
        return f"unknown setting. {nearest(key, known)}"
    if key not in reads:
        return f"the trainer's command does not use this setting. {nearest(key, reads.intersection(known))}"
    if (key == "arguments") != isinstance(value, tuple):
        return f"{value!r}: `arguments` takes a list of words, a setting a single value"
    if key.startswith("setting.") and factor_of(value) is not None:
        current = program.settings[key.removeprefix("setting.")]
        return "" if takes_factor(key, current) else no_factor(key, value, current)
    return ""


def _artifact(program: Program) -> Found:
    artifact, metrics = program.artifact, program.metrics
    if artifact.export and not artifact.files:
        yield (
            ("artifact", "export"),
            "`export` needs artifact.files: list files that the program leaves once it is done",
        )
    if bool(metrics.file) != bool(metrics.keys):
        yield ("metrics",), "`file` and `keys` need each other: `file` names the file, `keys` say where its figures are"
    for keys, glob, is_glob in program.templates():
        if is_glob and glob and fault_of_name(PurePath(glob).as_posix()):
            yield keys, f"{glob!r}: should be a relative path inside {{output}}, without `..`"
