"""Why an attempt failed and what may help: a pure function of what was seen of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from splatbatch.failures.rules.build import BUILD
from splatbatch.failures.rules.exits import (
    CRASHES,
    SIGABRT,
    SIGNALS,
    Meaning,
    in_words,
    meaning_of_code,
    meaning_of_health,
    signal_of,
)
from splatbatch.failures.rules.files import FILES, NETWORK
from splatbatch.failures.rules.gpu import GPU
from splatbatch.failures.rules.hints import HINTS
from splatbatch.failures.rules.host import HOST
from splatbatch.failures.rules.kernels import KERNELS
from splatbatch.failures.rules.log import Log
from splatbatch.failures.rules.program import PROGRAM, REST, SETTINGS
from splatbatch.failures.rules.row import Row
from splatbatch.failures.rules.scene import NUMBERS, SCENE
from splatbatch.outcome import Cancelled, Diagnosis, Exit, Exited, Killed, Lost, NotStarted, TimedOut

# The first row that matches wins, so the order is part of the knowledge: what can be a consequence stands below.
STRONG: tuple[Row, ...] = (*GPU, *BUILD, *HOST, *SCENE, *NUMBERS, *KERNELS, *NETWORK, *SETTINGS, *CRASHES)
# Believed only if neither a strong row nor the way the process ended says more.
WEAK: tuple[Row, ...] = (*FILES, *PROGRAM, *HINTS, *REST)


@dataclass(frozen=True)
class Evidence:
    """What was seen of an attempt."""

    end: Exit | None
    """How the process ended; None: unknown, or it still runs."""
    log: str
    """The tail of what it printed."""
    phase: str = ""
    """start, load, init, train, eval, export; empty: unknown."""
    step: int | None = None
    artifact: str | None = None
    """Why the splat does not count; empty: it is whole; None: nobody looked, there is only a log."""
    oom_killed: bool = False
    kernel_lines: tuple[str, ...] = ()
    health: str = ""
    """What the training process found about itself, as `zero_gradients: 50 steps`."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Say why an attempt failed, what may help, and which lines show it."""
    case = _Case(evidence)
    judges = (_whole_splat, _health, _memory_killer, _strong_row, _our_doing, _signal, _weak_row, _spoilt_splat)
    return next((verdict for judge in judges if (verdict := judge(case))), None) or _plain_end(case)


def diagnose_log(text: str, exit_code: int | None = None, signal: int | None = None) -> Diagnosis:
    """Explain any log, also of another trainer; a retry on mere suspicion is for watched attempts only."""
    end = Exited(exit_code) if exit_code is not None else None
    return diagnose(Evidence(Killed(signal) if signal else end, text))


@dataclass(frozen=True)
class _Case:
    seen: Evidence

    @cached_property
    def log(self) -> Log:
        reason = (self.seen.end.reason,) if isinstance(self.seen.end, NotStarted | Lost) else ()
        return Log(self.seen.log, (*self.seen.kernel_lines, *reason))

    @cached_property
    def is_watched(self) -> bool:
        return self.seen.artifact is not None

    @cached_property
    def is_midrun(self) -> bool:
        return (self.log.last_step if self.seen.step is None else self.seen.step) > 0

    @cached_property
    def ended_well(self) -> bool:
        return self.seen.end in {None, Exited(0)}

    def means(self, meaning: Meaning, evidence: Iterable[str] = ()) -> Diagnosis:
        phase = self.seen.phase or ("train" if self.is_midrun else "")
        return Diagnosis(meaning.cause, meaning.action, meaning.advice, tuple(evidence), phase)


def _whole_splat(case: _Case) -> Diagnosis | None:
    """A whole splat is a success, whatever the process did afterwards, unless it learned nothing."""
    if case.seen.artifact != "" or case.seen.health:
        return None
    if case.ended_well:
        return case.means(Meaning("none", "ok", "The splat is whole."))
    odd = f"The splat is whole; only after it the process ended badly: {in_words(case.seen.end)}."
    return case.means(Meaning("none", "ok", odd))


def _health(case: _Case) -> Diagnosis | None:
    if meaning := meaning_of_health(case.seen.health):
        return case.means(meaning, (f"health: {case.seen.health}",))
    if case.seen.health and case.seen.artifact == "":
        return case.means(Meaning("none", "ok", f"The splat is whole, but its training looks odd: {case.seen.health}."))
    return None


