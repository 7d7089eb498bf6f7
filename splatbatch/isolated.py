"""Reader processes: forked children that read files of the user, so that a hang or crash there costs only one task.

A photograph may lie on a stalled mount, a model may take all memory, folders may be nested without end. A reader makes
one call per item and returns an answer for each. A reader that hangs is killed. If the kernel holds the killed process
in spite of that, the process is abandoned and never waited for. The parent is the process that forked a reader.
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
from splatbatch.processes import available_mib, die_with_parent, kernel_file, redirect_to_null, stat_of

Item = TypeVar("Item")
Call = Callable[[Item], Any]
"""A function that the reader process calls with each item; its result must be a value that JSON can hold."""

HANGS_S = 60.0
"""Time in seconds without reading or computing after which a reader counts as hanging; NFS servers pause for less."""
SAYS_S = 10.0
"""Time in seconds without progress after which the user is told which file a reader waits for."""
MOST_HANGS = 3
"""Number of items that hang, with no answer of a reader in between, after which all others of the queue count as
hanging, too, unread."""
LOOK_S = 0.5
"""Interval in seconds at which the progress of a reader is checked."""
POLL_S = 0.05
MOST_AT_ONCE = 8
"""Number of processes at work (readers and couriers) at which no further reader starts until one ends."""
MOST_ABANDONED = 8
"""Number of killed readers still held by the kernel at which no further reader starts; all items then count as
hanging."""
MEMORY_SHARE = 0.75
"""Share of the available memory, from 0 to 1, that a reader may take; allocations beyond it raise MemoryError there."""
LEAST_MIB = 1024
"""Memory that a reader may take even if less is available, in MiB."""
MOST_CPU_S = 3600
"""Most CPU time of a reader in seconds, so that a file that makes it loop forever ends it."""
PASSED_ON_S = 0.3
"""Time in seconds after which Ctrl-C is passed on to a child of `run_watched` that has not ended by itself."""
_NOTE_BYTES = 4096
_PIPE = 3
ORDERS = 4
"""Number of the file descriptor from which a reader may receive further calls to make, as a courier does
(see `transfer.courier`)."""
RUN_SHORT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Error numbers of fork(2) and pipe(2) when processes, memory or open files run short; a later try may succeed."""
_OOM_SCORE = "500"
"""Score by which the kernel kills a reader first when memory runs out, see proc(5)."""


class StopRequested(Exception):
    """Raised when a stop was requested during a wait; a reader that `answers` waited for was ended."""


class TaskFault(Exception):
    """An unexpected error, or a hang, while the parent worked on one task; that task alone fails.

    Its `diagnosis` says what happened and what to do; `traceback` is "" if there is none.
    """

    def __init__(self, diagnosis: Diagnosis, traceback: str = "") -> None:
        super().__init__(diagnosis.advice)
        self.diagnosis, self.traceback = diagnosis, traceback


@dataclass(frozen=True)
class Returned:
    """The answer of a call that returned; `value` is the result."""

    value: Any

    def result(self, phase: str) -> Any:
        """Return the value; `phase` is not used."""
        return self.value


@dataclass(frozen=True)
class ExpectedError:
    """The answer of a call that raised an error which the user can mend."""

    error: SplatbatchError | OSError

    def result(self, phase: str) -> NoReturn:
        """Raise the error; `phase` is not used.

        Raises:
            SplatbatchError: the call raised this error.
            OSError: the call raised this error.
        """
        raise self.error


