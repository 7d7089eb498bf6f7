"""Which patches have to be trained and which need not. Pure: what lies there in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splatbatch.files import Record
from splatbatch.outcome import Splat, Unfit


@dataclass(frozen=True)
class Fingerprint:
    """What a result depends on; if any of it changes the result is stale."""

    recipe: str
    """Hash of all settings that decide what is computed, before changes by --set or by a rung."""
    inputs: str
    """Hash of the COLMAP model and of names and sizes of its photographs."""


@dataclass(frozen=True)
class Found:
    """What lies in the output folder for a patch."""

    result: Record | None
    splat: Splat | Unfit


@dataclass(frozen=True)
class Train:
    """The patch is to be trained."""

    patch: str
    reason: str


@dataclass(frozen=True)
class Skip:
    """The patch is trained and fresh."""

    patch: str
    reason: str = "trained"


@dataclass(frozen=True)
class Refuse:
    """The patch cannot be trained as it is: the audit found errors."""

    patch: str
    reason: str


Decision = Train | Skip | Refuse


def decide(patch: str, now: Fingerprint, found: Found, refusal: str = "", *, force: bool = False) -> Decision:
    """Decide on one patch.

    Args:
        patch: its name.
        now: what its result would depend on today.
        found: what lies there.
        refusal: why the audit refuses it; empty if it does not.
        force: train it even if it is fresh.
    """
    stale = why_stale(now, found)
    if not stale and not force:
        return Skip(patch)
    if refusal:
        return Refuse(patch, refusal)
    return Train(patch, stale or "forced")


def why_stale(now: Fingerprint, found: Found) -> str:
    """Say why what lies there is no fresh result; empty if it is one."""
    if found.result is None:
        return "not trained yet"
    if isinstance(found.splat, Unfit):
        return f"splat.ply {found.splat.reason}"
    if found.result.get("recipe") != now.recipe:
        return "settings have changed"
    if found.result.get("inputs") != now.inputs:
        return "model or photographs have changed"
    return ""


def to_train(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Return the patches to be trained."""
    return tuple(decision.patch for decision in decisions if isinstance(decision, Train))


def refused(decisions: Sequence[Decision]) -> Mapping[str, str]:
    """Return the refused patches with the reason for each."""
    return {decision.patch: decision.reason for decision in decisions if isinstance(decision, Refuse)}
