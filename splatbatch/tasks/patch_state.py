"""The state of a task (up to date, missing, stale, damaged, rejected, given up), and whether it is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatbatch.output.records.result import Result

UNCOMPARED = "file times changed, contents not compared"
"""Note on a product that counts as up to date by size, although times differ."""


@dataclass(frozen=True)
class PatchState:
    """Base of the states below, with the reason, and the manifest (result.json) of the present splat.

    `result` is None without a splat or a readable manifest, or if the product is no splat.
    """

    reason: str
    result: Result | None = None


@dataclass(frozen=True)
class UpToDate(PatchState):
    """State: the product was made from the settings and inputs of now."""

    reason: str = "trained"
    is_uncompared: bool = False
    """Whether files have other times than recorded and their contents were not compared."""
    is_outdated: bool = False
    """Whether sizes or times in the manifest differ from the files or are missing there, or damage.json is out of date.

    `upkeep` then updates them.
    """


@dataclass(frozen=True)
class Missing(PatchState):
    """State: there is no product, or no record of it."""

    reason: str = "not trained yet"


@dataclass(frozen=True)
class Stale(PatchState):
    """State: the product was made by other settings, or from other inputs, than those of now."""


@dataclass(frozen=True)
class Damaged(PatchState):
    """State: files of the product have changed on disk since it was made, or are missing."""

    parts: str = ""
    """Names of the changed or missing files, or words on an incomplete model; empty: unknown."""


@dataclass(frozen=True)
class RejectedByAudit(PatchState):
    """State: the audit found errors in the inputs of a task without an up-to-date product; the task is not due."""


@dataclass(frozen=True)
class GivenUp(PatchState):
    """State: a task without an up-to-date product has failed for good.

    `train` does not try the task again until its settings, inputs, program or machine change; `retry` does.
    """

    why_due: str = ""
    """Reason why the product is not up to date, as "not trained yet"; empty: unknown."""


def assess(product: PatchState, rejection: str = "", given_up: str = "") -> PatchState:
    """Return the state of a task; an up-to-date product counts first, then a rejection, then giving up.

    Args:
        product: state of the task's product.
        rejection: reason why the audit rejects the task; empty: it is not rejected.
        given_up: reason why an earlier run gave the task up, if that still holds; else empty.
    """
    if isinstance(product, UpToDate):
        return product
    if rejection:
        return RejectedByAudit(rejection, product.result)
    return GivenUp(given_up, product.result, product.reason) if given_up else product


def is_due(state: PatchState, *, force: bool = False, insist: bool = False) -> bool:
    """Return whether a task is due: its product is missing, stale or damaged. A rejected task is never due.

    Args:
        state: state of the task.
        force: count also a task that is up to date, or was given up.
        insist: count also a task that was given up.
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
"""Classes of the states, by their names."""


def due(states: Mapping[str, PatchState]) -> tuple[str, ...]:
    """Return the names of the due tasks, in the order of `states`; a given-up task is not due."""
    return tuple(name for name, state in states.items() if is_due(state))
