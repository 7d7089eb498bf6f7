"""Retry policy for a failure that counts against its task: try again, with which changed settings, after which wait.

Pure: history in, decision out. `scheduler/retry_handling.py` asks this policy last: a failure that another GPU, a GPU
of its own, or a start without MPS may cure is handled there, and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from splatbatch.config import Retry, Rung, TaskId
from splatbatch.config.rungs import RESOLUTIONS, factor_of, no_factor, takes_factor
from splatbatch.errors import ConfigError
from splatbatch.failures.causes import FailureCause, cause_of, title
from splatbatch.outcome import INTERNAL_FAULT, Diagnosis
from splatbatch.text import plural


@dataclass(frozen=True)
class Failure:
    """A failed attempt: its diagnosis, and by ladder how many rungs it was trained with; {}: none, or not recorded."""

    diagnosis: Diagnosis
    rungs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RetryHistory:
    """The failures and changes of one task in this run, from which its next attempt is decided."""

    failures: tuple[Failure, ...] = ()
    rungs: Mapping[str, int] = field(default_factory=dict)
    """Number of rungs taken so far, by ladder; a ladder that is missing has none taken."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that these rungs changed, by full name, without `slots`, which belongs to the machine. {}: none, or this
    worker took the rungs itself, and its task has the changes."""
    num_trained_before: int = 0
    """Number of tasks of the run that were trained when this task failed last. Tasks trained since then show that the
    GPU works. 0: none were, or the history is that of other workers."""
    has_moved: bool = False
    """Whether a GPU fault has moved the task to another GPU; a second GPU fault counts against the task."""
    is_alone: bool = False
    """Whether further attempts get a GPU to themselves, since one failed beside another attempt on the same GPU."""


NEW = RetryHistory()
"""The history of a task that has not failed in this run."""


FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 600.0
"""Wait in seconds before the first retry, and the longest wait; each failure of the same cause doubles the wait. Five
attempts then span two and a half minutes, and three times as much for a GPU that is busy."""
PASSES_WITHIN_S = 3600.0
"""Sum in seconds of a task's waits for one cause that waiting cures, at which the task is given up. From then on its
failures count in `why_stop_batch`."""
MOST_OF_OURS = 3
"""Number of tasks with the same internal fault of splatbatch at which the batch stops."""


@dataclass(frozen=True)
class RetryAfter:
    """The decision to try again after a wait of `wait_s` seconds.

    If `ladder` is set, the settings of `rung` are changed for the next attempt; empty: the settings stay.
    """

    wait_s: float
    ladder: str = ""
    rung: Rung = field(default_factory=dict)
    taken: int = 0
    """Number of rungs of the ladder used up after this one, including rungs skipped since they change nothing; 0 if
    `ladder` is empty."""


@dataclass(frozen=True)
class GiveUp:
    """The decision not to try again in this run, with the reason that the user reads."""

    reason: str


def decide_retry(
    history: Sequence[Failure],
    config: Retry,
    jitter: float = 0.0,
    current: Mapping[str, object] = {},
    *,
    waits: bool = True,
) -> RetryAfter | GiveUp:
    """Return whether a task is tried again after a failure that counts against it, how, and after which wait.

    After the action `fail` it is not. A cause that waiting cures is retried until `PASSES_WITHIN_S` is over. Other
    causes are retried unchanged, then with the next rung of their ladder, up to `retry.max_attempts`. After the action
    `degrade` a rung, if one is left, comes at once.

    Args:
        history: the failed attempts of this run, first to last, at least one; interrupted ones are not in it.
        config: the cap on attempts, and the ladders.
        jitter: 0 to 1; lengthens the wait by up to a tenth, so that patches do not come back all at once.
        current: the settings in force, by full name: a rung that would change none of them is passed over.
        waits: whether the task may wait for the cause to pass; if not, each failure counts and a retry starts at once.
    """
    last = history[-1].diagnosis
    if last.action == "fail":
        return GiveUp(f"{title(last.cause)}: trying again cannot help")
    counting = _counting(history) if waits else history
    alike = sum(past.diagnosis.cause == last.cause for past in history)
    wait_s = _wait_s(last.cause, alike) * (1 + 0.1 * jitter) if waits else 0.0
    if waits and passes(last):
        minutes = f"{PASSES_WITHIN_S / 60:.0f} minutes"
        is_over = history[-1] in counting
        return GiveUp(f"{title(last.cause)}: still there after {minutes} of waiting") if is_over else RetryAfter(wait_s)
    if len(counting) >= config.max_attempts:
        return GiveUp(f"{plural(len(counting), 'attempt')} failed, and retry.max_attempts allows no more")
    cause = cause_of(last.cause)
    vain = _why_not_unchanged(history, cause)
    climbing = cause.ladder in history[-1].rungs
    if last.action == "degrade" or climbing or vain:
        rung = _next_rung(history, config, wait_s, current)
        reason = f"{title(last.cause)}: all changes of retry.ladders have been tried" if climbing else vain
        return rung or (GiveUp(reason) if reason else RetryAfter(wait_s))
    return RetryAfter(wait_s)


def passes(diagnosis: Diagnosis) -> bool:
    """Return whether a diagnosis has the action `retry` and a cause that waiting alone can cure, such as a busy GPU."""
    return diagnosis.action == "retry" and cause_of(diagnosis.cause).passes


def _counting(history: Sequence[Failure]) -> list[Failure]:
    """Return the failures that count towards the cap; those of a passing cause count once `PASSES_WITHIN_S` is over."""
    passed = Counter(past.diagnosis.cause for past in history if passes(past.diagnosis))
    waited_s = {cause: sum(_wait_s(cause, number) for number in range(1, num)) for cause, num in passed.items()}
    over = {cause for cause in passed if waited_s[cause] >= PASSES_WITHIN_S}
    return [past for past in history if past.diagnosis.cause in over or not passes(past.diagnosis)]


def why_stop_batch(failures: Mapping[TaskId, Sequence[Failure]]) -> str:
    """Return the reason to start no further attempt of a batch; empty if there is none.

    A batch stops if two tasks fail by the same cause of the machine. For a cause that may lie in the settings, the two
    must share neither patch nor variant. A batch also stops if `MOST_OF_OURS` tasks fail by the same internal fault.
    Failures that waiting cures, as of a full disk, count only once their waits sum to `PASSES_WITHIN_S`.

    Args:
        failures: the failures of this run, by task.
    """
    seen: dict[str, list[TaskId]] = {}
    for task, history in failures.items():
        found = {failure.diagnosis.cause for failure in _counting(history)}
        for cause in sorted(one for one in found if cause_of(one).stops_batch):
            for other in seen.setdefault(cause, []):
                are_unlike = task.patch != other.patch and (not task.variant or task.variant != other.variant)
                if are_unlike or cause_of(cause).lies_in == "machine":
                    return f"{title(cause)} on {other} and on {task}: this machine or the settings are the cause"
            seen[cause].append(task)
    return _why_ours(failures)


def _why_ours(failures: Mapping[TaskId, Sequence[Failure]]) -> str:
    """Return the internal fault that `MOST_OF_OURS` tasks share, as a reason to stop; empty if there is none."""
    struck: dict[tuple[str, ...], set[TaskId]] = {}
    for task, history in failures.items():
        for failure in history:
            if failure.diagnosis.cause == INTERNAL_FAULT:
                struck.setdefault(failure.diagnosis.evidence, set()).add(task)
    worst = max(struck.items(), key=lambda one: len(one[1]), default=None)
    if worst is None or len(worst[1]) < MOST_OF_OURS:
        return ""
    each = f"each time {'; '.join(worst[0])}: the other patches would fail the same way"
    return f"{title(INTERNAL_FAULT)} on {len(worst[1])} patches, {each}"


def resolve(rung: Rung, current: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of a rung as values: "x0.6" multiplies the current value, a list is appended, others replace.

    Args:
        rung: a rung of `retry.ladders`.
        current: the settings in force, by full name.

    Raises:
        ConfigError: a factor on a value that cannot be multiplied; see `takes_factor`.
    """
    return {key: _changed(key, value, current.get(key)) for key, value in rung.items()}


