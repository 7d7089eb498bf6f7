"""Base of all records: dataclasses whose fields are read from JSON by their types.

Reading fails only for a file that a later version wrote; an invalid field gets its default. No validation library is
used, since the supervisor reads and writes records, too, and must start in milliseconds.
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
"""Value that a field reader returns for an invalid value: the field then gets its default."""
FieldReader = Callable[[Any], Any]
Facts = TypeVar("Facts")


def reads(reader: FieldReader) -> dict[str, Any]:
    """Return metadata for a dataclass field, by which `reader` reads the field, instead of its type.

    A reader may return `ABSENT`, so that the field gets its default.
    """
    return {"reads": reader}


def environment(value: object) -> dict[str, str]:
    """Return environment variables from a JSON object; those with an invalid name or value are left out.

    Empty for anything but an object. Raises nothing.
    """
    named = {name: text(one) for name, one in mapping(value).items()}
    return {name: one for name, one in named.items() if name and not {"=", "\0"} & set(name) and "\0" not in one}


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object itself, not copied, since thousands are read at a time; an empty dict for anything else."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class TypedRecord:
    """Base class of records, which reads and writes JSON; an absent or invalid field gets its default, or is empty."""

    @classmethod
    def from_record(cls, record: object) -> Self:
        """Return the record of a JSON object; a blank record for anything else. Raises nothing."""
        return read_as(cls, record)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the record in a file; None if there is no readable file, or it is no JSON object.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the file.
        """
        record = read_record(path)
        return None if record is None else cls.from_record(record)

    def to_record(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return object_of(self)


@dataclass(frozen=True)
class KeptRecord(TypedRecord):
    """A record that is written as it was read, so that keys unknown to this version are kept."""

    written: dict[str, Any] = field(default_factory=dict, repr=False, kw_only=True)
    """JSON object that was read, with all its keys."""

    @classmethod
    def from_record(cls, record: object) -> Self:
        """Return the record of a JSON object, which the record keeps as `written`. Raises nothing."""
        found = as_object(record)
        return super().from_record({**found, "written": found})

    def to_record(self) -> dict[str, Any]:
        """Return the JSON object that was read, unchanged."""
        return self.written


def in_json(value: object) -> Any:
    """Return a value as JSON can hold it: records and dataclasses as objects, tuples as lists, paths as text.

    Values of other classes are returned unchanged.
    """
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
    """Return a dataclass as a JSON object: its fields, then the properties that its attribute `told` lists, if any."""
    names = [*(one.name for one in fields(facts)), *getattr(facts, "told", ())]
    return {name: in_json(getattr(facts, name)) for name in names}


def read_as(kind: Callable[..., Facts], record: object) -> Facts:
    """Return a JSON object as an instance of any dataclass, by the rules of `TypedRecord`; blank for another value."""
    (readers, blanks), found = _schema(kind), as_object(record)
    known = {**blanks}
    for name, read in readers:
        if name in found and (value := read(found[name])) is not ABSENT:
            known[name] = value
    return kind(**known)


@cache
def _schema(kind: Any) -> tuple[list[tuple[str, FieldReader]], dict[str, Any]]:
    """Return the reader of each field, and an empty value for each field without a default."""
    hints, every = get_type_hints(kind), fields(kind)
    blanks = {one.name: _blank(hints[one.name]) for one in every if MISSING is one.default is one.default_factory}
    return [(one.name, one.metadata.get("reads") or _reader_of(hints[one.name])) for one in every], blanks


def _blank(hint: Any) -> Any:
    """Return the empty value of a type: None where that is allowed, else "", 0, False, or an empty container."""
    origin = get_origin(hint)
    if origin in _UNIONS:
        return None
    blank_record = partial(read_as, hint, {})
    blank = blank_record if is_dataclass(hint) else origin or hint
    return "" if origin is Literal else blank()


def _reader_of(hint: Any) -> FieldReader:
    """Return the reader for a type; in lists and objects it leaves out invalid entries."""
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
    """Return a reader that gives None for an empty text, an empty object, or an invalid value."""
    return lambda value: None if value in ("", {}) or (known := of_one(value)) is ABSENT else known


def _kinds_reader(kinds: tuple[Any, ...]) -> FieldReader:
    """Return a reader that picks, of several dataclasses, the one whose fields are exactly the object's keys."""
    of_fields = {frozenset(one.name for one in fields(kind)): kind for kind in kinds}
    return lambda value: read_as(of_fields[key], value) if (key := frozenset(as_object(value))) in of_fields else ABSENT


def _list_reader(origin: type, of_one: FieldReader) -> FieldReader:
    def read(value: object) -> object:
        if isinstance(value, str) and of_one is _text:
            return origin((value,))  # a lone text is a list of one
        if not isinstance(value, list | tuple):
            return ABSENT
        return origin(known for one in value if (known := of_one(one)) is not ABSENT)

    return read


def _entries(value: dict[str, Any], of_value: FieldReader) -> dict[str, Any]:
    return {str(name): known for name, one in value.items() if (known := of_value(one)) is not ABSENT}


def _exactly(value: object, every: tuple[FieldReader, ...]) -> object:
    if not isinstance(value, list | tuple) or len(value) != len(every):
        return ABSENT
    found = tuple(read(one) for read, one in zip(every, value, strict=True))
    return ABSENT if ABSENT in found else found


def _text(value: object) -> object:
    return text(value) if isinstance(value, str | bool | int | float) else ABSENT


def _flag(value: object) -> object:
    return value if isinstance(value, bool) else ABSENT


def _whole(value: object) -> object:
    return ABSENT if (known := whole_number(value)) is None else known


def _number(value: object) -> object:
    return ABSENT if (known := number(value)) is None else known


def _path(value: object) -> object:
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
