"""What a command prints with --json, held against the schema that is published of it."""

from __future__ import annotations

import json
from typing import Any

from fake_batch import ROOT
from jsonschema import Draft202012Validator

PUBLISHED = ROOT / "docs" / "json"


def checked(command: str, text: str) -> Any:
    """Return what a command printed; it has every field that is published, and no other."""
    record = json.loads(text)
    schema = json.loads((PUBLISHED / f"{command.replace(' ', '-')}.schema.json").read_text())
    Draft202012Validator(closed(schema)).validate(record)
    return record


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no field but those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    own = {name: closed(one) for name, one in schema.items()}
    return {"additionalProperties": False, **own} if isinstance(schema.get("properties"), dict) else own
