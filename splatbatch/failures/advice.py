"""What to do about a failure: only settings that the program reads, never what has failed already. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from splatbatch.failures.remedies import REMEDIES, Step, for_patch, typed
from splatbatch.failures.settings import MOST_SHOWN, SettingDifference, in_words, is_number, suspects
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


def advised(verdict: Diagnosis, background: PatchContext) -> Diagnosis:
    """Return a diagnosis with what to do: the settings that are suspect, what to type, or where to look.

    No setting is advised that was in force when the patch failed so; a step in words is good for every attempt.
    """
    alike = [one for one in background.past if one.cause == verdict.cause]
    verdict = replace(verdict, advice=_with_steps(verdict, alike, background))
    verdict = _in_the_light_of(verdict, alike, background)
    patch = background.patch
    return replace(verdict, advice=for_patch(verdict.advice, patch)) if patch else verdict


def _with_steps(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    if TRY in verdict.advice:  # what helps in this case stands in its signature
        return verdict.advice
    given = REMEDIES.get(verdict.cause, ())
    steps = [typed(step) for step in _left(given, alike, background)]
    if steps or not given:
        return f"{verdict.advice}{TRY if steps else ''}{'; '.join(steps)}"
    return f"{verdict.advice} {_where_to_look(verdict, alike, background)}"


def _left(steps: Sequence[Step], alike: Sequence[EarlierFailure], background: PatchContext) -> Iterator[Step]:
    """Yield the steps that are left: all in words; of settings those that are read, and have not failed."""
    for step in steps:
        if isinstance(step, str):
            yield step
        elif changes := _worth_trying(step, alike, background):
            yield changes


def _worth_trying(
    step: Mapping[str, Any], alike: Sequence[EarlierFailure], background: PatchContext
) -> Mapping[str, Any]:
    """Return the changes of a step that the program reads; nothing where all of them were in force when it failed."""
    read = {key: value for key, value in step.items() if background.reads is None or key in background.reads}
    tried = [background.settings, *(one.settings for one in alike)]
    if any(all(_is_no_help(key, value, settings) for key, value in read.items()) for settings in tried):
        return {}
    return read


def _is_no_help(key: str, value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether a setting was as advised already; most advice is to lower a number, and it was as low."""
    if key not in settings:
        return False
    current = settings[key]
    if key not in _OF_CHANCE and is_number(value) and is_number(current):
        return bool(current <= value)
    return bool(current == value)


def _where_to_look(verdict: Diagnosis, alike: Sequence[EarlierFailure], background: PatchContext) -> str:
    """Return what is left where no setting helps: the line of the log, then what no setting changes."""
    asked = set(_settings_in(REMEDIES.get(verdict.cause, ())))
    unread = background.reads is not None and asked and not asked & background.reads
    line = next((found[1] for words in verdict.evidence if (found := _LINE.match(words))), "")
    look = f"Look at line {line} of its log" if line else "Look at the end of its log"
    if unread:
        reads = f"{background.trainer or 'The program'} reads {_reads_in_words(background)}; none of that helps here."
        change = f"trainers.{background.trainer}.command, the scene"
        return f"{reads} {look}, then change {change} or the machine.{TRY}{LOG}"
    before = list_some([f"attempt {one.number}" for one in alike])
    tried = f"It failed so in {before}, too, with every setting that may help. " if before else ""
    return f"{tried}{look}, then change the scene or the machine.{TRY}{LOG}"


def _settings_in(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if not isinstance(step, str):
            yield from step


def _reads_in_words(background: PatchContext) -> str:
    """Return the settings of a training that a program reads."""
    read = (key for key in sorted(background.reads or ()) if key.startswith(("training.", "setting.")))
    return list_some((key for key in read if key != "training.trainer"), MOST_SHOWN) or "no setting"


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
        f"The first suspect is what is set here: {in_words(first)}. Take it back in the YAML{OR_TRY}{typed(back)}"
        f"{IF_NOT}{verdict.advice}"
    )
    return replace(verdict, evidence=evidence, advice=advice)
