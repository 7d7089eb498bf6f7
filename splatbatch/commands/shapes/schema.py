"""`schema`: the JSON Schema of what a command prints with --json; docs/json holds them all."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from splatbatch.errors import ConfigError

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's output.

    Raises:
        ConfigError: it prints no JSON.
    """
    from splatbatch.commands.shapes.shapes import SHAPES

    if command == "config show":
        from splatbatch.config import json_schema

        return json_schema()
    if command not in SHAPES:
        known = ", ".join(sorted([*SHAPES, "config show"]))
        raise ConfigError(f"schema {command}: no such schema", f"There are: {known}.")
    schema = TypeAdapter(SHAPES[command]).json_schema(mode="serialization", schema_generator=_Printed)
    return {**schema, "$schema": DIALECT, "title": f"splatbatch {command} --json"}


class _Printed(GenerateJsonSchema):
    """What is printed is whole: a field with a default is there, too."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)
