"""What may differ between two plays of a night, and between two machines: these tables, and nothing else."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

HOST = socket.gethostname()
Replacement = str | Callable[[re.Match[str]], str]


def _tens(found: re.Match[str]) -> str:
    """Keep how long a retry waits, but for the tenth by which chance lengthens it: 10 to 11 s, 20 to 22 s, …"""
    return f"<{int(float(found[0])) // 10 * 10} or so>"


IN_TEXT: tuple[tuple[str, Replacement], ...] = (
    # places: the folder of the night, this checkout, its Python
    (re.escape(sys.executable), "<python>"),
    # when: dates and times of the day, as 2026-11-26 07:30:46 or 2026-11-26T07:30:46+0000
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([+-]\d{4})?", "<time>"),
    # how long: 0:00:13, in 12 s, after 3 s; before it the wait of a retry, of which the tens count
    (r"(?<=retry in )\d+(?= s\b)|(?<=retry after )\d+(?= s\b)", _tens),
    (r"\b\d+:\d\d:\d\d\b", "<span>"),
    (r"(?<= in )\d+ s\b|(?<= after )\d+ s\b|(?<= took )\d+ s$", "<span>"),
    (r"^(splatbatch_\w+_seconds(?:{.*})?) \S+$", r"\1 <s>"),  # of metrics.prom
    # which file: a trainer by its time, bundles of a store by chance, and where a worker of a store trains
    (r"(?<=/bin/scripted-trainer )[0-9a-f]{16}", "<file>"),
    (r"\b[0-9a-f]{32}\b", "<token>"),
    (rf"/[^ =]*/splatbatch-\d+/worker-\d+-\d+-{re.escape(HOST)}", "<scratch>"),
    # who: hosts, processes, names of workers (host-pid-token), and of batches, which are made of their path
    (rf"\b{re.escape(HOST)}-\d+-[0-9a-f]{{6,}}", "<worker>"),
    (rf"(?<=\bon ){re.escape(HOST)}\b|^{re.escape(HOST)}$", "<host>"),
    (r"\bprocess \d+\b", "process <pid>"),
    (r"\b[0-9a-f]{16}(?=\.\S+\.a\d+)", "<batch>"),
    # what is ours alone: names of modules of the package
    (r"^splatbatch(\.\w+)+$", "<module>"),
    (r"(?<=^splatbatch )\d+\.\d+\.\w+", "<version>"),
    # how large the machine is
    (r"this machine's \d+ cores?", "this machine's <cores>"),
)  # fmt: skip
"""What may differ in what is printed and in strings of JSON: a regular expression, and what stands in its place."""

OF_TRAINING: tuple[tuple[str, Replacement], ...] = (
    (r"(?<![\w.])[+-]?\d+\.\d+(?![\w.])", "<figure>"),  # dB, MiB: another torch or CPU rounds otherwise
    (r"(?<![\w.,])\d{1,3}(,\d{3})+(?![\w,])", "<count>"),  # Gaussians
    (r"(?<=  )\d+%(?=  )", "<share>"),
    (r"(?<=\S) {2,}", "  "),  # columns are as wide as their figures
    (r"(?<=-  -  )\d+(?=  )", "<span>"),  # of publish
    (r"^[0-9a-f]{16}$|^[0-9a-f]{64}$", "<hash>"),  # of what was trained, or made of it
)
"""The same, where something is really trained."""

BY_KEY: Mapping[str, str] = {
    r"seconds|beaten_at|(setup|pace|gate|eta|full|expected|forecast)_s": "<s>",  # how long
    r"pid|ticks|child|below|group|space|boot_id|token|sequence": "<process>",
    r"(disk|shm)_free_mib|peak": "<MiB>",  # what was left, and what was used
    r"version|python|torch|gsplat|splatbatch": "<version>",  # but for a whole number, which is that of a format
    r"host|node": "<host>",
    r"key/inputs": "<file>",  # of a task that was given up: its files as the disk has them, times included
}
"""Values of JSON by their key, or by it and the one above; nulls, flags and what is empty stay."""
BY_KEY_OF_TRAINING: Mapping[str, str] = {
    r"value|cover|distance|blur|exposure|registration|shift|z|y|x": "<figure>",  # of an inspection
    r"bytes|num_bytes|bytes_before": "<bytes>",  # of files that are compressed
    r"num_outside|middle": "<figure>",  # of Gaussians, which another CPU places otherwise
}
"""The same, where something is really trained."""
KEPT = ("recipe", "effective", "files")
"""Keys of hashes that depend on settings and inputs alone: they stay also where something is really trained."""
TIMES = (1.5e9, 3e9)
"""A number between these is a time in seconds since 1970; one above 1e17 is one in nanoseconds."""
MOST_DIGITS = 3
"""A number with more digits is no setting; where something is really trained it depends on torch and CPU."""


@dataclass(frozen=True)
class Mask:
    """Replaces what may differ in texts and JSON of one night."""

    night: Path
    checkout: Path
    is_trained: bool = False
    """Something is really trained there: figures and splats differ from machine to machine."""
    workers: tuple[str, ...] = ()
    """Names of workers, in the order in which they began."""

    def text(self, text: str) -> str:
        """Return a text as it may not differ."""
        for number, name in enumerate(self.workers, start=1):
            text = text.replace(name, f"<worker {number}>")
        text = text.replace(str(self.night), "<night>")
        for pattern, replacement in (*IN_TEXT, *(OF_TRAINING if self.is_trained else ())):
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text.replace(str(self.checkout), "<checkout>")

    def json(self, found: Any, key: str = "", above: str = "") -> Any:
        """Return JSON as it may not differ."""
        if found is None or isinstance(found, bool) or found in ("", [], {}):
            return found
        if name := self._of_key(key, above, found):
            return name
        if isinstance(found, dict):
            kept = key if key in KEPT else ""
            return {self.text(name): self.json(value, kept or name, key) for name, value in found.items()}
        if isinstance(found, list):
            kept = key if key in KEPT else ""
            values = [self.json(value, kept) for value in found]
            values = by("worker", values) if key == "workers" else values  # by names, which begin with process ids
            return by("patch", values)
        if isinstance(found, str):
            return self._splats.get(found) or (found if key in KEPT else self.text(found))
        return self._number(found, key)

    def _number(self, found: float, key: str) -> Any:
        if key == "wait_s":
            return f"<{int(found) // 10 * 10} or so>"
        if TIMES[0] < found < TIMES[1] or found > 1e17:
            return "<time>"
        digits = len(f"{found:.15g}".replace(".", "").strip("-0"))
        return "<figure>" if self.is_trained and digits > MOST_DIGITS else found

    def _of_key(self, key: str, above: str, found: Any) -> str:
        rules = {**BY_KEY, **(BY_KEY_OF_TRAINING if self.is_trained else {})}
        names = (key, f"{above}/{key}")
        name = next((name for keys, name in rules.items() if any(re.fullmatch(keys, one) for one in names)), "")
        return "" if name == "<version>" and isinstance(found, int) else name

    @cached_property
    def _splats(self) -> Mapping[str, str]:
        """Whose the hashes of trained splats are: a hash differs from machine to machine, whose it is does not."""
        paths = sorted(self.night.rglob("*.ply"), reverse=True) if self.is_trained else ()
        return {sha256(path.read_bytes()).hexdigest(): f"<hash of {path.relative_to(self.night)}>" for path in paths}


def pretty(found: Any, indent: str = "") -> str:
    """Return JSON as it is recorded: a value on a line, in the order in which it was written, short lists on one."""
    plain = json.dumps(found, ensure_ascii=False)
    if not isinstance(found, dict | list) or not found or (isinstance(found, list) and len(indent + plain) < 110):
        return plain
    inner = indent + " "
    if isinstance(found, dict):
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {pretty(value, inner)}" for key, value in found.items()]
    else:
        lines = [pretty(value, inner) for value in found]
    left, right = "{}" if isinstance(found, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{right}"


OF_PROGRESS: tuple[str, ...] = (
    r"<time> [\w@-]+: \w* ?\d+/\d+( \(\d+%\))?(,.*)?",  # p0: train 7/20 (35%), loss 0.1429
    r"<time> .* left: .*",  # 1 patch left: 1 of 2 trained, 1 running
    r"(<time> )?[\w .-]+: [\d,]+ of [\d,]+ \w+( \(\w+\))?(, about .* to go)?",  # evaluate: 0 of 5 steps (seams)
)
"""Lines that say how far something is, every so many seconds: how many there are depends on how busy the machine is."""


def without_progress(text: str) -> str:
    """Leave out lines that say how far something is, of a text in which times are replaced."""
    kept = (line for line in text.splitlines() if not any(re.fullmatch(one, line) for one in OF_PROGRESS))
    return "".join(f"{line}\n" for line in kept)


TASK = re.compile(r"<time> (p\d[\w@-]*|backdrop): ")


def lines_by_task(text: str) -> str:
    """Sort the lines that begin with a task, in the places that they have.

    A task begins while the one before it is collected: chance decides which is told first. Within a task order stays.
    """
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if TASK.match(line)]
    ordered = sorted((lines[place] for place in places), key=lambda line: TASK.match(line)[1])
    for place, line in zip(places, ordered, strict=True):
        lines[place] = line
    return "".join(lines)


def by(key: str, values: list[Any]) -> list[Any]:
    """Sort the records that have a text by that name, in the places that they have; other values stay."""
    places = [place for place, one in enumerate(values) if isinstance(one, dict) and isinstance(one.get(key), str)]
    ordered, found = sorted((values[place] for place in places), key=lambda one: one[key]), list(values)
    for place, one in zip(places, ordered, strict=True):
        found[place] = one
    return found