@dataclass(frozen=True)
class Crashed:
    """The answer of a call that raised an unexpected error, or whose process died.

    `words` is the error in one line; `traceback` is the traceback or, if the process died, the same line.
    """

    words: str
    traceback: str

    def fault(self, phase: str) -> TaskFault:
        """Return a TaskFault with cause `internal_fault`.

        Its evidence is the error and, if there is a traceback, its innermost place.

        Args:
            phase: the phase of the task in which the call was made, for the diagnosis.
        """
        reading = "while it read the files of the attempt; `splatbatch train` reads them again"
        what = reading if phase == COLLECT else "before the training; `splatbatch train` tries again"
        advice = f"splatbatch failed {what}. Please report this with the traceback from `splatbatch explain PATCH`."
        # the innermost place of the traceback: the same place on several patches is one fault
        places = [line.strip() for line in self.traceback.splitlines() if line.startswith('  File "')]
        evidence = (self.words, *(place.rpartition("/")[2] for place in places[-1:]))
        return TaskFault(Diagnosis(INTERNAL_FAULT, "fail", advice, evidence, phase), self.traceback)

    def result(self, phase: str) -> NoReturn:
        """Raise the failure of one task; `phase` is the phase of the task, for the diagnosis.

        Raises:
            TaskFault: the exception of `fault`.
        """
        raise self.fault(phase)


@dataclass(frozen=True)
class Hung:
    """A call without progress for some time; as an answer it means that the call was abandoned."""

    path: str
    """The file that the call opened last, or what it waits for; empty: unknown."""
    seconds: float
    """Time without progress, in seconds."""

    def __str__(self) -> str:
        """Return a message for the user who waits."""
        return f"waits for {self.path or 'a file'}: no answer for {self.seconds:.0f} s"

    def result(self, phase: str) -> NoReturn:
        """Raise the failure of one task; `phase` is the phase of the task, for the diagnosis.

        Raises:
            TaskFault: its cause is `read_hangs`.
        """
        what = self.path or "a file of the patch"
        advice = f"{what}: no answer for {self.seconds:.0f} s. Check that its disk is available, then run again."
        raise TaskFault(Diagnosis(HANGS, "retry", advice, (f"{what}: no answer for {self.seconds:.0f} s",), phase))


Answer = Returned | ExpectedError | Crashed | Hung


class CallQueue(Generic[Item]):
    """Calls a function with each item in a reader process, and starts another reader if an item ended the first one.

    Answers come in the order of the items, one for each. No method waits for a call; the caller asks `look` often.
    """

    def __init__(
        self, call: Call[Item], items: Iterable[Item], hangs_s: float | None = None, *, is_low: bool = False
    ) -> None:
        """Prepare the calls; the reader is forked at the first `look`.

        Args:
            call: called in the reader with each item; it sees the memory of the parent at the moment of the fork.
            items: the arguments of the calls.
            hangs_s: time without progress that counts as hanging; None: `HANGS_S`.
            is_low: run the reader at the lowest priority, so that trainings go first.
        """
        self._call, self._left, self._is_low = call, deque(items), is_low
        self._hangs_s = HANGS_S if hangs_s is None else hangs_s
        self._process: IsolatedProcess | None = None
        self._hangs = 0
        """Number of items in a row that hung."""

    @property
    def is_over(self) -> bool:
        """Whether every item has its answer."""
        return not self._left

    @property
    def wait(self) -> Hung | None:
        """The file that the reader waits for, and for how long.

        None: the reader made progress within the last `SAYS_S` seconds, or no reader is at work.
        """
        if self._process is None or (seconds := self._process.idle.seconds()) < SAYS_S:
            return None
        return Hung(self._process.note(), seconds)

    @property
    def descriptor(self) -> int | None:
        """The number of the pipe that becomes readable when an answer comes; None: no reader is at work."""
        return self._process.pipe if self._process else None

    def look(self) -> list[tuple[Item, Answer]]:
        """Return the answers that have come since the last call, each with its item; start a reader if needed.

        The list is empty if no answer has come. An item whose reader died or hangs gets a `Crashed` or `Hung` as its
        answer. Unread items get a `Hung`, too, after `MOST_HANGS` hangs, and while the kernel holds `MOST_ABANDONED`
        readers. While `MOST_AT_ONCE` others are at work, no reader is started.

        Raises:
            OSError: no reader can be started.
        """
        if self._left and self._process is None and (held := num_stuck_readers()) >= MOST_ABANDONED:
            return [(self._left.popleft(), Hung(f"{held} files read before this one", self._hangs_s))]
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
        """Kill the reader without waiting for its end.

        Items without an answer stay open, and another `look` begins them anew.
        """
        if self._process is not None:
            self._process.end()
            self._process = None


