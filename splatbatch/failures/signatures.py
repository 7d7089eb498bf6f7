"""Signatures: known failures as data, with the text that each leaves in a log, its action, and the advice to the user.

The shipped ones stand in signatures.toml. `failures:` in the YAML names a user's own file of the same form. That file
is checked when it is read: each pattern must match its example lines within a time limit.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from splatbatch.config.section import Section
from splatbatch.config.yaml.mistakes import InvalidSettings, validated
from splatbatch.config.yaml.source import YamlSource, nearest
from splatbatch.errors import ConfigError
from splatbatch.failures.allocations import JUDGES
from splatbatch.failures.causes import CAUSES, in_words
from splatbatch.failures.words import Patterns, compile_words, lower, search
from splatbatch.files import read_regular
from splatbatch.supervisor.external import TooSlow, time_limit

SHIPPED = Path(__file__).with_name("signatures.toml")
MOST_BYTES, MOST_CHARS = 1 << 18, 1000
HINT = "Each [[signature]] has cause, action, advice, and patterns with example lines."
BEGINNING = r"^(?:\[rank\d+\]:|\d+: )?\s*"
"""Regular expression that takes the place of a line's begin with spaces (`^`, then any white space) in a pattern.

torchrun and `srun --label` write the rank before each line."""
_GROUP = re.compile(r"\{([a-z_]{2,})\}")
_ERRNO = re.compile(r"\{errno (\d+)\}")
_NUMBER = r"(?:\\[Errno \1\\]|\\(os error \1\\)|\\berrno ?[=:] ?\1\\b|\\bcode: \1\\b)"
"""What `{errno 28}` in a pattern becomes: the forms in which Python, Rust and C++ write an error number.

The message beside it is in the language of the machine.
"""

Action = Literal["retry", "degrade", "fail"]
Strength = Literal["strong", "weak", "hint", "last"]
"""How much a match proves. strong: the usual; weak: the line is often a consequence of an earlier failure; hint: the
words belong to a whole family of failures; last: nearly any other match wins."""
Scope = Literal["end", "exception", "optional", "echo"]
"""Subject of a match. end: why a process ended, wherever the line stands (schedulers, kernels, shells, full disks).
exception: a failure that an exception states best, so a plain line counts less. optional: something the program may do
without, unless the line belongs to the final exception. echo: perhaps the failure of another process, whose own log
tells more."""


def _pattern(given: str) -> str:
    """Return a regular expression with `{errno N}` and `^\\s*` written out; the name of a group is left unchanged."""
    if _GROUP.fullmatch(given):
        return given
    pattern = _ERRNO.sub(_NUMBER, given).replace(r"^\s*", BEGINNING)
    try:
        compile_words(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern


def _with_lines(given: tuple[str, ...]) -> tuple[str, ...]:
    if len(given) < 2:
        raise ValueError("should be a regular expression and example lines that it matches")
    return (_pattern(given[0]), *given[1:])


def _cause(given: str) -> str:
    if not re.fullmatch("[a-z][a-z0-9_]*", given):
        raise ValueError("should be a name in small letters, such as licence_refused")
    return given


Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARS)]
Pattern = Annotated[Text, AfterValidator(_pattern)]
Lines = Annotated[tuple[Text, ...], AfterValidator(_with_lines)]


class Signature(Section):
    """One known failure: the patterns that it leaves in a log, its cause, the action, and the advice to the user."""

    cause: Annotated[str, AfterValidator(_cause)]
    """Name of the cause in small letters; one that splatbatch does not know needs `advice`."""
    action: Action
    """What happens after the failure: `retry` with the same settings, `degrade` with others, or `fail`, no retry."""
    advice: Text = ""
    """The advice to the user; left out in a file: that of the first shipped signature of the same cause, else that of
    the first in the file, else the title of the cause."""
    patterns: Annotated[tuple[Lines, ...], Field(min_length=1)]
    """Regular expressions, one of which must match a line, each followed by example lines that it must match."""
    also: tuple[Pattern, ...] = ()
    """Regular expressions, one of which must also match somewhere in the searched part of the log; (): no such
    condition."""
    unless: tuple[Pattern, ...] = ()
    """Regular expressions of similar failures: the signature does not match if one of them does. (): no such
    condition."""
    judge: Literal[tuple(JUDGES)] | None = None  # type: ignore[valid-type]
    """Name of the test in `allocations.py` that the matched line must pass, since patterns cannot compare numbers;
    None: none."""
    midrun: Action | None = None
    """The action after the first training step; None: `action`."""
    watched: Action | None = None
    """The action for an attempt of a batch whose splat was checked, as its settings can be changed; it wins over
    `midrun` and `action`. None: those."""
    strength: Strength = "strong"
    scope: Scope = "exception"
    lasting: bool = False
    """Whether the failure stays true although the program goes on, says that it is done and exits with 0."""
    origin: str = ""
    """Path of the user's file with this signature; empty: the signature is a shipped one."""

    @model_validator(mode="after")
    def _says_what_to_do(self) -> Signature:
        if not self.advice and self.cause not in CAUSES:
            raise ValueError(f"{self.cause} is not a known cause: say in `advice` what to do")
        return self

    @property
    def pattern(self) -> Patterns:
        """The regular expressions of `patterns`, without their example lines."""
        return tuple(pattern for pattern, *_ in self.patterns)


