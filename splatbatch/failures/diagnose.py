"""Diagnosis of an attempt from its evidence: cause, action, advice, and the lines that show it. Pure.

Evidence is read in this order: a whole splat, the training's own findings and the OOM killer come first. Next
counts what was printed after the last progress, where an exception outweighs a warning. Last come the exit of the
process, and signatures that hold wherever they stand in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from splatbatch.failures.advice import LOG, TRY, with_advice
from splatbatch.failures.evidence import CERTAIN, LIKELY, TELLING, WARNED, Evidence, SignatureMatch
from splatbatch.failures.exits import (
    DIVERGED,
    SIGABRT,
    SIGNALS,
    in_words,
    meaning_of_code,
    meaning_of_health,
    signal_of,
)
from splatbatch.outcome import Cancelled, Diagnosis, Exited, Lost, NotStarted, TimedOut


def diagnose(seen: Evidence) -> Diagnosis:
    """Return the diagnosis of an attempt: the first of JUDGES that decides, else the meaning of its exit, with advice.

    Its action is "ok" if nothing failed, or if the splat is whole and the training found no grave fault in itself. Then
    no settings are suggested.
    """
    verdict = next((found for judge in JUDGES if (found := judge(seen))), None) or plain_end(seen)
    slow = (f"skipped: the patterns for {one.cause} in {one.origin} took too long on this log" for one in seen.too_slow)
    phase = seen.phase or ("train" if seen.is_midrun else "")
    verdict = replace(verdict, evidence=(*verdict.evidence, *slow), phase=phase)
    return verdict if verdict.action == "ok" else with_advice(verdict, seen.background)


def _fine(advice: str, *evidence: str) -> Diagnosis:
    return Diagnosis("none", "ok", advice, evidence)


def whole_splat(seen: Evidence) -> Diagnosis | None:
    """Return success for a whole splat whose training reported nothing wrong, however the process ended; else None."""
    if seen.artifact != "" or seen.health:
        return None
    if seen.ended_well:
        return _fine("The splat is complete.")
    return _fine(f"The splat is complete. The process ended badly after the splat was written: {in_words(seen.end)}.")


def health(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of what the training process found about itself, such as zero gradients.

    A finding without a meaning of its own is success with a warning if the splat is whole. None: no finding decides.
    """
    found = seen.health
    if meaning := meaning_of_health(found):
        return replace(meaning, evidence=(f"health: {found}",))
    if found and seen.artifact == "":
        return _fine(f"The splat is complete, but its training looks wrong: {found}.")
    return None


def memory_killer(seen: Evidence) -> Diagnosis | None:
    """Return `host_oom` if the kernel killed a process for memory, unless the log explains the end otherwise.

    Attempts that share a memory limit share the kernel's count, so a clear other cause in the log wins. It
    does not after a signal or an unknown exit. None: the kernel killed no process.
    """
    if not seen.oom_killed:
        return None
    told = told_outright(seen) if seen.is_explained and not (seen.end is None or signal_of(seen.end)) else None
    if told and told.cause not in OF_A_KILLED_PROCESS:
        return told
    advice = "Host memory ran out (the kernel killed a process): use fewer loader workers or smaller photographs."
    return Diagnosis("host_oom", "degrade", advice, ("outside the log: the kernel's OOM killer ended a process",))


