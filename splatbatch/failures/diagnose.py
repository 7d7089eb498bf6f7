"""Why an attempt failed and what may help: a pure function of what was seen of it.

Evidence is read in order: first what settles it by itself (a whole splat, the training's own findings, the OOM killer);
then what was printed after the last progress, where an exception outweighs what only warns; then how the process
ended; then what is true wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from splatbatch.failures.advice import LOG, TRY, advised
from splatbatch.failures.evidence import CERTAIN, LIKELY, TELLING, WARNED, Evidence, LogCase, SignatureMatch
from splatbatch.failures.exits import (
    DIVERGED,
    SIGABRT,
    SIGNALS,
    Explanation,
    in_words,
    meaning_of_code,
    meaning_of_health,
    signal_of,
)
from splatbatch.failures.log import NO_GAP, Gap
from splatbatch.failures.signatures import Signature
from splatbatch.outcome import Cancelled, Diagnosis, Exited, Killed, Lost, NotStarted, TimedOut


def diagnosis(case: LogCase, meaning: Explanation, evidence: Iterable[str] = ()) -> Diagnosis:
    """Return what something means for a case, with the lines that show it."""
    phase = case.seen.phase or ("train" if case.is_midrun else "")
    return Diagnosis(meaning.cause, meaning.action, meaning.advice, tuple(evidence), phase)


def whole_splat(case: LogCase) -> Diagnosis | None:
    """A whole splat is a success, whatever the process did afterwards, unless it learned nothing."""
    if case.seen.artifact != "" or case.seen.health:
        return None
    if case.ended_well:
        return diagnosis(case, Explanation("none", "ok", "The splat is whole."))
    odd = f"The splat is whole; only after it the process ended badly: {in_words(case.seen.end)}."
    return diagnosis(case, Explanation("none", "ok", odd))


def health(case: LogCase) -> Diagnosis | None:
    """What the training process found about itself."""
    found = case.seen.health
    if meaning := meaning_of_health(found):
        return diagnosis(case, meaning, (f"health: {found}",))
    if found and case.seen.artifact == "":
        return diagnosis(case, Explanation("none", "ok", f"The splat is whole, but its training looks odd: {found}."))
    return None


def memory_killer(case: LogCase) -> Diagnosis | None:
    """The kernel's count of processes killed for memory settles it; where others share it, unless the log does."""
    if not case.seen.oom_killed:
        return None
    told = _told(case) if case.is_explained and not (case.seen.end is None or signal_of(case.seen.end)) else None
    if told and told.cause not in OF_A_KILLED_PROCESS:
        return told
    advice = "Host memory ran out (the kernel killed a process): fewer loader workers, fewer images in memory."
    return diagnosis(
        case, Explanation("host_oom", "degrade", advice), ("outside the log: the kernel's OOM killer struck",)
    )


def done(case: LogCase) -> Diagnosis | None:
    """A program that said it was done, and was ended only then."""
    is_ended = signal_of(case.seen.end) is not None or isinstance(case.seen.end, TimedOut)
    if not (case.has_finished and is_ended) or case.log.is_writing or isinstance(case.seen.end, Cancelled):
        return None
    meaning = Explanation("none", "ok", "Training had finished; only after it the program was ended.")
    return diagnosis(case, meaning, [case.log.quote_line(case.log.finished)])


def our_doing(case: LogCase) -> Diagnosis | None:
    """Ends that we brought about."""
    match case.seen.end:
        case Cancelled(by=by):
            return diagnosis(case, Explanation("interrupted", "retry", f"The run was ended by {by}: run again."))
        case NotStarted(reason=reason):
            return diagnosis(case, Explanation("not_started", "fail", f"The command could not be started: {reason}."))
        case TimedOut() if not case.is_watched and case.log.made_all_steps:
            return diagnosis(case, Explanation("none", "ok", "Training had finished; only the program did not end."))
        case TimedOut(limit="wall", limit_s=limit_s):
            advice = f"The limit of {limit_s:g} s was hit: give more time, or fewer steps."
            return diagnosis(case, Explanation("time_limit", "degrade", advice), case.log.last_words())
        case TimedOut(limit="finished", limit_s=limit_s):
            advice = f"The program did not end within {limit_s:g} s (artifact.finished_after_s) after it had left its"
            advice += f" splat, which does not count: ended, and tried once more.{TRY}{LOG}"
            return diagnosis(case, Explanation("hang", "retry", advice), case.log.last_words())
        case TimedOut(limit_s=limit_s):
            advice = f"Nothing moved for {limit_s:g} s: ended, and tried once more."
            return diagnosis(case, Explanation("hang", "retry", advice), case.log.last_words())
        case _:
            return None


