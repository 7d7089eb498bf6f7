"""Messages about the mistakes in a YAML: all at once, with line, key, and the value or the nearest known name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from splatbatch.config.section import Section
from splatbatch.config.yaml.source import Keys, Mistake, YamlSource, nearest
from splatbatch.errors import ConfigError

AnySection = TypeVar("AnySection", bound=Section)
MOST_MISTAKES = 100
"""Largest number of mistakes of each kind that are listed, since finding the nearest known name of each takes time."""
FEW_KEYS = 4
"""Number of keys up to which a hint lists all keys of a section: for `include`, `exclude` would be a wrong guess."""
QUOTE_CHARS = 200
SECRET = ("notify", "executor.store")
"""Section and key of the YAML whose values are never shown, since they may hold passwords."""
WORDS = {
    "missing": "missing",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be text",
    "tuple_type": "should be a list, as [a, b]",
    "dict_type": "should be a mapping, as {{key: value}}",
    "model_type": "should be a mapping, as {{key: value}}",
    "too_short": "should not be empty",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
}
"""Messages by pydantic's type of error; other types keep pydantic's message."""


_AMOUNT = re.compile(r"([-+]?[0-9][0-9 ,_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?) ?([a-zA-Z%]*)")
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}([ ,_][0-9]{3})+")
_TIME = re.compile(r"0?([0-9]+):([0-5][0-9])")
_UNITS = re.compile("d(ays?)?|h(ours?|rs?)?|m(in(ute)?s?)?|s(econds?|ecs?)?")
_FACTORS = {"": 1.0, "k": 1e3, "%": 0.01}
_KEY = re.compile(r"([\w.-]+) ?[:=] ?([^\n]+)")
_TYPES = {
    **dict.fromkeys(("int_parsing", "float_parsing", "int_type", "float_type"), "number"),
    "tuple_type": "list",
    "model_type": "mapping",
    "dict_type": "mapping",
}


def instead(kind: str, given: object) -> str:
    """Return a corrected value to suggest in a message; empty if none is clear.

    Args:
        kind: the expected kind: number, span (of time), list or mapping; empty: unknown, nothing is suggested.
        given: the wrong value, such as 30,000, 0,00016, 10k or 20% for a number, and 4 hours or 07:00 for a span.
    """
    text = str(given).strip()
    if kind == "mapping":
        return f"{found[1]}: {found[2]}" if (found := _KEY.fullmatch(text)) else ""
    if kind == "list":
        return f"[{', '.join(text.replace(',', ' ').split())}]" if re.fullmatch(r"[0-9]+([ ,]+[0-9]+)*", text) else ""
    if kind == "span" and (found := _TIME.fullmatch(text)):
        return f"{found[1]}h{found[2]}m".replace("h00m", "h")
    if not kind or len(text) > 40 or not (found := _AMOUNT.fullmatch(text)):
        return ""
    number, unit = found[1].strip(), found[2].lower()
    is_grouped = _THOUSANDS.fullmatch(number) and not number.startswith("0")
    number = re.sub("[ ,_]", "", number) if is_grouped else number.replace(",", ".")
    try:
        amount = float(number)
    except ValueError:
        return ""
    if unit in _FACTORS:
        return f"{amount * _FACTORS[unit]:.15g}"
    if kind != "span" or not _UNITS.fullmatch(unit):
        return ""
    return f"{amount * 24:.15g}h" if unit[0] == "d" else f"{amount:.15g}{unit[0]}"


class InvalidSettings(ConfigError):
    """The error for wrong settings; its attribute `mistakes` holds each one as place in the YAML and message.

    `message` names all mistakes as text, and `hint` says how to mend them; "": no hint.
    """

    def __init__(self, message: str, hint: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(message, hint)
        self.mistakes = tuple(mistakes)


def validated(model: type[AnySection], source: YamlSource) -> AnySection:
    """Return the tree of a source as a checked section of the class `model`.

    Raises:
        InvalidSettings: the tree has mistakes; the first `MOST_MISTAKES` are listed.
    """
    try:
        return model.model_validate(source.tree)
    except ValidationError as error:
        raise_all([mistake(model, detail, source) for detail in error.errors()[:MOST_MISTAKES]], source)
        raise


def raise_all(mistakes: list[Mistake], source: YamlSource) -> None:
    """Raise all mistakes as one error, in the order of their lines; do nothing if there are none.

    Raises:
        InvalidSettings: `mistakes` is not empty.
    """
    # a value that fits no member of a union is one mistake, although pydantic lists one for each member
    grouped: dict[str, dict[str, None]] = {}
    for keys, message in sorted(mistakes, key=lambda one: source.line(one[0])):
        place = f"line {line}, {spelt(keys)}" if (line := source.line(keys)) else spelt(keys)
        grouped.setdefault(place, {})[message] = None
    lines = [f"{place}{': ' if place else ''}{'; or '.join(messages)}" for place, messages in grouped.items()]
    if lines:
        count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        if len(mistakes) >= MOST_MISTAKES:
            count = f"{len(lines)} mistakes or more"
        raise InvalidSettings(
            "\n  ".join([f"{source.name}: {count}", *lines]),
            "`splatbatch config schema` lists every key; `splatbatch init --example night` writes them all, explained.",
            mistakes,
        )


def spelt(keys: Keys) -> str:
    """Return the full name of a key from its place, as training.cap_max."""
    return ".".join(map(str, keys))


def mistake(model: type[Section], detail: ErrorDetails, source: YamlSource) -> Mistake:
    """Return an error of pydantic as place and message: the value and what it should be, or the nearest known key.

    Values that may be passwords are not quoted.
    """
    # pydantic appends the members of a union to the place; only keys that stand in the YAML are shown
    place = tuple(detail["loc"])
    is_missing = detail["type"] == "missing"
    while len(place) > 1 and place not in source.lines and source.lines and not is_missing:
        place = place[:-1]
    place = place if source.lines else _section_at(model, place)[1]
    if detail["type"] == "extra_forbidden":
        return place, f"unknown key. {_meant(model, place)}"
    if not place:  # several settings together
        return place, detail["msg"].removeprefix("Value error, ")
    shown = "" if _may_be_secret(place) or is_missing else f"{quoted(detail['input'])}: "
    return place, f"{shown}{words_of(detail)}"


def _meant(model: type[Section], place: Keys) -> str:
    """Return a hint for an unknown key: the section that has it, else the nearest key that is known there."""
    key = str(place[-1])
    if right := instead("mapping", key):
        return f"A space is missing after the colon: write {right}"
    sections = {name: _section_in(info.annotation) for name, info in model.model_fields.items()}
    owners = [name for name, section in sections.items() if section and key in section.model_fields]
    if len(owners) == 1 and place[0] != owners[0]:
        return f"This key belongs to the section {owners[0]}: {owners[0]}.{key}."
    known = _section_at(model, place[:-1])[0].model_fields
    return nearest(key, known) if len(known) > FEW_KEYS else f"Known: {', '.join(sorted(known))}."


def _may_be_secret(keys: Keys) -> bool:
    """Return whether the value at a place may hold a password: `SECRET`, or the environment of a trainer."""
    return spelt(keys[:2]).startswith(SECRET) or "env" in keys or (keys[0] == "trainers" and len(keys) < 3)


def quoted(value: object) -> str:
    """Return the `repr` of a value for a message, cut to `QUOTE_CHARS` characters."""
    shown = repr(value)
    return shown if len(shown) <= QUOTE_CHARS else f"{shown[:QUOTE_CHARS]}…"


def words_of(detail: ErrorDetails) -> str:
    """Return what a value should be, as "should be a number", with a corrected value if one is clear."""
    if words := WORDS.get(detail["type"]):
        is_span = detail["type"] == "float_parsing" and "".join(map(str, detail["loc"])).endswith("_s")
        right = instead("span" if is_span else _TYPES.get(detail["type"], ""), detail["input"])
        return words.format_map(detail.get("ctx", {})) + (f": write {right}" if right else "")
    return detail["msg"].removeprefix("Value error, ").removeprefix("Input ")


def _section_at(model: type[Section], place: Keys) -> tuple[type[Section], Keys]:
    """Return the section that a place lies in, and the place without the members of a union that pydantic appends.

    Below a name or an index nothing is left out: what follows may be an index, too.
    """
    is_below = False
    for depth, key in enumerate(place, 1):
        info = model.model_fields.get(str(key))
        section = _section_in(info.annotation) if info else model
        if section is None:
            return model, place if is_below else place[:depth]
        is_below |= info is None
        model = section
    return model, place


def _section_in(annotation: object) -> type[Section] | None:
    """Return the section class in a type annotation, as in a list or mapping of sections; None: there is none."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
