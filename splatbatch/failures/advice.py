"""The advice that the user reads, joined from the advice of a signature or exit and the steps of its cause. Pure.

Suspect settings of the patch come first, then the signature's advice, then " Try: " and the `steps` of the cause. These
steps are left out if the signature's advice has a " Try: " of its own. Settings among the steps are left out if the
trainer does not read them, or if an attempt failed with them by the same cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from splatbatch.failures.causes import Step, cause_of
from splatbatch.failures.settings import MOST_SHOWN, SettingDifference, in_words, is_number, spelt, suspects
from splatbatch.outcome import Diagnosis
from splatbatch.text import list_some

LOG = "splatbatch explain PATCH --log"
TRY = " Try: "
"""Text between the explanation in an advice and the commands to type."""
OR_TRY, IF_NOT = ", or try: ", ". If that is not it: "
"""Texts before and after the command that undoes suspect settings, which stands first in an advice."""
_OF_CHANCE = ("training.seed",)
"""Number settings whose size means nothing: only the very same value counts as tried."""
_LINE = re.compile(r"line (\d+): ")


@dataclass(frozen=True)
class EarlierFailure:
    """An earlier attempt at the same task that failed."""

    number: int
    cause: str
    settings: Mapping[str, Any]
    """The settings in force in that attempt, by full name; {}: unknown."""


@dataclass(frozen=True)
class PatchContext:
    """Facts about the patch of a failed attempt, by which the advice is made to fit; all may be unknown."""

    patch: str = ""
    """The name of the patch, put into commands in place of PATCH; empty: unknown."""
    trainer: str = ""
    """The name of the patch's trainer; empty: unknown."""
    reads: frozenset[str] | None = None
    """The full names of the settings that the trainer reads; None: unknown, so any setting may be suggested."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings in force in the failed attempt, by full name; empty: unknown."""
    differences: Sequence[SettingDifference] = ()
    """Settings in which the patch differs from its batch, or the batch from the defaults; empty: none, or unknown."""
    past: Sequence[EarlierFailure] = ()
    """Earlier attempts at the task that failed, by any cause; empty: none, or unknown."""


def with_advice(verdict: Diagnosis, background: PatchContext) -> Diagnosis:
    """Return a diagnosis whose advice also names suspect settings, and the commands to type or where to look.

    Settings are not suggested if this attempt, or an earlier one with this cause, had them; a smaller number counts,
    too, except of a seed. Steps are left out if the advice has a " Try: " of its own.
    `background` tells about the patch; if its name is known, it takes the place of PATCH.
    """
    alike = [one for one in background.past if one.cause == verdict.cause]
    if TRY not in verdict.advice:  # else what helps in this case stands in its signature
        verdict = replace(verdict, advice=_with_steps(verdict, alike, background))
    verdict = _in_the_light_of(verdict, alike, background)
    patch = background.patch
    return replace(verdict, advice=for_patch(verdict.advice, patch)) if patch else verdict


def for_patch(advice: str, patch: str) -> str:
    """Return advice whose commands (`retry PATCH`, `explain PATCH`) name the patch, quoted for a shell."""
    return re.sub(r"\b(retry|explain) PATCH\b", lambda match: f"{match[1]} {quote(patch)}", advice)


def command_for(step: Step) -> str:
    """Return the text of a step; a mapping of settings becomes a `splatbatch retry PATCH --set …` command."""
    if isinstance(step, str):
        return step
    return f"splatbatch retry PATCH {' '.join(f'--set {key}={spelt(value)}' for key, value in step.items())}"


def _with_steps(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    given = cause_of(verdict.cause).steps
    if steps := list(_left(given, alike, background)):
        return f"{verdict.advice}{TRY}{'; '.join(steps)}"
    return f"{verdict.advice} {_where_to_look(verdict, alike, background)}" if given else verdict.advice


def _left(steps: Sequence[Step], alike: Sequence[EarlierFailure], background: PatchContext) -> Iterator[str]:
    """Yield the steps worth suggesting: all in words, and settings that the trainer reads and no failure had."""
    failed = [background.settings, *(one.settings for one in alike)]
    for step in steps:
        if isinstance(step, str):
            yield step
            continue
        read = {key: value for key, value in step.items() if background.reads is None or key in background.reads}
        if not any(all(_was_so(key, value, settings) for key, value in read.items()) for settings in failed):
            yield command_for(read)


def _was_so(key: str, value: Any, settings: Mapping[str, object]) -> bool:
    """Return whether an attempt had an advised setting already: the same value, or for numbers one at most as large."""
    current = settings.get(key)
    is_amount = key not in _OF_CHANCE and is_number(value) and is_number(current)
    return bool(current <= value if is_amount else current == value)


def _where_to_look(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    """Return the advice where no setting is left to try: look at the log, then change the scene or the machine."""
    asked = {key for step in cause_of(verdict.cause).steps if not isinstance(step, str) for key in step}
    line = next((found[1] for words in verdict.evidence if (found := _LINE.match(words))), "")
    look = f"See line {line} of the log" if line else "See the end of the log"
    if background.reads is not None and not asked & background.reads:
        read = (key for key in sorted(background.reads) if re.match(r"setting\.|training\.(?!trainer$)", key))
        reads = f"{background.trainer or 'the program'} reads only {list_some(read, MOST_SHOWN) or 'its command line'}"
        change = f"trainers.{background.trainer}.command, the scene"
        return f"No setting helps here: {reads}. {look}, then change {change} or the machine.{TRY}{LOG}"
    before = list_some([f"attempt {one.number}" for one in alike])
    tried = f"Failed the same way in {before}: all suggested settings have been tried. " if before else ""
    return f"{tried}{look}, then change the scene or the machine.{TRY}{LOG}"


def _in_the_light_of(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> Diagnosis:
    """Return a diagnosis with the patch's own settings as evidence; suspect ones are named first in its advice."""
    found = background.differences
    if not found:
        return verdict
    evidence = (*verdict.evidence, f"settings: {in_words(found)}")
    first = suspects(found, verdict.cause)
    back = {one.key: one.usual for one in first[:MOST_SHOWN] if one.usual is not None}
    if not first or any(back.items() <= one.settings.items() for one in alike):
        return replace(verdict, evidence=evidence)
    advice = (
        f"These settings may be the cause: {in_words(first)}. Undo them in the YAML{OR_TRY}{command_for(back)}"
        f"{IF_NOT}{verdict.advice}"
    )
    return replace(verdict, evidence=evidence, advice=advice)