def signal(case: LogCase) -> Diagnosis | None:
    """A signal outweighs weak text, except an abort, whose reason stands in the lines before."""
    number = signal_of(case.seen.end)
    if number is None or number not in SIGNALS or number == SIGABRT:
        return None
    return diagnosis(case, SIGNALS[number], (in_words(case.seen.end), *case.log.last_words()))


def spoilt_splat(case: LogCase) -> Diagnosis | None:
    """A process that ended well without a splat that counts did not do its work."""
    why = case.seen.artifact
    if not why or not case.ended_well:
        return None
    advice = f"The program ended well, but its splat does not count ({why}): tried once more; then check the disk."
    if not why.startswith(OF_THE_DISK):
        advice = (
            f"The program ended well, but its splat does not count ({why}): see what it reads and writes.{TRY}{LOG}"
        )
    meaning = meaning_of_health(why.partition(":")[0]) or Explanation("incomplete_artifact", "retry", advice)
    return diagnosis(case, meaning, (f"splat: {why}", *case.log.last_words()))


def without_an_end(case: LogCase) -> Diagnosis | None:
    """What a log says of which nobody knows how its program ended."""
    if case.seen.end is not None:
        return None
    if case.log.sounds_bad and not case.can_do_without:
        return _unknown(case)
    if case.seen.log.strip() and not case.log.made_all_steps:
        advice = "The log stops without an end: if nothing moves, end it and try once more."
        return diagnosis(case, Explanation("hang", "retry", advice), case.log.last_words())
    return diagnosis(case, Explanation("none", "ok", "Nothing is wrong in this log."))


def plain_end(case: LogCase) -> Diagnosis:
    """What is left: the code, or that nobody knows."""
    evidence = (in_words(case.seen.end), *case.log.worst_words())
    match case.seen.end:
        case Lost(reason=reason):
            return diagnosis(case, Explanation("lost", "retry", f"No word came back ({reason}): run again."), evidence)
        case Exited(code=0) if place := case.log.broke_off:
            advice = f"The program ended well, but the last that it told is {place}: see whether its splat is whole."
            return diagnosis(case, Explanation("incomplete_artifact", "retry", advice), case.log.last_words())
        case Exited(code=0):
            return diagnosis(case, Explanation("none", "ok", "The run ended normally."))
        case end if meaning := meaning_of_code(end):
            return diagnosis(case, meaning, evidence)
    return _unknown(case)


def _unknown(case: LogCase) -> Diagnosis:
    meaning = Explanation("unknown", "fail", "No known failure: read the end of the log.")
    if case.is_watched:
        meaning = Explanation("unknown", "retry", "No known failure: tried once more; keep the log.")
    worst = case.final.says if case.final and case.final.has_frames else None
    return diagnosis(case, meaning, (in_words(case.seen.end), *case.log.end_in_full(worst)))


OF_THE_DISK = ("missing", "cut", "unreadable", "not found")
"""Why a splat does not count, if a disk may be to blame."""
OF_A_KILLED_PROCESS = frozenset({"host_oom", "dataloader_worker_killed", "shm_bus_error", "nccl", "jit_build_failed"})
"""What a program may say whose loader, compiler or other rank was killed."""
FROM_OUTSIDE = frozenset({1, 2, 3, 9, 15})
"""Signals that a process gets from others: nothing that it said itself on a plain line led to them."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Say why an attempt failed, what may help and what to type, and which lines and settings show it."""
    case = LogCase(evidence)
    verdict = next((found for judge in JUDGES if (found := judge(case))), None) or plain_end(case)
    slow = (f"left out: {one.cause} of {one.origin} took too long over this log" for one in case.too_slow)
    verdict = replace(verdict, evidence=(*verdict.evidence, *slow))
    if verdict.action == "ok":
        return verdict
    return advised(verdict, evidence.background)


