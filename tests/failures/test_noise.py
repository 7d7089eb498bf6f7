"""Noise probe: harmless lines above, between and below the lines of an ending leave its diagnosis as it is."""

import re
from collections import Counter
from pathlib import Path

import pytest

from splatbatch.failures.diagnose import diagnose_log

HERE = Path(__file__).parent
PLACES = ("above", "between", "below")


def noise(name: str = "noise.txt") -> list[str]:
    """Read what runs that work print: blocks of lines, apart at blank ones."""
    return (HERE / name).read_text(encoding="utf-8").strip().split("\n\n")


def endings() -> dict[str, tuple[list[str], int, str, str]]:
    """Read how trainings end: a sentence, exit code, cause and action, and indented the log with --- before the end."""
    found = {}
    for block in (HERE / "endings.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lines = block.split("\n")
        sentence, code, cause, action = re.fullmatch(r"(.+): exit (\d+) -> (\w+) (\w+)", head).groups()
        log = "\n".join(line.removeprefix("    ") for line in lines)
        found[sentence] = (log.split("\n---\n"), int(code), cause, action)
    return found


def log_with(line: str, place: str, parts: list[str]) -> str:
    """Return the log of an ending with a harmless line in it."""
    before, after = parts
    blocks = {
        "above": (line, before, after),
        "between": (before, line, after),
        "below": (before, after, line),
    }
    return "\n".join(blocks[place]) + "\n"


@pytest.mark.parametrize("name", endings())
def test_an_ending_alone_is_recognised(name):
    parts, code, cause, action = endings()[name]
    found = diagnose_log("\n".join(parts), code)
    assert (found.cause, found.action) == (cause, action)


@pytest.mark.slow(but="more_noise.txt")
@pytest.mark.parametrize("lines", ["noise.txt", "more_noise.txt"])
def test_harmless_lines_change_no_diagnosis(lines):
    wrong, lost, burnt = Counter(), [], []
    for name, (parts, code, cause, action) in endings().items():
        for line in noise(lines):
            for place in PLACES:
                found = diagnose_log(log_with(line, place, parts), code)
                wrong[found.cause != cause] += 1
                if action == "retry" and found.action == "fail":
                    lost.append((name, place, line, found))
                if action in ("fail", "ok") and found.action == "retry":
                    burnt.append((name, place, line, found))
    total = wrong.total()
    print(f"{total} pairs: {wrong[False] / total:.2%} causes right, {len(lost)} lost, {len(burnt)} burnt")
    assert (len(noise(lines)) >= 30, len(endings()) >= 20) == (True, True)
    assert (lost, burnt) == ([], [])
    assert wrong[False] >= 0.97 * total
