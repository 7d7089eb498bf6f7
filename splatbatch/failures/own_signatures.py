"""Signatures that a site adds for programs of its own: `failures:` in the YAML names a file like signatures.toml.

Whatever is wrong with the file is said at once. Its regular expressions may be of any kind: each line that they are
meant for is looked for when the file is read, within a time limit, as everywhere else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from splatbatch.config.section import Section
from splatbatch.config.yaml.mistakes import InvalidSettings, validated
from splatbatch.config.yaml.source import YamlSource, nearest
from splatbatch.errors import ConfigError
from splatbatch.failures.allocations import JUDGES
from splatbatch.failures.signatures import GROUP, Scope, Signature, Strength, advice_of_causes, signatures_of, words_of
from splatbatch.failures.words import lower
from splatbatch.files import read_regular
from splatbatch.supervisor.external import TooSlow, time_limit

MOST_BYTES, MOST_CHARS = 1 << 18, 1000
HINT = "Each [[signature]] there has cause, action, patterns with the lines they are meant for, and advice."


def _compiled(pattern: str) -> str:
    """Return a regular expression that can be looked for in a line."""
    if r"\n" in pattern or "\n" in pattern:
        raise ValueError("is looked for in one line, which has no end in it: leave the line break out")
    try:
        for part in words_of([pattern], {}).patterns if not GROUP.fullmatch(pattern) else ():
            re.compile(part)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return pattern


def _with_lines(given: tuple[str, ...]) -> tuple[str, ...]:
    if len(given) < 2:
        raise ValueError("should be a regular expression, and lines from logs that it is meant for")
    _compiled(given[0])
    return given


def _some(given: Sequence[Any]) -> Sequence[Any]:
    if not given:
        raise ValueError("should not be empty")
    return given


def _cause(given: str) -> str:
    if not re.fullmatch("[a-z][a-z0-9_]*", given):
        raise ValueError("should be a name in small letters, as licence_refused")
    return given


Pattern = Annotated[str, Field(min_length=1, max_length=MOST_CHARS), AfterValidator(_compiled)]
Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARS)]
Lines = Annotated[tuple[Text, ...], AfterValidator(_with_lines)]
Action = Literal["retry", "degrade", "fail"]


class SignatureEntry(Section):
    """One signature as it is written."""

    cause: Annotated[str, AfterValidator(_cause)]
    action: Action
    advice: Text | None = None
    patterns: Annotated[tuple[Lines, ...], AfterValidator(_some)]
    also: tuple[Pattern, ...] = ()
    unless: tuple[Pattern, ...] = ()
    judge: Literal[tuple(JUDGES)] | None = None  # type: ignore[valid-type]
    midrun: Action | None = None
    watched: Action | None = None
    strength: Strength = "strong"
    scope: Scope = "exception"
    lasting: bool = False

    @model_validator(mode="after")
    def _says_what_to_do(self) -> SignatureEntry:
        if self.advice is None and self.cause not in advice_of_causes():
            raise ValueError(f"{self.cause} is a cause of your own: say in `advice` what to do")
        return self


class SignatureFile(Section):
    """A file of signatures as it is written."""

    words: dict[str, Annotated[tuple[Pattern, ...], AfterValidator(_some)]] = {}
    signature: Annotated[tuple[SignatureEntry, ...], AfterValidator(_some)]

    @model_validator(mode="after")
    def _knows_its_groups(self) -> SignatureFile:
        named = (one for entry in self.signature for one in (*(lines[0] for lines in entry.patterns), *entry.also))
        for one in named:
            if (group := GROUP.fullmatch(one)) and group[1] not in self.words:
                raise ValueError(f"{one}: no such group under [words]. {nearest(group[1], self.words)}")
        return self


@cache
def own(path: Path | None) -> tuple[Signature, ...]:
    """Return the signatures of a site, as they were when they were first asked for; none without a file.

    Raises:
        ConfigError: the file cannot be read, or is none of signatures: its mistakes, each with key, value and remedy.
    """
    if path is None:
        return ()
    try:
        tree = tomllib.loads(read_regular(path, MOST_BYTES).decode())
        entries = validated(SignatureFile, YamlSource(str(path), tree)).signature
    except OSError as error:
        message = f"failures: {path}: cannot be read ({error.strerror})"
        raise ConfigError(message, "Name a TOML of signatures.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"failures: {path}: is no TOML: {error}", HINT) from error
    except InvalidSettings as error:
        raise ConfigError(f"failures: {error.message}", HINT) from error
    if vain := [words for at, entry in enumerate(entries) for words in _vain(f"signature.{at}.patterns", entry, tree)]:
        raise ConfigError("\n  ".join([f"failures: {path}: {len(vain)} of its patterns find nothing", *vain]), HINT)
    return tuple(replace(one, origin=str(path)) for one in signatures_of(tree, advice_of_causes()))


def _vain(key: str, entry: SignatureEntry, tree: dict[str, Any]) -> Iterator[str]:
    """Say which patterns do not find a line that they are meant for, or not in time."""
    for at, (pattern, *lines) in enumerate(entry.patterns):
        for why in (_why_not_found(pattern, line, tree.get("words", {})) for line in lines):
            if why:
                yield f"{key}.{at}: {pattern!r:.80}: {why}"


def _why_not_found(pattern: str, line: str, groups: dict[str, Sequence[str]]) -> str:
    try:
        with time_limit():
            words = words_of([pattern], groups)
            return "" if any(any(words.places(lower(one))) for one in line.split("\n")) else f"is not in {line!r:.80}"
    except TooSlow:
        return f"takes too long over {line!r:.80}: avoid repetitions of repetitions, as (a+)+"
