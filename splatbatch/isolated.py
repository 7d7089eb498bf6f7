"""A reader: a process forked from ours that reads what others control, so that whatever hangs or fails is not ours.

A photograph may lie on a mount that has stalled, a model may take all memory, folders may be nested without end. A
reader makes a call for each of some items, and answers for each. One that hangs is killed. Nothing can end a
process that the kernel holds: it is abandoned, and never waited for.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from splatbatch import errors, files
from splatbatch.errors import NotMadeError, SplatbatchError
from splatbatch.files import MIB
from splatbatch.json_text import parse
from splatbatch.outcome import COLLECT, HANGS, INTERNAL_FAULT, NOT_MADE, UNWRITABLE, Diagnosis
from splatbatch.processes import die_with_parent, kernel_file, redirect_to_null, stat_of

Item = TypeVar("Item")
Call = Callable[[Item], Any]
"""What is called in the reader; what it returns must be JSON."""

HANGS_S = 60.0
"""So long a reader may neither read nor compute until it counts as hanging; an NFS server's hiccup is shorter."""
SAYS_S = 10.0
"""After so long without progress it is said what a reader waits for."""
MOST_HANGS = 3
"""So many items in a row that hang: the others lie where they do, and count as hanging at once."""
LOOK_S = 0.5
"""Between two looks at whether a reader makes progress."""
POLL_S = 0.05
MOST_AT_ONCE = 8
"""Readers at work; further ones begin when one of them is over."""
MOST_ABANDONED = 8
"""Readers that were killed and that the kernel still holds; then nothing is read any more that might hang, too."""
MEMORY_SHARE = 0.75
"""Of the memory that is available a reader may take; more is a MemoryError there."""
LEAST_MIB = 1024
MOST_CPU_S = 3600
"""That a call may compute: a file that leads it round in circles ends it, too."""
PASSED_ON_S = 0.3
_NOTE_BYTES = 4096
_PIPE = 3
ORDERS = 4
"""The descriptor by which a reader is told what else to call; see `transfer.courier`."""
RUN_SHORT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What fork(2) and pipe(2) fail with where processes, memory or files run short: it may pass."""
_OOM_SCORE = "500"
"""Where memory runs out all the same, the kernel ends a reader first: proc(5)."""


class StopRequested(Exception):
    """A stop was requested while a reader was at work; the reader was ended."""


class TaskFault(Exception):
    """An unexpected error, or a hang, while the parent worked on one task; it fails that task alone."""

    def __init__(self, diagnosis: Diagnosis, traceback: str = "") -> None:
        super().__init__(diagnosis.advice)
        self.diagnosis, self.traceback = diagnosis, traceback


@dataclass(frozen=True)
class Returned:
    """What a call returned."""

    value: Any

    def result(self, phase: str) -> Any:
        """Return it."""
        return self.value


@dataclass(frozen=True)
class ExpectedError:
    """A call raised an error that the user can mend."""

    error: SplatbatchError | OSError

    def result(self, phase: str) -> NoReturn:
        """Raise it."""
        raise self.error


@dataclass(frozen=True)
class Crashed:
    """A call raised an unexpected error, or its process died."""

    words: str
    traceback: str

    def fault(self, phase: str) -> TaskFault:
        """Return it as the failure of one task."""
        reading = "while it read the files of the attempt; `splatbatch train` reads them again"
        what = reading if phase == COLLECT else "before the training; `splatbatch train` tries again"
        advice = f"splatbatch failed {what}. Please report this with the traceback from `splatbatch explain PATCH`."
        # the innermost place of the traceback: the same place on several patches is one fault
        places = [line.strip() for line in self.traceback.splitlines() if line.startswith('  File "')]
        evidence = (self.words, *(place.rpartition("/")[2] for place in places[-1:]))
        return TaskFault(Diagnosis(INTERNAL_FAULT, "fail", advice, evidence, phase), self.traceback)

    def result(self, phase: str) -> NoReturn:
        """Raise it as the failure of one task."""
        raise self.fault(phase)


@dataclass(frozen=True)
class Hung:
    """A call has made no progress for so long; as an answer: it was abandoned."""

    path: str
    """What it read last; empty if it never said."""
    seconds: float

    def __str__(self) -> str:
        """Return it in words, while it is waited for."""
        return f"waits for {self.path or 'a reader process'} for {self.seconds:.0f} s"

    def result(self, phase: str) -> NoReturn:
        """Raise it as the failure of one task."""
        what = self.path or "a file of the patch"
        advice = f"{what}: has not answered for {self.seconds:.0f} s. Check that its disk or mount is available."
        raise TaskFault(Diagnosis(HANGS, "retry", advice, (f"{what}: no answer for {self.seconds:.0f} s",), phase))


Answer = Returned | ExpectedError | Crashed | Hung


class CallQueue(Generic[Item]):
    """Makes a call for each of some items in a process of its own, anew where one of them ended that process."""

    def __init__(
        self, call: Call[Item], items: Iterable[Item], hangs_s: float | None = None, *, is_low: bool = False
    ) -> None:
        """Fork nothing yet: that is done at the first look.

        Args:
            call: is called in the reader, with an item; it sees everything as it is when the reader is forked.
            items: of the calls.
            hangs_s: so long without progress counts as hanging; None: `HANGS_S`.
            is_low: at the lowest priority: what trains goes first.
        """
        self._call, self._left, self._is_low = call, deque(items), is_low
        self._hangs_s = HANGS_S if hangs_s is None else hangs_s
        self._process: IsolatedProcess | None = None
        self._hangs = 0
        """Items in a row that hang."""

    @property
    def is_over(self) -> bool:
        """Whether every item has its answer."""
        return not self._left

    @property
    def wait(self) -> Hung | None:
        """What is waited for, if nothing goes on for some time."""
        if self._process is None or (seconds := self._process.idle.seconds()) < SAYS_S:
            return None
        return Hung(self._process.note(), seconds)

    @property
    def descriptor(self) -> int | None:
        """What can be read once there is an answer; None: no process is at work."""
        return self._process.pipe if self._process else None

    def look(self) -> list[tuple[Item, Answer]]:
        """Return the answers to further items since it was asked last; never wait."""
        if self._left and self._process is None and (held := num_stuck_readers()) >= MOST_ABANDONED:
            return [(self._left.popleft(), Hung(f"{held} files before it", 0.0))]
        if self._left and self._process is None and len(_AT_WORK) < MOST_AT_ONCE:
            self._process = IsolatedProcess(self._call, tuple(self._left), is_low=self._is_low)
        if self._process is None:
            return []
        found = [(self._left.popleft(), answer) for answer in self._process.answers()]
        self._hangs = 0 if found else self._hangs
        if not self._left:
            self.end()
        elif self._process.is_closed:
            found.append((self._left.popleft(), self._process.why_it_died()))
            self.end()
        elif not found and (idle_s := self._process.idle.seconds()) > self._hangs_s:
            hang, self._hangs = Hung(self._process.note(), idle_s), self._hangs + 1
            while self._left and (not found or self._hangs >= MOST_HANGS):
                found.append((self._left.popleft(), hang))
            self.end()
        return found

    def end(self) -> None:
        """End the process; what the kernel holds is abandoned."""
        if self._process is not None:
            self._process.end()
            self._process = None


class InProcessCalls(CallQueue[Item]):
    """Makes the calls in our own process, at once: where a test's clock is not that of the world."""

    def look(self) -> list[tuple[Item, Answer]]:
        """Make all calls."""
        found = [(item, _rebuilt(_made(self._call, item))) for item in self._left]
        self._left.clear()
        return found


