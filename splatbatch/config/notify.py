"""`notify:` who is told. What may hold a password is shown to nobody: not in errors, batch.yaml or the report."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, field_serializer

from splatbatch.config.section import HIDDEN, Section, as_list


def _from_environment(value: Any) -> Any:
    """Expand $VARIABLES; the error names none, since what looks like one may be part of a password."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise ValueError("names an environment variable that is not set (write %24 for a $ of a URL)")
    return expanded


def _as_words(given: Any) -> Any:
    """Take a program's name for a command; a line for a shell is refused without being quoted."""
    if isinstance(given, str) and len(given.split()) > 1:
        raise ValueError("should be a list of words, as [mail, -s, done, me]: no shell reads it")
    return as_list(given)


Secret = Annotated[SecretStr, BeforeValidator(_from_environment), Field(min_length=1)]


class Notify(Section):
    """Who is told when a batch ends or a patch fails for good; that nobody listens fails no batch."""

    command: Annotated[tuple[Secret, ...], BeforeValidator(_as_words)] = ()
    """A command and its arguments, run without a shell; it gets JSON on stdin. $VARIABLES are expanded."""
    urls: Annotated[tuple[Secret, ...], BeforeValidator(as_list)] = ()
    """Apprise URLs (extra `notify`), such as mailto://, ntfy://, slack://; $VARIABLES are expanded."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """A command, or a delivery, that takes longer is ended."""

    @field_serializer("command", "urls", when_used="always")
    def _hidden(self, secrets: tuple[SecretStr, ...]) -> list[str]:
        return [HIDDEN] * len(secrets)