def diagnose_log(
    text: str,
    exit_code: int | None = None,
    signal: int | None = None,
    gap: Gap = NO_GAP,
    own: Sequence[Signature] = (),
) -> Diagnosis:
    """Explain any log, also of another trainer; a retry on mere suspicion is for watched attempts only."""
    end = Exited(exit_code) if exit_code is not None else None
    return diagnose(Evidence(Killed(signal) if signal else end, text, gap=gap, own=own))


def _told(case: LogCase) -> Diagnosis | None:
    """What the end of the log says outright; a signal, or a limit of ours, asks for more than a plain line."""
    best = _best(case.at_end)
    if best is None or isinstance(case.seen.end, Cancelled) or _was_overcome(case, best):
        return None
    return _meant(case, best) if best.weight >= _least_beside(case, best) else None


def _was_overcome(case: LogCase, found: SignatureMatch) -> bool:
    """Tell whether a program exited 0 and says that it was done, or did without, or was only ended when it was done."""
    if case.has_finished and found.signature.cause in {"interrupted", "time_limit"}:
        return signal_of(case.seen.end) is not None
    did_without = not case.is_watched and found.signature.scope == "optional"
    return case.seen.end == Exited(0) and (case.has_finished or did_without)


def _least_beside(case: LogCase, found: SignatureMatch) -> int:
    signal = signal_of(case.seen.end)
    is_spoken_for = signal not in {None, SIGABRT} or isinstance(case.seen.end, TimedOut)
    crashed_by_gpu = signal not in FROM_OUTSIDE and found.signature.cause.startswith(("cuda_", "cublas_"))
    return CERTAIN if is_spoken_for and not crashed_by_gpu else TELLING


def _lasting(case: LogCase) -> Diagnosis | None:
    """What stays true though the program went on: a full disk, a patch without cameras, a loss that is no number."""
    if isinstance(case.seen.end, Cancelled):
        return None
    best = _best(case.found([one for one in case.known if one.lasting], 0))
    if best and best.weight >= TELLING:
        return _meant(case, best)
    return diagnosis(case, DIVERGED, [case.log.quote(case.log.diverged)]) if case.log.diverged else None


def _hinted(case: LogCase) -> Diagnosis | None:
    """What the end of the log hints at, unless an exception that nobody knows says that it was something else."""
    end, best = case.seen.end, _best(case.at_end)
    if best is None or end == Exited(0) or isinstance(end, Cancelled) or case.has_finished:
        return None
    is_said_otherwise = case.is_explained or (signal_of(end) is None and meaning_of_code(end))
    least = TELLING if end is None else LIKELY + 1 if is_said_otherwise else 1
    is_hope = best.weight <= WARNED and best.signature.action == "retry"  # no further attempt for a mere warning
    return None if best.weight < least or is_hope else _meant(case, best)


def _anywhere(case: LogCase) -> Diagnosis | None:
    """What stood before the last progress and says why processes end, if nothing else does; no reason to try again."""
    if case.ended_well or case.is_explained or isinstance(case.seen.end, Cancelled) or case.has_finished:
        return None
    best = _best(case.found([one for one in case.known if one.scope == "end" and one.action != "retry"], 0))
    return _meant(case, best) if best and best.weight >= TELLING and not meaning_of_code(case.seen.end) else None


def _best(found: Iterable[SignatureMatch]) -> SignatureMatch | None:
    return max(found, key=lambda one: one.weight, default=None)


def _meant(case: LogCase, found: SignatureMatch) -> Diagnosis:
    """Return what a signature means here: in mid-run, or for a watched attempt, it asks for other actions."""
    told = found.signature
    action = told.midrun if told.midrun and case.is_midrun else told.action
    action = told.watched if told.watched and case.is_watched else action
    beside = case.place_of(told.also, case.log.start_of(case.end_begins)) if told.also else None
    quotes = [case.log.quote(place) for place in (found.match, beside) if place]
    return diagnosis(case, Explanation(told.cause, action, told.advice), quotes)


JUDGES: tuple[Callable[[LogCase], Diagnosis | None], ...] = (
    whole_splat,
    health,
    memory_killer,
    _told,
    done,
    our_doing,
    signal,
    _lasting,
    _hinted,
    _anywhere,
    spoilt_splat,
    without_an_end,
)
"""Asked in this order; the first that has something to say is believed."""
