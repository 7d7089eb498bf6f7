"""What every event of a ledger can do: plain values, read without trust, like the records beside them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from splatbatch.fields import text
from splatbatch.store.records.record import TypedRecord, in_json

KINDS: dict[str, type[Event]] = {}
"""By the name in the ledger."""


@dataclass(frozen=True)
class Event(TypedRecord):
    """What has happened.

    A field without a default always stands in the ledger, another if there is something to say.
    """

    name: ClassVar[str] = ""
    t: float | None = field(default=None, kw_only=True)
    """Seconds since 1970; the ledger sets it."""
    generation: int | None = field(default=None, kw_only=True)
    """Of the claim of its task under which it was written: tells what came first, whoever wrote it; None: no claim."""

    def __init_subclass__(cls, event: str) -> None:
        cls.name = event
        KINDS[event] = cls

    def to_record(self) -> dict[str, Any]:
        """Return it as a line of the ledger."""
        said = {one.name: getattr(self, one.name) for one in fields(self) if self._says(one.name)}
        return {
            "t": self.t,
            "event": self.name,
            **{name: in_json(value) for name, value in said.items() if name != "t"},
        }

    def _says(self, name: str) -> bool:
        default = type(self).__dataclass_fields__[name].default
        return default is MISSING or getattr(self, name) != default


def event_of(record: dict[str, Any]) -> Event | None:
    """Return the event of a line; None of a kind that nobody here knows."""
    kind = KINDS.get(text(record.get("event")))
    return kind.from_record(record) if kind else None
