"""What is to be trained: every patch decided on, those that need it audited, all in one frame."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import typer

from splatbatch.plain_text import moment, one_line
from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.patches import spell
from splatbatch.store.events import Audited, Refused
from splatbatch.store.ledger import Ledger
from splatbatch.tasks import plan as planning
from splatbatch.tasks.batch import Batch, refusals
from splatbatch.tasks.colors.settle import settle_colors, telling
from splatbatch.tasks.colors.tones import in_words, wants_tones
from splatbatch.tasks.deadline.settle import in_time, write_choice
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.fingerprints.inputs import inputs_of, state_of
from splatbatch.tasks.frame import read_spans, settle
from splatbatch.tasks.task import Task, patches_of

Audits = tuple[tuple[Audit, tuple[Task, ...]], ...]
"""Each with the tasks that it is about."""


@dataclass(frozen=True)
class Wish:
    """How patches are to be trained."""

    verify: bool = True
    """Audit them first."""
    force: bool = False
    """Also those that are fresh."""
    is_retry: bool = False
    """Also those that were given up; what is accepted stays if it is better."""


@dataclass(frozen=True)
class Looked:
    """What was found before the first patch is trained."""

    batch: Batch
    standing: Standing
    decisions: tuple[planning.Decision, ...]
    audits: Audits
    """Of what is to be trained; none where nothing is, or no audit is wanted."""

    @cached_property
    def todo(self) -> Batch:
        """Return the batch with what is to be trained alone."""
        return self.batch.only(planning.to_train(self.decisions))


def look(batch: Batch, wish: Wish) -> Looked:
    """Decide on the patches, and audit those that are to be trained."""
    standing = batch.standing("content")
    decisions = tuple(standing.decide(name, force=wish.force, insist=wish.is_retry) for name in batch.names)
    todo = batch.only(planning.to_train(decisions))
    return Looked(batch, standing, decisions, todo.audits() if wish.verify and todo.tasks else ())


def settle_frame(looked: Looked, wish: Wish) -> Looked:
    """Write down where the splats will lie; where that is elsewhere than before, look again: results became stale."""
    batch, todo = looked.batch, looked.todo
    if not todo.tasks:
        return looked
    if wish.verify:
        framed = batch.framed(audit for audit, _ in looked.audits)
    else:
        framed = batch.in_frame(settle(batch, read_spans(patches_of(todo.tasks))))
    if framed.frame != batch.output.read_frame():
        framed.write_frame()
    return replace(looked, batch=framed) if framed.tasks is batch.tasks else look(framed, wish)


def settle_tones(looked: Looked, wish: Wish) -> Looked:
    """Solve the tones of the photographs where that is asked for and they are not known; say what was found.

    Where they are other than before, look again: results became stale.
    """
    batch, scene = looked.batch, looked.batch.config.scene
    if not any(wants_tones(task.asked.recipe, scene) for task in looked.todo.tasks):
        return looked
    if _was_begun_as_is(looked):
        _say("colours: other patches were trained on photographs as they are, so are these: see training.colors")
        return looked
    colors, solved = settle_colors(batch.only(looked.todo.names), batch.colors)
    if not solved:
        return looked
    toned = batch.in_colors(colors)
    toned.write_colors()
    for name, one in telling(colors, solved).items():
        for line in in_words(one):
            _say(f"colours{f' of {name}' if name else ''}: {line}")
    return _look_again(looked, toned, wish)


def settle_deadline(looked: Looked, wish: Wish) -> Looked:
    """Choose what a deadline leaves time for, where that is not chosen yet, and write it down.

    Raises:
        ConfigError: the deadline is past.
    """
    if not looked.todo.tasks or not looked.batch.config.deadline:
        return looked

    def to_train(batch: Batch) -> list[str]:
        return looked.todo.names if batch is looked.batch else look(batch, replace(wish, verify=False)).todo.names

    timed = in_time(looked.batch, to_train)
    if timed.choice is None or timed is looked.batch:
        return looked
    write_choice(timed, timed.choice)
    return _look_again(looked, timed, wish)


def _say(words: str) -> None:
    """Tell it as the console does that follows: a line with its time, on stderr."""
    typer.echo(f"{moment(time.time())} {one_line(words)}", err=True)


def _was_begun_as_is(looked: Looked) -> bool:
    """Return whether `auto` finds splats that are not evened: a batch has one colour, and none is made stale."""
    batch, todo = looked.batch, set(looked.todo.names)
    if batch.colors or any(task.asked.recipe.training.colors != "auto" for task in looked.todo.tasks):
        return False
    others = (batch.output.patch(task.name).read_result() for task in batch.every if task.name not in todo)
    return any(result is not None and not result.trained_from.tones for result in others)


def _look_again(looked: Looked, batch: Batch, wish: Wish) -> Looked:
    """Decide anew; what has been audited is not audited again unless there is more to train."""
    again = look(batch, replace(wish, verify=False))
    is_same = again.todo.names == looked.todo.names
    return replace(again, audits=looked.audits) if is_same else look(batch, wish)


def refuse(todo: Batch, audits: Audits, ledger: Ledger, *, verify: bool) -> Mapping[str, str]:
    """Write down what the audits found; return the patches that must not be trained, each with the reason."""
    refused = refusals(audits)
    warnings = [f"{one.patch}: {one.subject}: {one.message}" for audit, _ in audits for one in audit.warnings()]
    ledger.write(Audited(verified=verify, refused=refused, warnings=tuple(dict.fromkeys(warnings))))
    for task in todo.tasks:
        if reason := refused.get(task.name):
            inputs = state_of(inputs_of(task.patch, task.recipe).files)
            ledger.write(Refused(task.name, reason, inputs))
    if len(refused) == len(todo.tasks):
        others = [task.name for task in todo.every if not task.patch.is_backdrop and task.name not in refused]
        said = f"{spell([*refused])}: refused by the audit, and nothing else is to be trained" if others else ""
        typer.echo(one_line(f"{said or 'every patch is refused by the audit'}: see `splatbatch verify-dims`"), err=True)
    return refused
