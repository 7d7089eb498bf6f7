"""A record: a plain dataclass whose fields are read from JSON as their types say, or are absent; reading never fails.

Plain, since the supervisor reads and writes records, too, and starts in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, Self, TypeVar, cast

from splatbatch.fields import mapping, number, text, texts, whole

Reader = Callable[[Any], Any]
Kind = TypeVar("Kind", bound="TypedRecord")


def environment(value: object) -> dict[str, str]:
    """Return the variables of an environment; those that no process could be given are left out."""
    named = {name: text(one) for name, one in mapping(value).items()}
    return {name: one for name, one in named.items() if name and not {"=", "\0"} & set(name) and "\0" not in one}


def reads(reader: Reader) -> dict[str, Any]:
    """Return metadata of a dataclass's field that its type alone does not tell how to read."""
    return {"reads": reader}


def maybe(kind: type[TypedRecord]) -> dict[str, Any]:
    """Return metadata of a field that holds another record, or None where there is nothing to read."""
    return reads(lambda value: kind.from_record(value) if mapping(value) else None)


def by_name(kind: type[Kind]) -> Callable[[Any], dict[str, Kind]]:
    """Return what reads records of a kind by their names."""
    return lambda value: {name: kind.from_record(one) for name, one in mapping(value).items()}


def numbers(value: object) -> dict[str, float]:
    """Return numbers by their names; what is none is absent."""
    return {name: known for name, one in mapping(value).items() if (known := number(one)) is not None}


_READERS: Mapping[str, Reader] = {
    "str": text,
    "str | None": lambda value: text(value) or None,
    "bool": lambda value: value is True,
    "int": lambda value: whole(value) or 0,
    "int | None": whole,
    "float | None": number,
    "tuple[str, ...]": texts,
    "dict[str, Any]": mapping,
}
"""By annotation, which is a text in modules that postpone it."""


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is; an empty one for anything else. Not copied: thousands are read at a time."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class TypedRecord:
    """What every record can do; a field that is absent, or nothing of its kind, has its default."""

    @classmethod
    def from_record(cls, record: object) -> Self:
        """Return what a JSON object says, whatever it holds."""
        found, kind = as_object(record), cast("Any", cls)
        return cls(**{name: read(found[name]) for name, read in _readers(kind) if name in found})

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {one.name: in_json(getattr(self, one.name)) for one in fields(self)}


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


@cache
def _readers(kind: Any) -> tuple[tuple[str, Reader], ...]:
    return tuple((one.name, reader_of(one)) for one in fields(kind))


def reader_of(one: Field[Any]) -> Reader:
    """Return what reads a field."""
    return one.metadata.get("reads") or _READERS[str(one.type)]


def in_json(value: Any) -> Any:
    """Return a field as JSON has it."""
    match value:
        case TypedRecord():
            return value.to_record()
        case tuple():
            return [in_json(one) for one in value]
        case dict():
            return {name: in_json(one) for name, one in value.items()}
    return value
