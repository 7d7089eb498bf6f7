"""The form of one known failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from splatbatch.failures.words import Words
from splatbatch.outcome import Action

Strength = Literal["strong", "weak", "hint", "last"]
"""weak: often a consequence of what stands before it; hint: words of a family of failures; last: if all else fails."""

Scope = Literal["end", "exception", "optional"]
"""end: says why a process ended, wherever it stands (schedulers, kernels, shells, full disks); exception: beside an
exception its words on a plain line count less; optional: it may concern what one can do without, unless it is an
exception that nothing came after."""


@dataclass(frozen=True)
class Row:
    """One known failure: what it is called, what may help, what to tell the user, and the text it leaves."""

    cause: str
    action: Action
    advice: str
    pattern: Words
    also: Words | None = None
    """This must stand somewhere in what is read too."""
    unless: Words | None = None
    """This must stand nowhere in what is read: it is a look-alike."""
    holds: Callable[[str], bool] | None = None
    """This must be true of the matched line: numbers that a pattern cannot weigh."""
    midrun: Action | None = None
    """The action once steps were made, where the same message is another story."""
    watched: Action | None = None
    """The action for an attempt of ours, whose settings and start can be changed; a log alone cannot promise that."""
    strength: Strength = "strong"
    scope: Scope = "exception"
    lasting: bool = False
    """What it says stays true, though the program goes on, says that it is done and exits 0."""