DEFAULT_BACKEND: type[CallQueue[Any]] = CallQueue
"""What calls are made by, but where a test makes them itself."""


@dataclass
class WaitHooks:
    """What is done while a reader is waited for."""

    tick: Callable[[], None] = lambda: None
    stop: Callable[[], str] = lambda: ""
    """Its reason ends the reader."""
    tell: Callable[[str], None] = lambda _: None
    """Hears what is waited for, now and then."""

    def tick_or_stop(self) -> None:
        """Call `tick`.

        Raises:
            StopRequested: `stop` gave a reason.
        """
        self.tick()
        if reason := self.stop():
            raise StopRequested(reason)


ENDLESS = WaitHooks()


def answers(reading: CallQueue[Item], patience: WaitHooks = ENDLESS) -> Iterator[tuple[Item, Answer]]:
    """Yield the answer to each item; meanwhile call the hooks, and tell what is waited for.

    Raises:
        StopRequested: `patience.stop` gave a reason.
    """
    next_word_s = SAYS_S
    try:
        while not reading.is_over:
            found = reading.look()
            yield from found
            patience.tick_or_stop()
            if found:
                next_word_s = SAYS_S
                continue
            if (wait := reading.wait) and wait.seconds >= next_word_s:
                patience.tell(str(wait))
                next_word_s *= 2
            wait_for_any(POLL_S, [reading])
    finally:
        reading.end()