def _why_not_unchanged(history: Sequence[Failure], cause: FailureCause) -> str:
    """Return why another attempt with the same settings would fail again; empty if it may succeed."""
    last = history[-1]
    same_settings = [past for past in history if past.rungs == last.rungs]
    alike = sum(past.diagnosis.cause == last.diagnosis.cause for past in same_settings)
    before = [(past.diagnosis.cause, past.diagnosis.phase) for past in same_settings[:-1]]
    if not cause.may_repeat and (last.diagnosis.cause, last.diagnosis.phase) in before:
        where = f"phase {last.diagnosis.phase}" if last.diagnosis.phase else "the same phase"
        return f"{title(last.diagnosis.cause)} twice in {where}: an attempt with the same settings would fail again"
    return f"{title(last.diagnosis.cause)}: failed {alike} times" if alike > cause.times else ""


def _next_rung(
    history: Sequence[Failure], config: Retry, wait_s: float, current: Mapping[str, object]
) -> RetryAfter | None:
    last = history[-1]
    ladder = cause_of(last.diagnosis.cause).ladder
    if ladder is None:
        return None
    left = list(enumerate(config.ladders.get(ladder, ()), start=1))[last.rungs.get(ladder, 0) :]
    return next((RetryAfter(wait_s, ladder, rung, taken) for taken, rung in left if _changes(rung, current)), None)


def _changes(rung: Rung, current: Mapping[str, object]) -> bool:
    """Return whether a rung changes a setting; True for one that cannot be resolved, so that its error is reported."""
    try:
        return any(key not in current or current[key] != value for key, value in resolve(rung, current).items())
    except ConfigError:
        return True


def _wait_s(cause: str, number: int) -> float:
    """Return the wait in seconds after failure `number` of a cause; the first has number 1."""
    return min(FIRST_WAIT_S * cause_of(cause).patience * 2.0 ** (number - 1), LONGEST_WAIT_S)


def _changed(key: str, value: Any, current: Any) -> Any:
    if isinstance(value, tuple):
        return (*(current or ()), *value)
    factor = factor_of(value)
    if factor is None:
        return value
    if not takes_factor(key, current):
        raise ConfigError(no_factor(key, value, current), "Give a value instead of a factor in retry.ladders.")
    return _scaled(current, factor)


def _scaled(current: Any, factor: float) -> Any:
    """Return a value times a factor; a resolution is rounded down to one of 1/2, 1/4 and 1/8, the smallest."""
    match current:
        case int():
            return int(current * factor)
        case str() if current in RESOLUTIONS:
            share = float(Fraction(current)) if "/" in current else 1.0
            return next((name for name in ("1/2", "1/4") if Fraction(name) <= share * factor), "1/8")
        case str():  # a multiple itself, as "2x"
            return f"{float(current[:-1]) * factor:.6f}".rstrip("0").rstrip(".") + "x"
    return round(current * factor, 12)
