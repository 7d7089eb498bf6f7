"""Evidence of an attempt: how it ended, its log and splat, and the signatures that match the log, with their weights.

`diagnose` reads the evidence; no file of the attempt is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from splatbatch.failures import signs
from splatbatch.failures.advice import PatchContext
from splatbatch.failures.allocations import JUDGES
from splatbatch.failures.exits import SIGABRT, SIGKILL, signal_of
from splatbatch.failures.log import Log, LogLine, lines_of
from splatbatch.failures.signatures import Scope, Signature, Strength, shipped_signatures
from splatbatch.failures.tracebacks import ExceptionTrace
from splatbatch.failures.words import Patterns, lower, places, search
from splatbatch.outcome import Exit, Exited, Lost, NotStarted
from splatbatch.supervisor.external import TooSlow, time_limit

LinePlace = Literal["final", "bare", "caught", "either", "rival", "exception", "error", "plain", "warning"]
"""Type of the place of a line of a log.

In the final exception: `final`; `bare` if its traceback is missing; `caught` if the program went on after it. If two
lines below its frames may be its message, and another thread wrote one, the first is `either`, the second `rival`.
Elsewhere: in another `exception`, in a line that the program calls an `error`, a `plain` line, or a `warning`. A line
from outside the log, as of the kernel, is `final`, too."""

# A match weighs by the strength and scope of its signature and by its place. The highest wins; of equals the first.
CERTAIN, TELLING, LIKELY, WARNED = 60, 40, 20, 3
ECHOED = 8
"""Weight of a line about another process, or of a line of the machine about a process that may be the attempt's.

The line has this weight if the final exception says by itself why the process died."""
MOST_SLOW = 3
"""Number of the user's own signatures that may exceed the time limit; after that, none of them is searched."""
_BESIDE_EXCEPTIONS: Mapping[LinePlace, int] = {
    **dict.fromkeys(("final", "bare", "caught", "either", "rival", "exception"), CERTAIN),
    "error": 44,
    "plain": TELLING,
    "warning": WARNED,
}
WEIGHTS: Mapping[tuple[Strength, Scope], Mapping[LinePlace, int]] = {
    ("strong", "end"): {**dict.fromkeys(_BESIDE_EXCEPTIONS, CERTAIN), "warning": WARNED},
    ("strong", "exception"): _BESIDE_EXCEPTIONS,
    ("strong", "optional"): {
        "final": 50,
        "bare": 30,
        "caught": 24,
        "either": 24,
        **dict.fromkeys(("rival", "exception", "error", "plain"), LIKELY),
    },
    ("strong", "echo"): _BESIDE_EXCEPTIONS,
    ("weak", "exception"): {
        "final": 42,
        "bare": 28,
        "caught": 23,
        "either": 42,
        "rival": 41,
        "error": 19,
        "plain": 18,
        "exception": 15,
    },
    ("hint", "exception"): {
        "final": 27,
        "bare": 27,
        "caught": 22,
        "either": 27,
        "rival": 26,
        "error": 17,
        "plain": 16,
    },
    ("last", "exception"): {
        "final": 25,
        "bare": 25,
        "caught": 21,
        "either": 25,
        "rival": 25,
        "exception": 12,
        "error": 10,
        "plain": 10,
    },
}


class SignatureMatch(NamedTuple):
    """A signature that matches a log, the place of the match, and its weight from WEIGHTS or ECHOED."""

    signature: Signature
    match: re.Match[str]
    weight: int


