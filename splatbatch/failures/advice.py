"""What to do about a failure: only settings that the program reads, never what has failed already. Pure."""

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
"""Before what to type, in advice."""
OR_TRY, IF_NOT = ", or try: ", ". If that is not it: "
"""Around what takes the first suspect back: it stands before all else."""
_OF_CHANCE = ("training.seed",)
"""Settings of which a smaller value is no weaker one."""
_LINE = re.compile(r"line (\d+): ")


@dataclass(frozen=True)
class EarlierFailure:
    """An earlier attempt that failed."""

    number: int
    cause: str
    settings: Mapping[str, Any]
    """In force, by their full names."""


@dataclass(frozen=True)
class PatchContext:
    """What is known of a patch besides the attempt that failed."""

    patch: str = ""
    """Its name, for what is to be typed; empty: unknown."""
    trainer: str = ""
    """The name of the program that trains it."""
    reads: frozenset[str] | None = None
    """The full names of the settings that it reads; None: of an unknown program all may be."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """In force, by their full names."""
    differences: Sequence[SettingDifference] = ()
    """What the patch sets differently from its batch."""
    past: Sequence[EarlierFailure] = ()


def with_advice(verdict: Diagnosis, background: PatchContext) -> Diagnosis:
    """Return a diagnosis with what to do: the settings that are suspect, what to type, or where to look.

    No setting is advised that was in force when the patch failed so; a step in words is good for every attempt.
    """
    alike = [one for one in background.past if one.cause == verdict.cause]
    if TRY not in verdict.advice:  # else what helps in this case stands in its signature
        verdict = replace(verdict, advice=_with_steps(verdict, alike, background))
    verdict = _in_the_light_of(verdict, alike, background)
    patch = background.patch
    return replace(verdict, advice=for_patch(verdict.advice, patch)) if patch else verdict


def for_patch(advice: str, patch: str) -> str:
    """Return advice with the name of its patch, as a shell takes it."""
    return re.sub(r"\b(retry|explain) PATCH\b", lambda match: f"{match[1]} {quote(patch)}", advice)


def command_for(step: Step) -> str:
    """Return what to type for a step."""
    if isinstance(step, str):
        return step
    return f"splatbatch retry PATCH {' '.join(f'--set {key}={spelt(value)}' for key, value in step.items())}"


def _with_steps(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    given = cause_of(verdict.cause).steps
    if steps := list(_left(given, alike, background)):
        return f"{verdict.advice}{TRY}{'; '.join(steps)}"
    return f"{verdict.advice} {_where_to_look(verdict, alike, background)}" if given else verdict.advice


def _left(steps: Sequence[Step], alike: Sequence[EarlierFailure], background: PatchContext) -> Iterator[str]:
    """Yield the steps that are left: all in words; of settings those that the program reads, and have not failed."""
    failed = [background.settings, *(one.settings for one in alike)]
    for step in steps:
        if isinstance(step, str):
            yield step
            continue
        read = {key: value for key, value in step.items() if background.reads is None or key in background.reads}
        if not any(all(_was_so(key, value, settings) for key, value in read.items()) for settings in failed):
            yield command_for(read)


def _was_so(key: str, value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether a setting was as advised already; most advice is to lower a number, and it was as low."""
    current = settings.get(key)
    is_amount = key not in _OF_CHANCE and is_number(value) and is_number(current)
    return bool(current <= value if is_amount else current == value)


def _where_to_look(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    """Return what is left where no setting helps: the line of the log, then what no setting changes."""
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
    """Return a diagnosis with what the patch sets differently: as evidence, and as advice where it leads there."""
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