def wait_for_any(seconds: float, readings: Sequence[object]) -> None:
    """Wait for so long, or until one of these has an answer."""
    descriptors = [one for reading in readings if (one := getattr(reading, "descriptor", None)) is not None]
    select.select(descriptors, [], [], seconds)


def start(
    call: Call[Item], items: Sequence[Item], hangs_s: float | None = None, *, is_low: bool = False
) -> CallQueue[Item]:
    """Begin to make calls, see `CallQueue`; the caller looks for answers when it has time."""
    return DEFAULT_BACKEND(call, items, hangs_s, is_low=is_low)


def answer(call: Call[Item], item: Item, patience: WaitHooks = ENDLESS) -> Answer:
    """Make one call, and wait for its answer.

    Raises:
        StopRequested: `patience.stop` gave a reason.
    """
    return next(found for _, found in answers(start(call, [item]), patience))


class IsolatedProcess:
    """A reader process, as its parent sees it."""

    def __init__(self, call: Call[Item], items: Iterable[Item], *, is_low: bool, orders: int | None = None) -> None:
        self.pipe, there = os.pipe2(os.O_CLOEXEC)
        fcntl.fcntl(self.pipe, fcntl.F_SETFL, os.O_NONBLOCK)

        def serve() -> int:
            """Be the reader: make the calls, write a line for each."""
            _step_aside(there, is_low=is_low, orders=orders)
            globals()["DEFAULT_BACKEND"] = InProcessCalls  # what reads is apart already
            for item in items:
                line = _made(call, item).encode() + b"\n"
                while line:
                    line = line[os.write(_PIPE, line) :]
            return 0

        self.pid, self._page = _fork(serve)
        os.close(there)
        self._rest = b""
        self.idle, self.is_closed = IdleTime(self.pid), False
        """For how long it has neither read nor computed; and whether no more answers will come."""
        _AT_WORK.add(self.pid)

    def answers(self) -> list[Answer]:
        """Return the answers that have come."""
        while not self.is_closed:
            try:
                part = os.read(self.pipe, MIB)
            except BlockingIOError:
                break
            self.is_closed = not part
            self._rest += part
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self.idle.moves()
        return [_rebuilt(line) for line in lines]

    def note(self) -> str:
        """Return what it reads, or read last."""
        return _noted(self._page)

    def why_it_died(self) -> Crashed:
        """Say how it ended without an answer."""
        words = "the reader process is gone"
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, 0)  # its end of the pipe is closed: it is as good as gone
            code = os.waitstatus_to_exitcode(status)
            _AT_WORK.discard(self.pid)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            words = f"the reader process {how}{f' while it read {self.note()}' if self.note() else ''}"
        return Crashed(words, words)

    def end(self) -> None:
        """Kill it; whether it is gone is asked later."""
        os.close(self.pipe)
        if self.pid in _AT_WORK:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _AT_WORK.discard(self.pid)
            _ABANDONED[self.pid] = time.monotonic()


