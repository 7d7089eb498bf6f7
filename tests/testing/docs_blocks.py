"""The shell blocks of the documents, in the order in which a reader meets them, and how they are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATH = ("start.md", "folder.md", "night.md", "failed.md")
"""What a new user reads first, in this order; docs/index.md says so."""
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?:sh|bash|console|shell)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN, EXITS = re.compile(r"not run: (.+)"), re.compile(r"exits with (\d+)(?: or (\d+))?(?:: .*)?")
LONGEST_S = 600


@dataclass(frozen=True)
class Block:
    """A block of shell: where it stands, what it says, why it is not run, how it ends."""

    page: str
    line: int
    text: str
    not_run: str = ""
    codes: tuple[int, ...] = (0,)


def blocks_of(path: Path) -> Iterator[Block]:
    text = path.read_text()
    for found in BLOCK.finditer(text):
        mark = found["mark"] or ""
        not_run, exits = NOT_RUN.fullmatch(mark), EXITS.fullmatch(mark)
        assert not mark or not_run or exits, f"{path.name}: what does this mean: {mark}"
        codes = tuple(int(code) for code in exits.groups() if code) if exits else (0,)
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(path.name, line, found["text"], not_run[1] if not_run else "", codes)


def every_page() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def run(block: Block, home: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as a new user's shell does: a bare environment, a home of its own, stopping at what fails."""
    for name, target in {"python3": sys.executable}.items():
        if not (programs / name).exists():
            (programs / name).symlink_to(target)
    environment = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    if threads := os.environ.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = threads
    command = ["bash", "-e", "-c", block.text]
    return subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def told(block: Block, ended: subprocess.CompletedProcess[str]) -> str:
    """Return what somebody wants to know of a block that did not end as it says."""
    return f"{block.page}:{block.line} ended with {ended.returncode}, not {block.codes}\n{ended.stdout}\n{ended.stderr}"