class SignatureFile(Section):
    """A file of signatures as it is written, with groups of patterns not yet replaced by their members."""

    words: dict[str, Annotated[tuple[Pattern, ...], Field(min_length=1)]] = {}
    """Groups of regular expressions by name; a signature refers to a group as `{name}`."""
    signature: Annotated[tuple[Signature, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _knows_its_groups(self) -> SignatureFile:
        for entry in self.signature:
            for one in (*entry.pattern, *entry.also, *entry.unless):
                if (group := _GROUP.fullmatch(one)) and group[1] not in self.words:
                    raise ValueError(f"{one}: no such group under [words]. {nearest(group[1], self.words)}")
        return self

    def members(self, patterns: Iterable[str]) -> Patterns:
        """Return regular expressions with each `{name}` replaced by the members of that group; others stay."""
        return tuple(one for each in patterns for one in self.words.get(each.strip("{}"), (each,)))

    def signatures(self, advice: Mapping[str, str], origin: str = "") -> Iterator[Signature]:
        """Yield the signatures of the file, in its order, with groups and missing advice filled in.

        Without any advice on its cause, a signature gets the title of the cause as advice.

        Args:
            advice: advice by cause; it wins over that of other signatures in the file, for a signature without its own.
            origin: the path of a user's own file; empty for the shipped one.
        """
        said = {one.cause: one.advice for one in reversed(self.signature) if one.advice} | dict(advice)
        for one in self.signature:
            changes = {
                "advice": one.advice or said.get(one.cause) or f"{in_words(one.cause)}.",
                "patterns": tuple(
                    (each, *lines) for pattern, *lines in one.patterns for each in self.members([pattern])
                ),
                "also": self.members(one.also),
                "unless": self.members(one.unless),
                "origin": origin,
            }
            yield one.model_copy(update=changes)


@cache
def shipped_signatures() -> tuple[Signature, ...]:
    """Return the signatures of signatures.toml in its order; of two matches with equal weights the first wins."""
    return tuple(_read(SHIPPED).signatures({}))


@cache
def site_signatures(path: Path | None) -> tuple[Signature, ...]:
    """Return the signatures of a user's own file; () if `path` is None. A valid file is read once per process.

    Raises:
        ConfigError: the file cannot be read or is not valid; the message lists mistakes with key, value and remedy.
    """
    if path is None:
        return ()
    try:
        file = _read(path)
    except OSError as error:
        message = f"failures: {path}: cannot be read ({error.strerror})"
        raise ConfigError(message, "Name a TOML file of signatures.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"failures: {path}: is not TOML: {error}", HINT) from error
    except InvalidSettings as error:
        raise ConfigError(f"failures: {error.message}", HINT) from error
    if vain := list(_vain(file)):
        raise ConfigError(
            "\n  ".join([f"failures: {path}: {len(vain)} of its patterns do not match their example lines", *vain]),
            HINT,
        )
    known = {one.cause: one.advice for one in reversed(shipped_signatures())}
    return tuple(file.signatures(known, str(path)))


def _read(path: Path) -> SignatureFile:
    tree = tomllib.loads(read_regular(path, MOST_BYTES).decode())
    return validated(SignatureFile, YamlSource(str(path), tree))


def _vain(file: SignatureFile) -> Iterator[str]:
    """Yield a message for each pattern that does not match one of its example lines, or not within the time limit."""
    for number, entry in enumerate(file.signature):
        for at, (pattern, *lines) in enumerate(entry.patterns):
            for line in lines:
                if why := _why_not_found(file.members([pattern]), line):
                    yield f"signature.{number}.patterns.{at}: {pattern!r:.80}: {why}"


def _why_not_found(patterns: Patterns, line: str) -> str:
    if any(r"\n" in pattern or "\n" in pattern for pattern in patterns):
        return "a pattern is matched within one line: remove its line break"
    try:
        with time_limit():
            is_there = any(search(patterns, lower(one)) for one in line.split("\n"))
            return "" if is_there else f"does not match {line!r:.80}"
    except TooSlow:
        return f"takes too long on {line!r:.80}: avoid nested repetitions such as (a+)+"