class InProcessCalls(CallQueue[Item]):
    """A CallQueue without another process: used inside a reader, and by tests with a simulated clock."""

    def look(self) -> list[tuple[Item, Answer]]:
        """Make all calls that are left, and return each item with its answer."""
        found = [(item, _rebuilt(_made(self._call, item))) for item in self._left]
        self._left.clear()
        return found


DEFAULT_BACKEND: type[CallQueue[Any]] = CallQueue
"""The class of queues that `start` makes; a reader and tests replace it by InProcessCalls."""


@dataclass
class WaitHooks:
    """Functions that the parent calls while it waits for a reader."""

    tick: Callable[[], None] = lambda: None
    """Called in every round of waiting, about every 0.05 s."""
    stop: Callable[[], str] = lambda: ""
    """Returns a reason to stop, which ends the reader; "": go on."""
    tell: Callable[[str], None] = lambda _: None
    """Called with a message about the file that is waited for, after `SAYS_S` seconds and then at doubled times."""

    def tick_or_stop(self) -> None:
        """Call `tick`, then `stop`.

        Raises:
            StopRequested: `stop` gave a reason.
        """
        self.tick()
        if reason := self.stop():
            raise StopRequested(reason)


ENDLESS = WaitHooks()
"""Hooks that do nothing and never stop a wait."""


