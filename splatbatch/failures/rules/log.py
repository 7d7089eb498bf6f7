"""How a log is read: without colours and harmless lines, with its steps, its end, and the places of known failures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from splatbatch.failures.rules.row import Row, lower, text

QUOTE_CHARS = 240
LINE_CHARS = 2000
"""Longer lines are searched in pieces: the search time of a pattern may grow with the square of a line."""

# Lines of runs that work: blanked before the search, so that nothing in them is taken for a failure.
HARMLESS = text(
    r"Unable to register cu\w+ factory",
    r"computation placer already registered",
    r"TF-TRT Warning",
    r"Unable to initialize backend '\w+'",  # JAX asks for every kind of device and says which it has not
    r"TORCH_CUDA_ARCH_LIST is not set",
    r"Tensorboard not available",
    r"A matching Triton is not available",
    r"Error caught was: No module named",
    r"Failed to load image Python extension",
    r"Encountered quite large input images",
    r"KeyError: 'CameraMessage'",  # viser: an old viewer page
    r"CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR",  # cuDNN says which plans it passed over
    r"FullyFusedMLP is not supported for the selected architecture",
    r"port \d+ (is )?(already )?(in use|not available),? (trying|using)",
    r"^\s*Compile with `?TORCH_USE_CUDA_DSA",  # stands under every CUDA error
)

# what is left of it is searched as two pieces, apart at the blank
ENDLESS_LINE = re.compile(rf"([^\r\n]{{{LINE_CHARS - 2}}})[^\r\n]+([^\r\n]{{{LINE_CHARS - 1}}})")
LONG_LINE = re.compile(rf"([^\n]{{{LINE_CHARS - 1}}})[^\n]")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

TRAINING_STEP = text(
    r"Training(?: progress)?:\s+\d+%[^\n]{0,400}?\b(\d+)/\d+ \[",  # 3DGS and its relatives
    r"\[ITER (\d+)\]",
    r"\bloss=[^\n]{0,160}\b(\d+)/\d+ \[\d",  # gsplat's simple_trainer
    r"^\s*(\d+) \(\d+\.\d+%\)",  # nerfstudio's table
    r"\b(?:iter|iteration|step)[\s:=#]+(\d[\d,]*)\b",
)

FINISHED = text(
    r"Training (is )?(complete|completed|finished|done)\b",
    r"Training progress: 100%",
    r"successfully (trained|finished)",
)

SOUNDS_BAD = text(r"\b(error|exception|traceback|fatal|fail(ed|ure)?|abort(ed)?|critical|panick?(ed)?)\b")


@dataclass(frozen=True)
class Log:
    """The tail of a log, and lines from beside it (the kernel's, the engine's)."""

    tail: str
    beside: tuple[str, ...] = ()

    @cached_property
    def shown(self) -> str:
        """The tail as it is quoted: with the line numbers of the file's tail; endless lines have lost their middle."""
        return ENDLESS_LINE.sub(r"\1… \2", ANSI.sub("", self.tail).replace("\r\n", " \n")).rstrip()

    @cached_property
    def whole(self) -> str:
        """All text; the tail's part has the same places as `shown`."""
        return LONG_LINE.sub(r"\1\n", "\n".join((self.shown, *self.beside)).replace("\r", "\n"))

    @cached_property
    def searched(self) -> str:
        """The same in small letters, with harmless lines blanked."""
        lines = lower(self.whole).split("\n")
        return "\n".join(" " * len(line) if HARMLESS.search(line) else line for line in lines)

    @cached_property
    def last_step(self) -> int:
        """The highest training step that is mentioned; 0 if none is."""
        numbers = (next(filter(None, match.groups()), "0") for match in TRAINING_STEP.finditer(self.searched))
        return max((int(number.replace(",", "")) for number in numbers), default=0)

    @cached_property
    def finished_at(self) -> int:
        """Where it says for the last time that all is done; -1 if it does not."""
        return max((match.start() for match in FINISHED.finditer(self.searched)), default=-1)

    @cached_property
    def sounds_bad(self) -> bool:
        """Whether anything speaks of an error, known or not."""
        return SOUNDS_BAD.search(self.searched) is not None

    def find(self, row: Row) -> re.Match[str] | None:
        """Return where a row's text stands, if all its conditions hold."""
        if row.unless and row.unless.search(self.searched):
            return None
        if row.also and not row.also.search(self.searched):
            return None
        matches = row.pattern.finditer(self.searched)
        return next((match for match in matches if row.holds is None or row.holds(lower(self._line(match)))), None)

    def quote(self, match: re.Match[str]) -> str:
        """Return the line of a match with its number; a long line is cut around the match."""
        line = self._line(match)
        column = match.start() - self.searched.rfind("\n", 0, match.start()) - 1
        begin = max(0, min(column - QUOTE_CHARS // 4, len(line) - QUOTE_CHARS))
        words = line[begin : begin + QUOTE_CHARS].strip()
        if match.start() > len(self.shown):
            return f"outside the log: {words}"
        return f"line {self.shown.count(chr(10), 0, match.start()) + 1}: {words}"

    def last_words(self) -> list[str]:
        """Return the last line that is not empty, with its number."""
        lines = [line.strip() for line in self.shown.split("\n")]
        last = next((number for number in range(len(lines), 0, -1) if lines[number - 1]), 0)
        return [f"line {last}: {lines[last - 1][-QUOTE_CHARS:]}"] if last else []

    def _line(self, match: re.Match[str]) -> str:
        start = self.whole.rfind("\n", 0, match.start()) + 1
        end = self.whole.find("\n", match.start())
        return self.whole[start : end if end >= 0 else None]
