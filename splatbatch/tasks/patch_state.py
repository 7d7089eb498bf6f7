"""How a task stands: its product is up to date or not, or it is not to be made. Pure: decides on what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatbatch.output.records.result import Result

UNCOMPARED = "file times changed, contents not compared"


@dataclass(frozen=True)
class PatchState:
    """One of the states below, each with its reason and the manifest of the splat that is there, if one is."""

    reason: str
    result: Result | None = None


@dataclass(frozen=True)
class UpToDate(PatchState):
    """The product is what would be made now."""

    reason: str = "trained"
    is_uncompared: bool = False
    """Times of its files have moved, and their contents were not compared."""
    is_outdated: bool = False
    """Sizes or times of its files are not those written down, or none are."""


@dataclass(frozen=True)
class Missing(PatchState):
    """There is no product, or no record of one."""

    reason: str = "not trained yet"


@dataclass(frozen=True)
class Stale(PatchState):
    """The product was made by other settings, or from something else."""


@dataclass(frozen=True)
class Damaged(PatchState):
    """The files of the product are not those that were made."""

    parts: str = ""
    """Which of its files."""


@dataclass(frozen=True)
class RejectedByAudit(PatchState):
    """The audit found errors in the inputs of a task that is due."""


@dataclass(frozen=True)
class GivenUp(PatchState):
    """A task that is due has failed for good: until settings, inputs, program or machine change it is left alone."""

    why_due: str = ""


def assess(product: PatchState, rejection: str = "", given_up: str = "") -> PatchState:
    """Return how a task stands, for plan, train, status, report and metrics alike.

    Args:
        product: how its product stands.
        rejection: why the audit rejects it; empty if it does not.
        given_up: why an earlier run gave it up, if that still holds.
    """
    if isinstance(product, UpToDate):
        return product
    if rejection:
        return RejectedByAudit(rejection, product.result)
    return GivenUp(given_up, product.result, product.reason) if given_up else product


def is_due(state: PatchState, *, force: bool = False, insist: bool = False) -> bool:
    """Return whether a task is to be made.

    Args:
        state: how it stands.
        force: also if it is up to date.
        insist: also if it was given up.
    """
    match state:
        case UpToDate():
            return force
        case RejectedByAudit():
            return False
        case GivenUp():
            return force or insist
        case _:
            return True


STATES = {one.__name__: one for one in (UpToDate, Missing, Stale, Damaged, RejectedByAudit, GivenUp)}


def due(states: Mapping[str, PatchState]) -> tuple[str, ...]:
    """Return the tasks that are to be made."""
    return tuple(name for name, state in states.items() if is_due(state))
