"""Known failures as data: what each leaves in a log, what may help and what to tell the user, from signatures.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from splatbatch.failures.allocations import JUDGES
from splatbatch.failures.words import LinePatterns
from splatbatch.outcome import Action

SHIPPED = Path(__file__).with_name("signatures.toml")
Strength = Literal["strong", "weak", "hint", "last"]
"""weak: often a consequence of what stands before it; hint: words of a family of failures; last: if all else fails."""

Scope = Literal["end", "exception", "optional", "echo"]
"""end: says why a process ended, wherever it stands (schedulers, kernels, shells, full disks); exception: beside an
exception its words on a plain line count less; optional: it may concern what one can do without, unless it is an
exception that nothing came after; echo: it may tell of the failure of another process, which knows better."""
GROUP = re.compile(r"\{([a-z_]{2,})\}")
BEGINNING = r"^(?:\[rank\d+\]:)?\s*"
"""Of a line: torchrun writes the rank before it."""
_ERRNO = re.compile(r"\{errno (\d+)\}")


@dataclass(frozen=True)
class Signature:
    """One known failure: what it is called, what may help, what to tell the user, and the text it leaves."""

    cause: str
    action: Action
    advice: str
    pattern: LinePatterns
    examples: tuple[tuple[str, ...], ...]
    """For each regular expression, or group of them, lines that it is meant for."""
    also: LinePatterns | None = None
    """This must stand somewhere in what is read too."""
    unless: LinePatterns | None = None
    """This must stand nowhere in what is read: it is a look-alike."""
    judge: Callable[[str], bool] | None = None
    """This must be true of the matched line: numbers that a pattern cannot weigh."""
    midrun: Action | None = None
    """The action once steps were made, where the same message is another story."""
    watched: Action | None = None
    """The action for an attempt of ours, whose settings and start can be changed; a log alone cannot promise that."""
    strength: Strength = "strong"
    scope: Scope = "exception"
    lasting: bool = False
    """What it says stays true, though the program goes on, says that it is done and exits 0."""
    origin: str = ""
    """The file of a site that has it; empty: it came with the program."""


@cache
def shipped() -> tuple[Signature, ...]:
    """Return all known failures; of those that count alike the first wins."""
    return signatures_of(tomllib.loads(SHIPPED.read_text(encoding="utf-8")), {})


def advice_of_causes() -> dict[str, str]:
    """Return what to tell the user for each cause where its signature says nothing of its own."""
    return {one.cause: one.advice for one in reversed(shipped())}


def signatures_of(tree: Mapping[str, Any], advice: dict[str, str]) -> tuple[Signature, ...]:
    """Return the signatures of a file that has been read.

    Args:
        tree: of the file.
        advice: for causes of which the file says nothing.
    """
    groups, found = tree.get("words", {}), list[Signature]()
    for entry in tree["signature"]:
        told = entry.get("advice") or advice[entry["cause"]]
        advice.setdefault(entry["cause"], told)
        patterns = entry["patterns"]
        given: dict[str, Any] = {
            "advice": told,
            **{key: entry[key] for key in entry if key not in {"patterns", "also", "unless", "judge"}},
            **{key: words_of(entry[key], groups) for key in ("also", "unless") if key in entry},
            "pattern": words_of([pattern for pattern, *_ in patterns], groups),
            "examples": tuple(tuple(lines) for _, *lines in patterns),
            "judge": JUDGES[entry["judge"]] if "judge" in entry else None,
        }
        found.append(Signature(**given))
    return tuple(found)


def words_of(patterns: Sequence[str], groups: Mapping[str, Sequence[str]]) -> LinePatterns:
    """Return patterns; "{name}" stands for those of a group, "{errno 28}" for an error that a system call returned."""
    every = (one for each in patterns for one in _members(each, groups))
    return LinePatterns(*(_ERRNO.sub(_of_errno, one).replace(r"^\s*", BEGINNING) for one in every))


def _of_errno(asked: re.Match[str]) -> str:
    """Return how Python, Rust and C++ write the number of an error; its message has the language of the machine."""
    number = asked[1]
    return rf"(?:\[Errno {number}\]|\(os error {number}\)|\berrno ?[=:] ?{number}\b|\bcode: {number}\b)"


def _members(pattern: str, groups: Mapping[str, Sequence[str]]) -> Sequence[str]:
    group = GROUP.fullmatch(pattern)
    return groups[group[1]] if group else (pattern,)
