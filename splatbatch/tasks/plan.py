"""Which patches have to be trained and which need not. Pure: what lies there in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from splatbatch.output.records.result import Result
from splatbatch.tasks.product import Damaged, Missing, Stale, State, UpToDate

NOT_TRAINED = "not trained yet"
PLACES = (("evaluation", "holdout_list"), ("program", "working_folder"))
"""Settings that say where something lies: a copy of it elsewhere is the same."""
UNCOMPARED = "file times changed, contents not compared"


@dataclass(frozen=True)
class PatchState:
    """In what condition a task and its product are."""

    state: State = field(default_factory=Missing)
    """Of the product."""
    result: Result | None = None
    """The manifest of a splat; None if there is none, or the product is no splat."""
    given_up: str = ""
    """Why an earlier run gave the patch up, if its settings, inputs and machine are still the same."""
    uncompared: bool = False
    """Times of its files have moved, and what is in them was not compared: nobody wanted to read that much."""
    outdated: bool = False
    """Sizes or times of its files are not those written down, or none are."""

    @property
    def why_stale(self) -> str:
        """Why what lies there is no fresh product; empty if it is one."""
        match self.state:
            case Missing():
                return NOT_TRAINED
            case Stale(why=why):
                return why
            case Damaged(part=part, how=how):
                return f"{part} {how}" if how else f"{part}: damaged on disk"
            case UpToDate():
                return ""


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


@dataclass(frozen=True)
class GivenUp:
    """It has failed for good: it is left alone until its settings, inputs, program or machine change."""

    patch: str
    reason: str


Decision = Train | Skip | Refuse | GivenUp


def decide(
    patch: str, condition: PatchState, refusal: str = "", *, force: bool = False, insist: bool = False
) -> Decision:
    """Decide on one patch, for plan, train, status, report and metrics alike.

    Args:
        patch: its name.
        condition: of it and its splat.
        refusal: why the audit refuses it; empty if it does not.
        force: train it even if it is fresh.
        insist: train it even if it was given up.
    """
    stale = condition.why_stale
    if not stale and not force:
        return Skip(patch, f"trained, {UNCOMPARED}" if condition.uncompared else "trained")
    if refusal:
        return Refuse(patch, refusal)
    if condition.given_up and not (force or insist):
        return GivenUp(patch, condition.given_up)
    return Train(patch, stale or "forced")


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs between two trees of settings, as "training.max_steps 7000 -> 1000".

    A setting that one of them does not know yet, or no longer, counts as its default: a new version alone changes
    nothing.
    """
    before, after, standard = leaves(then), leaves(now), leaves(defaults)
    pairs = {key: (before.get(key, standard.get(key)), after.get(key, standard.get(key))) for key in before | after}
    known = {key: _named(key, pair) for key, pair in pairs.items() if key in after}
    return tuple(f"{key} {_shown(old)} -> {_shown(new)}" for key, (old, new) in sorted(known.items()) if old != new)


def _named(key: str, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return two values; of places their names alone."""
    if tuple(key.split(".")) not in PLACES:
        return pair
    old, new = (value and PurePath(str(value)).name for value in pair)
    return old, new


def leaves(tree: Any, above: str = "") -> dict[str, Any]:
    """Return what a tree of settings holds by its full name, as "training.max_steps"."""
    if not isinstance(tree, Mapping) or (above and not tree):
        return {above: tree}
    return {
        key: value for name, one in tree.items() for key, value in leaves(one, f"{above}.{name}".strip(".")).items()
    }


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def to_train(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Return the patches to be trained."""
    return tuple(decision.patch for decision in decisions if isinstance(decision, Train))


def fresh(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Return the patches that are trained and fresh."""
    return tuple(decision.patch for decision in decisions if isinstance(decision, Skip))


def given_up(decisions: Sequence[Decision]) -> Mapping[str, str]:
    """Return the patches that are left alone since they have failed for good, with the reason for each."""
    return {decision.patch: decision.reason for decision in decisions if isinstance(decision, GivenUp)}