def _memory_killer(case: _Case) -> Diagnosis | None:
    if not case.seen.oom_killed:
        return None
    advice = "Host memory ran out (the kernel killed a process): fewer loader workers, fewer images in memory."
    return case.means(Meaning("host_oom", "degrade", advice), ("outside the log: the kernel's OOM killer struck",))


def _strong_row(case: _Case) -> Diagnosis | None:
    return None if isinstance(case.seen.end, Cancelled) else _first_row(case, STRONG)


def _weak_row(case: _Case) -> Diagnosis | None:
    return None if case.seen.end == Exited(0) else _first_row(case, WEAK)


def _first_row(case: _Case, rows: Iterable[Row]) -> Diagnosis | None:
    for row in rows:
        match = case.log.find(row)
        if match and not _was_survived(case, row, match):
            beside = row.also.search(case.log.searched) if row.also else None
            quotes = [case.log.quote(place) for place in (match, beside) if place]
            return case.means(_meaning(case, row), quotes)
    return None


def _meaning(case: _Case, row: Row) -> Meaning:
    """Return what a row means here: in mid-run, or for a watched attempt, the same text asks for other actions."""
    action = row.midrun if row.midrun and case.is_midrun else row.action
    action = row.watched if row.watched and case.is_watched else action
    return Meaning(row.cause, action, row.advice)


def _was_survived(case: _Case, row: Row, match: re.Match[str]) -> bool:
    """Tell whether the program overcame what a row names: it ended well without it, or said later that it was done."""
    if case.is_watched or not case.ended_well or row.silent:
        return False
    did_without = row.optional and case.seen.end == Exited(0)
    return did_without or case.log.finished_at > match.start()


def _our_doing(case: _Case) -> Diagnosis | None:
    match case.seen.end:
        case Cancelled(by=by):
            return case.means(Meaning("interrupted", "retry", f"The run was ended by {by}: run again."))
        case NotStarted(reason=reason):
            return case.means(Meaning("not_started", "fail", f"The command could not be started: {reason}."))
        case TimedOut() if not case.is_watched and case.log.finished_at >= 0:
            return case.means(Meaning("none", "ok", "Training had finished; only the program did not end."))
        case TimedOut(limit="wall", limit_s=limit_s):
            advice = f"The limit of {limit_s:g} s was hit: give more time, or fewer steps."
            return case.means(Meaning("time_limit", "degrade", advice), case.log.last_words())
        case TimedOut(limit_s=limit_s):
            advice = f"Nothing moved for {limit_s:g} s: ended, and tried once more."
            return case.means(Meaning("hang", "retry", advice), case.log.last_words())
        case _:
            return None


def _signal(case: _Case) -> Diagnosis | None:
    """A signal outweighs weak text, except an abort, whose reason stands in the lines before."""
    signal = signal_of(case.seen.end)
    if signal is None or signal not in SIGNALS or signal == SIGABRT:
        return None
    return case.means(SIGNALS[signal], (in_words(case.seen.end), *case.log.last_words()))


def _spoilt_splat(case: _Case) -> Diagnosis | None:
    """A process that ended well without a splat that counts did not do its work."""
    why = case.seen.artifact
    if not why or not case.ended_well:
        return None
    advice = f"The program ended well, but its splat does not count ({why}): tried once more; then check the disk."
    meaning = meaning_of_health(why.partition(":")[0]) or Meaning("incomplete_artifact", "retry", advice)
    return case.means(meaning, (f"splat: {why}", *case.log.last_words()))


def _plain_end(case: _Case) -> Diagnosis:
    evidence = (in_words(case.seen.end), *case.log.last_words())
    match case.seen.end:
        case Lost(reason=reason):
            return case.means(Meaning("lost", "retry", f"No word came back ({reason}): run again."), evidence)
        case None if case.seen.log.strip() and case.log.finished_at < 0 and not case.log.sounds_bad:
            advice = "The log stops without an end: if nothing moves, end it and try once more."
            return case.means(Meaning("hang", "retry", advice), case.log.last_words())
        case None if not case.log.sounds_bad:
            return case.means(Meaning("none", "ok", "Nothing is wrong in this log."))
        case Exited(code=0):
            return case.means(Meaning("none", "ok", "The run ended normally."))
        case end if meaning := meaning_of_code(end):
            return case.means(meaning, evidence)
        case _ if case.is_watched:
            return case.means(Meaning("unknown", "retry", "No known failure: tried once more; keep the log."), evidence)
        case _:
            return case.means(Meaning("unknown", "fail", "No known failure: read the end of the log."), evidence)