_AT_WORK: set[int] = set()
_ABANDONED: dict[int, float] = {}
"""Readers that were killed, or are done, and have not been seen to end; since when."""
DIES_S = 5.0
"""So long a process that was killed may take to die."""


def num_stuck_readers() -> int:
    """Return how many readers the kernel holds, although they were killed."""
    for pid in tuple(_ABANDONED):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            del _ABANDONED[pid]
    return sum(since < time.monotonic() - DIES_S for since in _ABANDONED.values())


def _fork(command: Callable[[], int]) -> tuple[int, mmap.mmap]:
    """Fork a process that runs a command, ends with the exit code that it returns, and dies with us.

    Returned are its number, and where it writes down what it reads.
    """
    page, parent = mmap.mmap(-1, _NOTE_BYTES), os.getpid()
    with warnings.catch_warnings():  # threads of numpy's own do not matter: they have nothing that we wait for
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(signal.SIGKILL, parent)
            files.note_reading = partial(_note_reading, page)
            code = command()
        except BaseException:  # noqa: BLE001 - shown as Python would show it
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return pid, page


def _step_aside(there: int, *, is_low: bool, orders: int | None) -> None:
    """Leave everything of the parent's behind: its signals, its files (a lock among them), its memory."""
    for default in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(default, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    redirect_to_null(0, 1, 2)
    if orders is not None:
        orders = fcntl.fcntl(orders, fcntl.F_DUPFD, ORDERS)  # out of the way of the pipe
    os.dup2(there, _PIPE)
    if orders is not None:
        os.dup2(orders, ORDERS)
    os.closerange(_PIPE + 1 + (orders is not None), os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if is_low:
        with contextlib.suppress(OSError):
            os.nice(19)
    _bound()


def _bound() -> None:
    """Take no more than a share of the memory that is free now, and compute no longer than any call needs."""
    import resource

    with contextlib.suppress(OSError, ValueError, KeyError):
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        room = int(MEMORY_SHARE * 1024 * int(fields["MemAvailable"].split()[0]))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        held = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")  # data and stack
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = held + max(room, LEAST_MIB * MIB)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def _note_reading(page: mmap.mmap, path: str) -> None:
    """Write down, for the parent to see, what is about to be read."""
    text = path.encode(errors="surrogateescape")[-_NOTE_BYTES + 1 :] + b"\0"
    page[: len(text)] = text


def _noted(page: mmap.mmap) -> str:
    """Return what a process reads, or read last."""
    return os.fsdecode(page[:].partition(b"\0")[0])


class IdleTime:
    """For how long a process has neither read nor computed."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._marks: tuple[object, ...] = ()
        self._moved_at = self._next_look = time.monotonic()

    def moves(self) -> None:
        """Take in that it has just said something, or begins something."""
        self._moved_at = time.monotonic()

    def seconds(self) -> float:
        """Look at it now and then; return for how long it has not moved."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            # bytes read and written, CPU time: proc(5)
            marks = (*kernel_file(f"/proc/{self._pid}/io").split()[1:4:2], *stat_of(self._pid)[11:13])
            if marks != self._marks:
                self._marks, self._moved_at = marks, now
        return now - self._moved_at


def run_watched(command: Callable[[], int], tell: Callable[[str], None]) -> int | Hung:
    """Run a whole command that only reads in a child that shares our terminal; return its exit code.

    It is abandoned once it hangs: the photographs may lie on a mount that has stalled.

    Args:
        command: returns its exit code.
        tell: hears what is waited for, now and then.
    """
    pid, page = _fork(command)
    asked = []
    # Ctrl-C of a terminal reaches it, too; one that was sent to us alone is passed on
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(time.monotonic()))
    idle, next_word_s, ending = IdleTime(pid), SAYS_S, list[int]()
    with contextlib.suppress(OSError, AttributeError):  # a kernel that knows no such thing
        ending.append(os.pidfd_open(pid))  # can be read once the process has ended
    try:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if asked and time.monotonic() > asked[0] + PASSED_ON_S:
                asked.clear()
                os.kill(pid, signal.SIGINT)
            if (seconds := idle.seconds()) > HANGS_S:
                os.kill(pid, signal.SIGKILL)
                return Hung(_noted(page), seconds)
            if seconds >= next_word_s:
                tell(str(Hung(_noted(page), seconds)))
                next_word_s *= 2
            select.select(ending, [], [], PASSED_ON_S if ending else POLL_S)
    finally:
        signal.signal(signal.SIGINT, before)


def _made(call: Call[Item], item: Item) -> str:
    """Make a call; return its answer as a line of JSON."""
    try:
        return json.dumps({"value": call(item)})
    except SplatbatchError as error:
        kind = next(one.__name__ for one in type(error).__mro__ if hasattr(errors, one.__name__))
        return json.dumps({"kind": kind, "message": error.message, "hint": error.hint})
    except OSError as error:
        names = [None if name is None else str(name) for name in (error.filename, error.filename2)]
        return json.dumps({"errno": error.errno, "said": error.strerror or str(error), "names": names})
    except BaseException as error:  # noqa: BLE001 - a MemoryError, a RecursionError: whatever a file led us to
        return json.dumps(vars(crash_of(error)))


def crash_of(error: BaseException) -> Crashed:
    """Return an unexpected exception, with its traceback."""
    words = f"{type(error).__name__}: {error}".rstrip(": ").split("\n")[0]
    text, half = "".join(traceback.format_exception(error)), MOST_TRACEBACK // 2
    return Crashed(words, text if len(text) <= MOST_TRACEBACK else f"{text[:half]}\n…\n{text[-half:]}")


def as_fault(error: BaseException, phase: str) -> TaskFault:
    """Return an unexpected exception as the failure of one task."""
    return error if isinstance(error, TaskFault) else crash_of(error).fault(phase)


def diagnose(error: BaseException, folder: Path, phase: str = "start") -> tuple[Diagnosis, str]:
    """Return the diagnosis of whatever was raised while something was done for a task, and its traceback.

    The traceback is empty where the error itself says all.

    Args:
        error: that was raised.
        folder: of the task.
        phase: in which it was.
    """
    if isinstance(error, OSError) and error.errno in RUN_SHORT:
        advice = "Raise the limit of processes (ulimit -u) or end what uses up memory."
        return Diagnosis("process_limit", "retry", advice, (str(error),), phase), ""
    named = [str(name) for name in (error.filename2, error.filename) if name] if isinstance(error, OSError) else []
    if isinstance(error, OSError) and (path := next((one for one in named if Path(one).is_relative_to(folder)), "")):
        advice = (
            f"{path}: {error.strerror or error}. Mend its permissions or move away what stands there, then run again."
        )
        return Diagnosis(UNWRITABLE, "fail", advice, (str(error),), phase), ""
    if isinstance(error, NotMadeError):
        return Diagnosis(NOT_MADE, "fail", f"{error}. It follows once that is made.", (str(error),), phase), ""
    if isinstance(error, SplatbatchError | OSError):
        advice = f"{error}. {getattr(error, 'hint', '')}".rstrip()
        return Diagnosis("not_started", "fail", advice, (str(error),), phase), ""
    fault = as_fault(error, phase)
    return fault.diagnosis, fault.traceback


MOST_TRACEBACK = 8000
"""Characters; of a longer one the beginning and the end are kept."""


def _rebuilt(line: str | bytes) -> Answer:
    """Return the answer that `_made` wrote."""
    try:
        record = parse(line)
    except ValueError:
        record = line
    match record:
        case {"value": value}:
            return Returned(value)
        case {"kind": str(kind), "message": str(message), "hint": str(hint)}:
            return ExpectedError(getattr(errors, kind)(message, hint))
        case {"errno": number, "said": str(said), "names": [first, second]}:
            return ExpectedError(OSError(number, said, first, None, second))
        case {"words": str(words), "traceback": str(text)}:
            return Crashed(words, text)
        case _:
            return Crashed("the reader process wrote no answer", repr(record)[:MOST_TRACEBACK])