def told_outright(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis by the cause that the end of the log names clearly; None: it names no cause clearly.

    After a signal or a time limit, a plain line of the log is seldom enough. None, too, if the run was cancelled, or
    the program succeeded in spite of what it names.
    """
    best = _best(seen.at_end)
    if best is None or isinstance(seen.end, Cancelled) or _was_overcome(seen, best):
        return None
    return _meant(seen, best) if best.weight >= _least_beside(seen, best) else None


def said_done(seen: Evidence) -> Diagnosis | None:
    """Return success for a program that a signal or limit ended after its log said that it was done; else None.

    None, too, for an attempt whose splat was checked, and while the log announces a file that is not yet written.
    """
    is_ended = signal_of(seen.end) is not None or isinstance(seen.end, TimedOut)
    if not (seen.has_finished and is_ended) or seen.log.is_writing:
        return None
    return _fine("Training had finished when the program was ended.", seen.log.quote_line(seen.log.finished))


def our_doing(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of an end by splatbatch: cancelled, not started, or ended at a time limit; else None.

    A time limit after the last step is a success if no splat was checked.
    """
    last_words = tuple(seen.log.last_words())
    match seen.end:
        case Cancelled(by=by):
            return Diagnosis("interrupted", "retry", f"The run was ended by {by}: run again.")
        case NotStarted(reason=reason):
            return Diagnosis("not_started", "fail", f"The command could not be started: {reason}.")
        case TimedOut() if not seen.is_watched and seen.log.made_all_steps:
            return _fine("Training had finished, but the program did not exit.")
        case TimedOut(limit="wall", limit_s=limit_s):
            advice = f"The time limit of {limit_s:g} s was reached: allow more time, or train fewer steps."
            return Diagnosis("time_limit", "degrade", advice, last_words)
        case TimedOut(limit="finished", limit_s=limit_s):
            advice = (
                f"The program did not exit within {limit_s:g} s (artifact.finished_after_s) after it wrote its splat,"
            )
            advice += f" which is not valid. The program was ended and is tried once more.{TRY}{LOG}"
            return Diagnosis("hang", "retry", advice, last_words)
        case TimedOut(limit_s=limit_s):
            return Diagnosis(
                "hang",
                "retry",
                f"No progress for {limit_s:g} s: the attempt was ended and is tried once more.",
                last_words,
            )
    return None


def signal(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of the signal that ended the process; None: no signal, or an unknown one.

    None for an abort (SIGABRT), too, since its reason stands in the log.
    """
    number = signal_of(seen.end)
    if number is None or number not in SIGNALS or number == SIGABRT:
        return None
    return replace(SIGNALS[number], evidence=(in_words(seen.end), *seen.log.last_words()))


def lasting(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of a failure that stays true though the program went on; None: none, or cancelled.

    Such failures are a full disk, no cameras, or a loss of NaN.
    """
    if isinstance(seen.end, Cancelled):
        return None
    best = _best(seen.found([one for one in seen.known if one.lasting], 0))
    if best and best.weight >= TELLING:
        return _meant(seen, best)
    return replace(DIVERGED, evidence=(seen.log.quote(seen.log.diverged),)) if seen.log.diverged else None


def hinted(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis by the cause that the end of the log hints at; None: there is no hint.

    A weak hint loses to an exception that no signature knows, and to the usual meaning of an exit code. A full disk and
    other failures that stay true do not lose to the code. None, too, if the program exited with 0, was cancelled or had
    finished, and for a mere warning that asks for a retry.
    """
    end, best = seen.end, _best(seen.at_end)
    if best is None or end == Exited(0) or isinstance(end, Cancelled) or seen.has_finished:
        return None
    is_said_by_code = not best.signature.lasting and signal_of(end) is None and meaning_of_code(end)
    least = TELLING if end is None else LIKELY + 1 if seen.is_explained or is_said_by_code else 1
    is_hope = best.weight <= WARNED and best.signature.action == "retry"  # no further attempt for a mere warning
    return None if best.weight < least or is_hope else _meant(seen, best)


def anywhere(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis by a cause from before the last progress, if nothing else explains the end; else None.

    Causes whose action is `retry` are left out.
    """
    if seen.ended_well or seen.is_explained or isinstance(seen.end, Cancelled) or seen.has_finished:
        return None
    best = _best(seen.found([one for one in seen.known if one.scope == "end" and one.action != "retry"], 0))
    return _meant(seen, best) if best and best.weight >= TELLING and not meaning_of_code(seen.end) else None


def spoilt_splat(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of a process that exited normally, but left no valid splat.

    An unknown exit counts as normal. None: the process left a valid splat, or did not exit normally, or no splat was
    checked.
    """
    why = seen.artifact
    if not why or not seen.ended_well:
        return None
    advice = f"The program exited normally, but its splat is not valid ({why}): "
    is_of_disk = why.startswith(OF_THE_DISK)
    advice += (
        "the attempt is repeated once; if the splat is not valid again, check the disk."
        if is_of_disk
        else f"check the program's input files and output path, and read the log.{TRY}{LOG}"
    )
    meaning = meaning_of_health(why) or Diagnosis("incomplete_artifact", "retry", advice)
    return replace(meaning, evidence=(f"splat: {why}", *seen.log.last_words()))


def without_an_end(seen: Evidence) -> Diagnosis | None:
    """Return the diagnosis of a log alone, where it is unknown how its program ended; None: the exit is known."""
    if seen.end is not None:
        return None
    hints = [one.signature for one in seen.at_end if one.weight > WARNED]
    can_do_without = hints and all(one.scope == "optional" or one.strength == "hint" for one in hints)
    if seen.log.sounds_bad and not can_do_without:
        return _unknown(seen)
    if seen.text.strip() and not seen.log.made_all_steps:
        advice = "The log stops in the middle of a run: if the program is stuck, end it and try again."
        return Diagnosis("hang", "retry", advice, tuple(seen.log.last_words()))
    return _fine("No failure found in this log.")


def plain_end(seen: Evidence) -> Diagnosis:
    """Return the diagnosis of the exit, as the last resort; after exit code 0, the last progress counts, too.

    Its cause is `unknown` if the exit tells nothing either.
    """
    evidence = (in_words(seen.end), *seen.log.worst_words())
    match seen.end:
        case Lost(reason=reason):
            return Diagnosis("lost", "retry", f"The attempt was lost ({reason}): run again.", evidence)
        case Exited(code=0) if place := seen.log.broke_off:
            advice = f"The program exited normally, but its last progress is {place}: check that its splat is complete."
            return Diagnosis("incomplete_artifact", "retry", advice, tuple(seen.log.last_words()))
        case Exited(code=0):
            return _fine("The run ended normally.")
    meaning = meaning_of_code(seen.end)
    return replace(meaning, evidence=evidence) if meaning else _unknown(seen)


def _unknown(seen: Evidence) -> Diagnosis:
    """Return the cause `unknown` with the last lines of the log, and the worst lines below them as evidence."""
    final, log = seen.final, seen.log
    worst = [log.quote_line(final.says)] if final and final.has_frames else log.worst_words()
    evidence = (in_words(seen.end), *(line for line in log.last_words(MOST_QUOTED) if line not in worst), *worst)
    if seen.is_watched:
        return Diagnosis("unknown", "retry", "Unknown failure: the attempt is repeated once; keep the log.", evidence)
    return Diagnosis("unknown", "fail", "Unknown failure: read the end of the log.", evidence)


def _was_overcome(seen: Evidence, found: SignatureMatch) -> bool:
    """Return whether the program succeeded in spite of a match: it finished, or did without an optional thing."""
    if seen.has_finished and found.signature.cause in {"interrupted", "time_limit"}:
        return signal_of(seen.end) is not None
    did_without = not seen.is_watched and found.signature.scope == "optional"
    return seen.end == Exited(0) and (seen.has_finished or did_without)


def _least_beside(seen: Evidence, found: SignatureMatch) -> int:
    number = signal_of(seen.end)
    is_spoken_for = number not in {None, SIGABRT} or isinstance(seen.end, TimedOut)
    crashed_by_gpu = number not in FROM_OUTSIDE and found.signature.cause.startswith(("cuda_", "cublas_"))
    return CERTAIN if is_spoken_for and not crashed_by_gpu else TELLING


def _best(found: Iterable[SignatureMatch]) -> SignatureMatch | None:
    return max(found, key=lambda one: one.weight, default=None)


def _meant(seen: Evidence, found: SignatureMatch) -> Diagnosis:
    """Return the diagnosis of a match, with the action of its signature for a watched attempt or in mid-run."""
    told = found.signature
    action = (seen.is_watched and told.watched) or (seen.is_midrun and told.midrun) or told.action
    beside = seen.place_of(told.also, seen.log.start_of(seen.end_begins)) if told.also else None
    quotes = (seen.log.quote(place) for place in (found.match, beside) if place)
    return Diagnosis(told.cause, action, told.advice, tuple(quotes))


MOST_QUOTED = 6
"""Number of lines at the end of a log that are quoted where its failure is unknown."""
OF_THE_DISK = ("missing", "cut", "unreadable", "not found")
"""First words of those reasons for a splat not to count that may lie in the disk."""
OF_A_KILLED_PROCESS = frozenset({"host_oom", "dataloader_worker_killed", "shm_bus_error", "nccl", "jit_build_failed"})
"""Causes that a log names if the kernel killed the program's loader, compiler or another rank."""
FROM_OUTSIDE = frozenset({1, 2, 3, 9, 15})
"""Numbers of signals that come from outside the process, so a plain line of its log seldom explains them."""
JUDGES: tuple[Callable[[Evidence], Diagnosis | None], ...] = (
    whole_splat,
    health,
    memory_killer,
    told_outright,
    said_done,
    our_doing,
    signal,
    lasting,
    hinted,
    anywhere,
    spoilt_splat,
    without_an_end,
)
"""The functions that may decide on a diagnosis, in the order in which they are asked; the first that returns one
counts."""