def answers(reading: CallQueue[Item], patience: WaitHooks = ENDLESS) -> Iterator[tuple[Item, Answer]]:
    """Yield each item with its answer, in order, and call the hooks while waiting; the reader ends with the iteration.

    The wait has no time limit: it lasts while the reader makes progress, or while none may start.

    Args:
        reading: the queue of calls.
        patience: the hooks to call.

    Raises:
        StopRequested: `patience.stop` gave a reason.
        OSError: no reader can be started.
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
    """Wait up to `seconds`, or until one of the call queues `readings` has an answer."""
    descriptors = [one for reading in readings if (one := getattr(reading, "descriptor", None)) is not None]
    select.select(descriptors, [], [], seconds)


def start(
    call: Call[Item], items: Sequence[Item], hangs_s: float | None = None, *, is_low: bool = False
) -> CallQueue[Item]:
    """Return a `CallQueue` for the calls; the caller asks its `look` for answers and need not wait.

    Args:
        call: called in the reader with each item.
        items: the arguments of the calls.
        hangs_s: time in seconds without progress that counts as hanging; None: `HANGS_S`.
        is_low: run the reader at the lowest priority, so that trainings go first.
    """
    return DEFAULT_BACKEND(call, items, hangs_s, is_low=is_low)


def answer(call: Call[Item], item: Item, patience: WaitHooks = ENDLESS) -> Answer:
    """Make one call in a reader process, wait for it, and return its answer, also if the call failed or hung.

    The wait has no time limit, see `answers`.

    Args:
        call: called in the reader with the item.
        item: the argument of the call.
        patience: hooks to call while waiting.

    Raises:
        StopRequested: `patience.stop` gave a reason.
        OSError: no reader can be started.
    """
    return next(found for _, found in answers(start(call, [item]), patience))


class IsolatedProcess:
    """A running reader process, as its parent sees it: its pipe, its answers, and whether it makes progress."""

    def __init__(self, call: Call[Item], items: Iterable[Item], *, is_low: bool, orders: int | None = None) -> None:
        """Fork the reader, which makes its calls at once, one after the other, and then ends.

        Args:
            call: called in the reader with each item; it sees the memory of the parent at the moment of the fork.
            items: the arguments of the calls; the reader iterates over them, so they may be endless.
            is_low: run the reader at the lowest priority.
            orders: descriptor that the reader has open as number `ORDERS`; None: none.

        Raises:
            OSError: no reader can be started, as processes, memory or open files run short.
        """
        self.pipe, there = os.pipe2(os.O_CLOEXEC)
        fcntl.fcntl(self.pipe, fcntl.F_SETFL, os.O_NONBLOCK)

        def serve() -> int:
            """Run as the reader process: make the calls, and write a line of JSON for each into the pipe."""
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
        """Time without reading or computing, and whether the reader has closed its end of the pipe."""
        _AT_WORK.add(self.pid)

    def answers(self) -> list[Answer]:
        """Return the answers that are in the pipe, in order and without waiting; an empty list if there are none."""
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
        """Return the path of the file that the reader opened last, or what a courier waits for; "": neither."""
        return _noted(self._page)

    def why_it_died(self) -> Crashed:
        """Return the answer for the item at which the reader died: its signal or exit code, and the file that it read.

        Only that it is gone, if it was reaped already.

        To be called once the reader has closed its end of the pipe. Waits, without limit, for its end, and reaps it.
        """
        words = "the reader process is gone"
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, 0)  # its end of the pipe is closed: it is as good as gone
            code = os.waitstatus_to_exitcode(status)
            _AT_WORK.discard(self.pid)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            words = f"the reader process {how}{f' while it read {self.note()}' if self.note() else ''}"
        return Crashed(words, words)

    def end(self) -> None:
        """Close the pipe and kill the reader without waiting; `num_stuck_readers` reaps it later."""
        os.close(self.pipe)
        if self.pid in _AT_WORK:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _AT_WORK.discard(self.pid)
            _ABANDONED[self.pid] = time.monotonic()


_AT_WORK: set[int] = set()
_ABANDONED: dict[int, float] = {}
"""Time of the kill of each reader that has not been reaped yet."""
DIES_S = 5.0
"""Time in seconds that a killed reader may take to die before it counts as held by the kernel."""


def num_stuck_readers() -> int:
    """Return how many killed readers have not died within `DIES_S` seconds; reap those that have ended."""
    for pid in tuple(_ABANDONED):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            del _ABANDONED[pid]
    return sum(since < time.monotonic() - DIES_S for since in _ABANDONED.values())


def _fork(command: Callable[[], int]) -> tuple[int, mmap.mmap]:
    """Fork a child that runs a command and exits with its result; the child dies with its parent.

    Returns the pid, and shared memory that holds the path of the file that the child opened last.
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
    """Make this child a reader: default signals, no open files of the parent (no lock), limits of memory and CPU."""
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
    """Limit this process to `MEMORY_SHARE` of the available memory, at least `LEAST_MIB`, and to `MOST_CPU_S`."""
    import resource

    with contextlib.suppress(OSError, ValueError, IndexError):
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        held = int(kernel_file("/proc/self/statm").split()[5]) * os.sysconf("SC_PAGE_SIZE")  # data and stack
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = held + MIB * max(int(MEMORY_SHARE * available_mib()), LEAST_MIB)
        resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, sys.maxsize if hard < 0 else hard), hard))


def _note_reading(page: mmap.mmap, path: str) -> None:
    """Write the path that is about to be opened into memory shared with the parent."""
    text = path.encode(errors="surrogateescape")[-_NOTE_BYTES + 1 :] + b"\0"
    page[: len(text)] = text


def _noted(page: mmap.mmap) -> str:
    """Return the path that a child noted last."""
    return os.fsdecode(page[:].partition(b"\0")[0])


