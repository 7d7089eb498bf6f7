"""What an end says where the log says no more: limits of ours, signals, codes, a splat that does not count."""

from __future__ import annotations

from collections.abc import Iterable

from splatbatch.failures.evidence import Case
from splatbatch.failures.rules.exits import (
    SIGABRT,
    SIGNALS,
    Meaning,
    in_words,
    meaning_of_code,
    meaning_of_health,
    signal_of,
)
from splatbatch.outcome import Cancelled, Diagnosis, Exited, Lost, NotStarted, TimedOut


def diagnosis(case: Case, meaning: Meaning, evidence: Iterable[str] = ()) -> Diagnosis:
    """Return what something means for a case, with the lines that show it."""
    phase = case.seen.phase or ("train" if case.is_midrun else "")
    return Diagnosis(meaning.cause, meaning.action, meaning.advice, tuple(evidence), phase)


def whole_splat(case: Case) -> Diagnosis | None:
    """A whole splat is a success, whatever the process did afterwards, unless it learned nothing."""
    if case.seen.artifact != "" or case.seen.health:
        return None
    if case.ended_well:
        return diagnosis(case, Meaning("none", "ok", "The splat is whole."))
    odd = f"The splat is whole; only after it the process ended badly: {in_words(case.seen.end)}."
    return diagnosis(case, Meaning("none", "ok", odd))


def health(case: Case) -> Diagnosis | None:
    """What the training process found about itself."""
    found = case.seen.health
    if meaning := meaning_of_health(found):
        return diagnosis(case, meaning, (f"health: {found}",))
    if found and case.seen.artifact == "":
        return diagnosis(case, Meaning("none", "ok", f"The splat is whole, but its training looks odd: {found}."))
    return None


def memory_killer(case: Case) -> Diagnosis | None:
    """The kernel's count of processes killed for memory settles it."""
    if not case.seen.oom_killed:
        return None
    advice = "Host memory ran out (the kernel killed a process): fewer loader workers, fewer images in memory."
    return diagnosis(case, Meaning("host_oom", "degrade", advice), ("outside the log: the kernel's OOM killer struck",))


def done(case: Case) -> Diagnosis | None:
    """A program that said it was done, and was ended only then."""
    is_ended = signal_of(case.seen.end) is not None or isinstance(case.seen.end, TimedOut)
    if not (case.has_finished and is_ended) or isinstance(case.seen.end, Cancelled):
        return None
    meaning = Meaning("none", "ok", "Training had finished; only after it the program was ended.")
    return diagnosis(case, meaning, [case.log.quote_line(case.log.finished)])


def our_doing(case: Case) -> Diagnosis | None:
    """Ends that we brought about."""
    match case.seen.end:
        case Cancelled(by=by):
            return diagnosis(case, Meaning("interrupted", "retry", f"The run was ended by {by}: run again."))
        case NotStarted(reason=reason):
            return diagnosis(case, Meaning("not_started", "fail", f"The command could not be started: {reason}."))
        case TimedOut() if not case.is_watched and case.log.made_all_steps:
            return diagnosis(case, Meaning("none", "ok", "Training had finished; only the program did not end."))
        case TimedOut(limit="wall", limit_s=limit_s):
            advice = f"The limit of {limit_s:g} s was hit: give more time, or fewer steps."
            return diagnosis(case, Meaning("time_limit", "degrade", advice), case.log.last_words())
        case TimedOut(limit="finished", limit_s=limit_s):
            advice = f"The program did not end within {limit_s:g} s (artifact.finished_after_s) after it had left its"
            advice += " splat, which does not count: ended, and tried once more."
            return diagnosis(case, Meaning("hang", "retry", advice), case.log.last_words())
        case TimedOut(limit_s=limit_s):
            advice = f"Nothing moved for {limit_s:g} s: ended, and tried once more."
            return diagnosis(case, Meaning("hang", "retry", advice), case.log.last_words())
        case _:
            return None


def signal(case: Case) -> Diagnosis | None:
    """A signal outweighs weak text, except an abort, whose reason stands in the lines before."""
    number = signal_of(case.seen.end)
    if number is None or number not in SIGNALS or number == SIGABRT:
        return None
    return diagnosis(case, SIGNALS[number], (in_words(case.seen.end), *case.log.last_words()))


def spoilt_splat(case: Case) -> Diagnosis | None:
    """A process that ended well without a splat that counts did not do its work."""
    why = case.seen.artifact
    if not why or not case.ended_well:
        return None
    advice = f"The program ended well, but its splat does not count ({why}): tried once more; then check the disk."
    meaning = meaning_of_health(why.partition(":")[0]) or Meaning("incomplete_artifact", "retry", advice)
    return diagnosis(case, meaning, (f"splat: {why}", *case.log.last_words()))


def plain_end(case: Case) -> Diagnosis:
    """What is left: the code, or that nobody knows."""
    evidence = (in_words(case.seen.end), *case.log.worst_words())
    match case.seen.end:
        case Lost(reason=reason):
            return diagnosis(case, Meaning("lost", "retry", f"No word came back ({reason}): run again."), evidence)
        case None if case.log.sounds_bad and not case.can_do_without:
            return diagnosis(case, Meaning("unknown", "fail", "No known failure: read the end of the log."), evidence)
        case None if case.seen.log.strip() and not case.log.made_all_steps:
            advice = "The log stops without an end: if nothing moves, end it and try once more."
            return diagnosis(case, Meaning("hang", "retry", advice), case.log.last_words())
        case None:
            return diagnosis(case, Meaning("none", "ok", "Nothing is wrong in this log."))
        case Exited(code=0):
            return diagnosis(case, Meaning("none", "ok", "The run ended normally."))
        case end if meaning := meaning_of_code(end):
            return diagnosis(case, meaning, evidence)
    if case.is_watched:
        return diagnosis(
            case, Meaning("unknown", "retry", "No known failure: tried once more; keep the log."), evidence
        )
    return diagnosis(case, Meaning("unknown", "fail", "No known failure: read the end of the log."), evidence)