@dataclass(frozen=True)
class Evidence:
    """All that a diagnosis is made from: exit, log, splat and context of one attempt, or a log alone.

    The log is parsed on first use. Lines are numbered by their index in `Log.lines`, from 0, unless said otherwise.
    """

    end: Exit | None
    """The exit of the process; None: unknown, or it still runs."""
    text: str
    """The text of the log; of a long log its beginning and its end."""
    after: int = 0
    """Number of the line after which lines of a long log are left out, from 1; 0: none are left out."""
    left_out: int = 0
    """Number of lines left out after line `after`."""
    phase: str = ""
    """The last phase that progress.jsonl names, as "load" or "train"; inspections and evaluations have phases of their
    own. Empty: unknown."""
    step: int | None = None
    """The last training step; None: the step that the log reports is taken."""
    artifact: str | None = None
    """The reason why the splat does not count; empty: the splat is whole; None: there is only a log, or a task without
    a splat."""
    oom_killed: bool = False
    """Whether the kernel killed a process of the attempt for memory."""
    kernel_lines: tuple[str, ...] = ()
    """Lines of the kernel or the engine about the attempt, and of splatbatch about a full disk; read after the log."""
    health: str = ""
    """What the training process reported about itself, as "zero_gradients: 50 steps"; empty: nothing."""
    own: Sequence[Signature] = ()
    """Signatures of the user's own file (`failures` in the YAML); of equal weights they win over the shipped ones."""
    background: PatchContext = field(default_factory=PatchContext)
    """Facts about the patch for the advice; empty for a log alone, or a task without a splat."""

    @cached_property
    def log(self) -> Log:
        """The parsed log, followed by the lines of the kernel and, for an exit without a process, its reason."""
        reason = (self.end.reason,) if isinstance(self.end, NotStarted | Lost) else ()
        beside = (LogLine(0, words) for words in (*self.kernel_lines, *reason))
        return Log((*lines_of(self.text, self.after, self.left_out), *beside))

    @property
    def is_watched(self) -> bool:
        """Whether this is an attempt whose splat was checked, and not a log alone or a task without a splat."""
        return self.artifact is not None

    @property
    def is_midrun(self) -> bool:
        """Whether at least one training step was made."""
        return (self.log.last_step if self.step is None else self.step) > 0

    @property
    def ended_well(self) -> bool:
        """Whether the process exited with 0, or `end` is None; False for `Lost`, whose process is gone unseen."""
        return self.end in {None, Exited(0)}

    @property
    def has_finished(self) -> bool:
        """Whether the log says after its last progress that all is done; False if `is_watched`."""
        return not self.is_watched and self.log.finished >= self.log.last_progress

    @cached_property
    def end_begins(self) -> int:
        """The index of the line where the end of the log begins.

        This is the last progress, or the line that says that all is done.
        """
        return max(self.log.last_progress, self.log.finished if self.has_finished else 0)

    @cached_property
    def final(self) -> ExceptionTrace | None:
        """The exception that ended the program; None if there is none after the last progress.

        Of several, these are preferred in turn: an exception that is no echo of another process, an exception with
        frames, and an exception after which only errors or warnings were printed; then the last.
        """
        ends = [one for one in self.log.raised if one.counts and one.is_main and one.end >= self.end_begins]
        own = [one for one in ends if self._tells_of_itself(one)] or ends
        return max(own, key=lambda one: (one.has_frames, not self._went_on_after(one), one.end), default=None)

    def _tells_of_itself(self, one: ExceptionTrace) -> bool:
        """Return whether an exception is the failure itself, and not the echo of a failure in another process."""
        if not one.has_frames or self._is_cut(one) or self._went_on_after(one):
            return False
        return search((*signs.ECHOES, *signs.SYMPTOMS), self._words(one)) is None

    def _words(self, one: ExceptionTrace) -> str:
        """Return the text of an exception's own lines."""
        return "".join(map(self.log.words_of, one.lines))

    def _is_cut(self, one: ExceptionTrace) -> bool:
        """Return whether a traceback has lost its message."""
        end = self.log.words_of(one.end)
        return one.has_frames and (end[:1].isspace() or search(signs.TRACEBACK, end) is not None)

    @cached_property
    def is_explained(self) -> bool:
        """Whether the final exception has its message and does not merely report that something else failed.

        False without a final exception.
        """
        last = self.final
        return last is not None and not self._is_cut(last) and search(signs.SYMPTOMS, self._words(last)) is None

    @cached_property
    def _goes_on(self) -> bool:
        """Whether the program printed ordinary lines after the final exception, so that it may have been caught."""
        return self.final is not None and self._went_on_after(self.final)

    @cached_property
    def _rival(self) -> ExceptionTrace | None:
        """An exception line right below the message of the final exception: either of the two may be its message."""
        last = self.final
        if last is None or not last.has_frames or last.says < last.end:
            return None
        return next((one for one in self.log.raised if one.begin == last.end + 1 and not one.has_frames), None)

    @cached_property
    def _next_raised(self) -> dict[int, int]:
        """The first line of the next exception, by the last line of each."""
        return {one.end: other.begin for one, other in pairwise(self.log.raised)}

    def _went_on_after(self, one: ExceptionTrace) -> bool:
        """Return whether an ordinary line follows before the next exception: no warning, no error, no echo."""
        log, quiet = self.log, (*signs.SOUNDS_BAD, *signs.ECHOES)
        told = (at for at in range(one.end + 1, self._next_raised.get(one.end, len(log.lines))) if log.lines[at].number)
        lines = (log.words_of(at) for at in told if at not in log.warnings)
        return any(not line.isspace() and search(quiet, line) is None for line in lines)

    @cached_property
    def at_end(self) -> tuple[SignatureMatch, ...]:
        """The matches of all signatures in the end of the log, in the order of the signatures; () if none matches."""
        return tuple(self.found(self.known, self.end_begins))

    @cached_property
    def known(self) -> tuple[Signature, ...]:
        """All signatures, those of the user's own file first: of equal weights the first wins."""
        return (*self.own, *shipped_signatures())

    @cached_property
    def too_slow(self) -> list[Signature]:
        """Signatures of the user's own file that were too slow on this log and are left out; filled by `found`."""
        return []

    def found(self, signatures: Iterable[Signature], begin: int) -> Iterator[SignatureMatch]:
        """Yield the signatures that match from line `begin` on, in their order, each with its weightiest match.

        Signatures of the user's own file have a time limit; the shipped ones have none.
        """
        start = self.log.start_of(begin)
        for signature in signatures:
            if one := self._found_in_time(signature, start) if signature.origin else self._found(signature, start):
                yield one

    def _found_in_time(self, signature: Signature, start: int) -> SignatureMatch | None:
        """Return the match of a signature of the site; None without one, or if it exceeds the time limit."""
        if signature in self.too_slow or len(self.too_slow) >= MOST_SLOW:
            return None
        try:
            with time_limit():
                return self._found(signature, start)
        except TooSlow:
            self.too_slow.append(signature)
            return None

    def _found(self, signature: Signature, start: int) -> SignatureMatch | None:
        is_look_alike = signature.unless and self.place_of(signature.unless, start)
        if is_look_alike or (signature.also and not self.place_of(signature.also, start)):
            return None
        matches = (one for one in places(signature.pattern, self.log.searched, start) if self._holds(signature, one))
        weighed = [SignatureMatch(signature, one, self._weight(signature, self.log.line_of(one))) for one in matches]
        return max(weighed, key=self._order, default=None)

    def _order(self, one: SignatureMatch) -> tuple[int, bool, int]:
        """Return the sort key of a match: its weight, then lines that do not merely pass on an exception, the first."""
        return one.weight, self.log.line_of(one.match) not in self.log.wrappers, -one.match.start()

    def place_of(self, patterns: Patterns, start: int) -> re.Match[str] | None:
        """Return the first match of patterns from a position of `Log.searched` on; None without one.

        Exceptions that did not end the program are passed over.
        """
        found = places(patterns, self.log.searched, start)
        return next((one for one in found if self.log.line_of(one) not in self.log.aside), None)

    def _holds(self, signature: Signature, match: re.Match[str]) -> bool:
        line = self.log.line_of(match)
        if self._whose(line) == "another's":
            return False
        return signature.judge is None or JUDGES[signature.judge](lower(self.log.lines[line].words))

    def _whose(self, line: int) -> Literal["ours", "maybe ours", "another's"]:
        """Return whose process a line is about; lines of the machine may name processes of other programs."""
        words, signal = lower(self.log.lines[line].words), signal_of(self.end)
        if not self.log.lines[line].number or self.end is None or isinstance(self.end, Lost) or signal == SIGKILL:
            return "ours"  # the supervisor passes on lines about its own processes alone
        has_ended_itself = signal in {None, SIGABRT}  # a crash may be what the driver tells of
        named = search(signs.OF_A_PROCESS if has_ended_itself else signs.KILLED_FOR_MEMORY, words)
        if named is None or self._has_told(next(filter(None, reversed(named.groups())))):
            return "ours"
        if search(signs.OUR_NAMES, words) is None:
            return "another's"
        return "maybe ours" if has_ended_itself else "ours"

    def _has_told(self, process: str) -> bool:
        """Return whether the program's own lines name a process by this number."""
        told = re.finditer(rf"\bpid\b[^\n]{{0,40}}\b{re.escape(process)}\b", self.log.searched)
        lines = (lower(self.log.lines[self.log.line_of(one)].words) for one in told)
        return any(search(signs.OF_A_PROCESS, words) is None for words in lines)

    def _weight(self, signature: Signature, line: int) -> int:
        scope: Scope = "exception" if signature.strength != "strong" else signature.scope
        last = self.final
        if last and line not in last.lines and (scope == "echo" or self._whose(line) == "maybe ours"):
            is_told_there = self._tells_of_itself(last) if scope == "echo" else self.is_explained
            if is_told_there:
                return ECHOED
        return WEIGHTS[signature.strength, scope].get(self._place(line), 0)

    def _place(self, line: int) -> LinePlace:
        if self.log.lines[line].number == 0:
            return "final"
        last = self.final
        if self._rival and line in {last.says if last else line, *self._rival.lines}:
            return "rival" if line in self._rival.lines else "either"
        if last and line in last.lines:
            return "caught" if self._goes_on else "final" if last.has_frames else "bare"
        if line in self.log.warnings:
            return "warning"
        if line in self.log.in_exceptions:
            return "exception"
        return "error" if line in self.log.errors else "plain"
