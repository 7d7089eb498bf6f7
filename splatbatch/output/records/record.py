"""A record: a plain dataclass whose fields are read from JSON as their types say, or are absent.

Reading fails for nothing but a file that a later version wrote.
Plain, since the supervisor reads and writes records, too, and starts in milliseconds.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from splatbatch.fields import mapping, number, text, whole_number
from splatbatch.files import read_record

ABSENT: Final = object()
"""What a reader returns for a value that is nothing of its kind: the field has its default."""
FieldReader = Callable[[Any], Any]
Facts = TypeVar("Facts")


def reads(reader: FieldReader) -> dict[str, Any]:
    """Return metadata of a dataclass's field of which its type alone does not tell what it may hold."""
    return {"reads": reader}


def environment(value: object) -> dict[str, str]:
    """Return the variables of an environment; those that no process could be given are left out."""
    named = {name: text(one) for name, one in mapping(value).items()}
    return {name: one for name, one in named.items() if name and not {"=", "\0"} & set(name) and "\0" not in one}


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is; an empty one for anything else. Not copied: thousands are read at a time."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class TypedRecord:
    """What every record can do; a field that is absent, or nothing of its kind, has its default, or is empty."""

    @classmethod
    def from_record(cls, record: object) -> Self:
        """Return what a JSON object says, whatever it holds."""
        return read_as(cls, record)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return what a file holds; None if there is none, or no JSON object.

        Raises:
            LaterFormatError: a later version wrote it.
        """
        record = read_record(path)
        return None if record is None else cls.from_record(record)

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return object_of(self)


@dataclass(frozen=True)
class KeptRecord(TypedRecord):
    """A record that is written as it was read: what another version, or a stranger, knows of it stays."""

    written: dict[str, Any] = field(default_factory=dict, repr=False, kw_only=True)
    """All of it as it was read."""

    @classmethod
    def from_record(cls, record: object) -> Self:
        """Return what a JSON object says, whatever it holds."""
        found = as_object(record)
        return super().from_record({**found, "written": found})

    def to_record(self) -> dict[str, Any]:
        """Return it as it was read."""
        return self.written


def in_json(value: Any) -> Any:
    """Return a field, or facts, as JSON has it."""
    match value:
        case None | str() | int() | float():
            return value
        case TypedRecord():
            return value.to_record()
        case tuple() | list():
            return [in_json(one) for one in value]
        case dict():
            return {name: in_json(one) for name, one in value.items()}
        case Path():
            return str(value)
    return object_of(value) if is_dataclass(value) else value


def object_of(facts: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object: its fields, and the properties that it names as `told`."""
    names = [*(one.name for one in fields(facts)), *getattr(facts, "told", ())]
    return {name: in_json(getattr(facts, name)) for name in names}


def read_as(kind: Callable[..., Facts], record: object) -> Facts:
    """Return a JSON object as a dataclass, a record or any other; see `TypedRecord`."""
    (readers, blanks), found = _schema(kind), as_object(record)
    known = {**blanks}
    for name, read in readers:
        if name in found and (value := read(found[name])) is not ABSENT:
            known[name] = value
    return kind(**known)


@cache
def _schema(kind: Any) -> tuple[list[tuple[str, FieldReader]], dict[str, Any]]:
    """Return what reads each field, and a blank for each that has no default."""
    hints, every = get_type_hints(kind), fields(kind)
    blanks = {one.name: _blank(hints[one.name]) for one in every if MISSING is one.default is one.default_factory}
    return [(one.name, one.metadata.get("reads") or _reader_of(hints[one.name])) for one in every], blanks


def _blank(hint: Any) -> Any:
    """Return what is empty of a type: "", 0, False, no entry, None where that is allowed."""
    origin = get_origin(hint)
    if origin in _UNIONS:
        return None
    blank_record = partial(read_as, hint, {})
    blank = blank_record if is_dataclass(hint) else origin or hint
    return "" if origin is Literal else blank()


def _reader_of(hint: Any) -> FieldReader:
    """Return what reads a value of a type; of lists and objects, what is nothing of its kind is left out."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _READERS:
        return _READERS[hint]
    if origin in _UNIONS:
        inner, *others = (one for one in arguments if one is not type(None))
        return _kinds_reader((inner, *others)) if others else _optional_reader(_reader_of(inner))
    if origin is Literal:
        return lambda value: value if value in arguments else ABSENT
    if origin in (dict, Mapping):
        of_value = _reader_of(arguments[1])
        return lambda value: _entries(value, of_value) if isinstance(value, dict) else ABSENT
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return _list_reader(origin, _reader_of(arguments[0]))
    if origin is tuple:
        every = tuple(map(_reader_of, arguments))
        return lambda value: _exactly(value, every)
    read = hint.from_record if issubclass(hint, TypedRecord) else partial(read_as, hint)
    return lambda value: read(value) if isinstance(value, dict) else ABSENT


def _optional_reader(of_one: FieldReader) -> FieldReader:
    """Return what reads a value that may be absent: no text and an object that says nothing are as good as none."""
    return lambda value: None if value in ("", {}) or (known := of_one(value)) is ABSENT else known


def _kinds_reader(kinds: tuple[Any, ...]) -> FieldReader:
    """Return what reads an object as the one of several dataclasses whose fields its keys are."""
    of_fields = {frozenset(one.name for one in fields(kind)): kind for kind in kinds}
    return lambda value: read_as(of_fields[key], value) if (key := frozenset(as_object(value))) in of_fields else ABSENT


def _list_reader(origin: type, of_one: FieldReader) -> FieldReader:
    def read(value: Any) -> Any:
        if isinstance(value, str) and of_one is _text:
            return origin((value,))  # a lone text is a list of one
        if not isinstance(value, list | tuple):
            return ABSENT
        return origin(known for one in value if (known := of_one(one)) is not ABSENT)

    return read


def _entries(value: dict[str, Any], of_value: FieldReader) -> dict[str, Any]:
    return {str(name): known for name, one in value.items() if (known := of_value(one)) is not ABSENT}


def _exactly(value: Any, every: tuple[FieldReader, ...]) -> Any:
    if not isinstance(value, list | tuple) or len(value) != len(every):
        return ABSENT
    found = tuple(read(one) for read, one in zip(every, value, strict=True))
    return ABSENT if ABSENT in found else found


def _text(value: Any) -> Any:
    return text(value) if isinstance(value, str | bool | int | float) else ABSENT


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else ABSENT


def _whole(value: Any) -> Any:
    return ABSENT if (known := whole_number(value)) is None else known


def _number(value: Any) -> Any:
    return ABSENT if (known := number(value)) is None else known


def _path(value: Any) -> Any:
    return Path(value) if isinstance(value, str) else ABSENT


_UNIONS = (Union, types.UnionType)
_READERS: dict[Any, FieldReader] = {
    Any: lambda value: value,
    str: _text,
    bool: _flag,
    int: _whole,
    float: _number,
    Path: _path,
}