class IdleTime:
    """Measures how long the process with the id `pid` has neither read, written nor used CPU time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._marks: tuple[object, ...] = ()
        self._moved_at = self._next_look = time.monotonic()

    def moves(self) -> None:
        """Note that the process has just made progress."""
        self._moved_at = time.monotonic()

    def seconds(self) -> float:
        """Return the time in seconds without progress; /proc is read at most every `LOOK_S` seconds."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            # bytes read and written, CPU time: proc(5)
            marks = (*kernel_file(f"/proc/{self._pid}/io").split()[1:4:2], *stat_of(self._pid)[11:13])
            if marks != self._marks:
                self._marks, self._moved_at = marks, now
        return now - self._moved_at


def run_watched(command: Callable[[], int], tell: Callable[[str], None]) -> int | Hung:
    """Run a command that only reads in a child on the same terminal; return its exit code, or a `Hung` if it hangs.

    After `HANGS_S` seconds without progress the child is killed and abandoned: its files may lie on a stalled mount. A
    child that makes progress may run without limit. A child ended by a signal has the exit code 128 plus the number of
    the signal.

    Args:
        command: returns its exit code.
        tell: called with a message about the file that is waited for, after `SAYS_S` seconds and then at doubled times.

    Raises:
        OSError: the child cannot be started.
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
    """Make a call; return its answer, or what it raised, as a line of JSON for `_rebuilt`."""
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
    """Return an unexpected exception as the answer of a call; its traceback is cut to `MOST_TRACEBACK` characters."""
    words = f"{type(error).__name__}: {error}".rstrip(": ").split("\n")[0]
    text, half = "".join(traceback.format_exception(error)), MOST_TRACEBACK // 2
    return Crashed(words, text if len(text) <= MOST_TRACEBACK else f"{text[:half]}\n…\n{text[-half:]}")


def as_fault(error: BaseException, phase: str) -> TaskFault:
    """Return an unexpected exception as the failure of one task; a TaskFault is returned unchanged.

    Args:
        error: the exception.
        phase: the phase of the task in which it was raised, for the diagnosis.
    """
    return error if isinstance(error, TaskFault) else crash_of(error).fault(phase)


def diagnose(error: BaseException, folder: Path, phase: str = "start") -> tuple[Diagnosis, str]:
    """Return the diagnosis and the traceback of an exception that was raised while the parent worked on a task.

    The traceback is "" for errors that the user can mend. The cause is that of a TaskFault, or one of: process_limit,
    output_unwritable, not_made, not_started (other errors that the user can mend), internal_fault (all others).

    Args:
        error: the exception.
        folder: the folder of the task; an OSError about a path in it is diagnosed as `output_unwritable`, unless its
            number is one of `RUN_SHORT`.
        phase: the phase of the task in which it was raised, for the diagnosis.
    """
    if isinstance(error, OSError) and error.errno in RUN_SHORT:
        advice = "Raise the limit of processes (ulimit -u), or end programs that use up memory, then run again."
        return Diagnosis("process_limit", "retry", advice, (str(error),), phase), ""
    named = [str(name) for name in (error.filename2, error.filename) if name] if isinstance(error, OSError) else []
    if isinstance(error, OSError) and (path := next((one for one in named if Path(one).is_relative_to(folder)), "")):
        advice = f"{path}: {error.strerror or error}. Fix its permissions, or move it away, then run again."
        return Diagnosis(UNWRITABLE, "fail", advice, (str(error),), phase), ""
    if isinstance(error, NotMadeError):
        return Diagnosis(NOT_MADE, "fail", f"{error}. The task runs once its input is made.", (str(error),), phase), ""
    if isinstance(error, SplatbatchError | OSError):
        advice = f"{error}. {getattr(error, 'hint', '')}".rstrip()
        return Diagnosis("not_started", "fail", advice, (str(error),), phase), ""
    fault = as_fault(error, phase)
    return fault.diagnosis, fault.traceback


MOST_TRACEBACK = 8000
"""Most characters of a traceback that are kept; of a longer one the beginning and the end."""


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
            return Crashed("the process that reads files gave no answer", repr(record)[:MOST_TRACEBACK])
