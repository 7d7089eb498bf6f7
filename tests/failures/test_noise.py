"""Noise probe: harmless lines above, between and below the lines of an ending leave its diagnosis as it is."""

from collections import Counter

import pytest
from harmless import Ending, endings, noise
from logs import diagnose_log

PLACES = ("above", "between", "below")
LINES = [
    *(pytest.param(name, 1, marks=pytest.mark.long) for name in ("noise.txt", "more_noise.txt")),
    ("noise.txt", 3),
    pytest.param("more_noise.txt", 4, marks=pytest.mark.all),
]


def log_with(line: str, place: str, ending: Ending) -> str:
    """Return the log of an ending with a harmless line in it."""
    before, after = ending.before, ending.end
    blocks = {
        "above": (line, before, after),
        "between": (before, line, after),
        "below": (before, after, line),
    }
    return "\n".join(blocks[place]) + "\n"


@pytest.mark.parametrize("name", endings())
def test_an_ending_alone_is_recognised(name):
    ending = endings()[name]
    found = diagnose_log(f"{ending.before}\n{ending.end}", ending.exit_code)
    assert (found.cause, found.action) == (ending.cause, ending.action)


@pytest.mark.parametrize(("lines", "nth"), LINES)
def test_harmless_lines_change_no_diagnosis(lines, nth):
    wrong, lost, burnt = Counter(), [], []
    for name, ending in endings().items():
        for line in noise(lines)[::nth]:
            for place in PLACES:
                found = diagnose_log(log_with(line, place, ending), ending.exit_code)
                wrong[found.cause != ending.cause] += 1
                if ending.action == "retry" and found.action == "fail":
                    lost.append((name, place, line, found))
                if ending.action in ("fail", "ok") and found.action == "retry":
                    burnt.append((name, place, line, found))
    total = wrong.total()
    print(f"{total} pairs: {wrong[False] / total:.2%} causes right, {len(lost)} lost, {len(burnt)} burnt")
    assert (len(noise(lines)) >= 30, len(endings()) >= 20) == (True, True)
    assert (lost, burnt) == ([], [])
    assert wrong[True] == 0


def positions_inside(log: str) -> list[int]:
    """Return before which lines of a log a line stands inside a traceback."""
    lines, found, is_inside = log.split("\n"), [], False
    for at, line in enumerate(lines):
        if is_inside:
            found.append(at)
            is_inside = line[:1].isspace()
        is_inside = is_inside or line.startswith("Traceback (most recent call last)")
    return found


@pytest.mark.all
@pytest.mark.parametrize(("lines", "nth"), LINES)
def test_harmless_lines_inside_tracebacks_change_no_diagnosis(lines, nth):
    changed, burnt, lost = Counter(), [], []
    for name, ending in endings().items():
        log = f"{ending.before}\n{ending.end}".split("\n")
        for at in positions_inside("\n".join(log)):
            for line in noise(lines)[::nth]:
                found = diagnose_log("\n".join([*log[:at], line, *log[at:]]), ending.exit_code)
                changed[found.cause != ending.cause] += 1
                if ending.action in ("fail", "ok") and found.action == "retry":
                    burnt.append((name, at, line))
                if ending.action == "retry" and found.action == "fail":
                    lost.append((name, at, line))
    share = changed[True] / changed.total()
    print(f"{changed.total()} pairs: {share:.2%} causes changed, {len(burnt)} burnt, {len(lost)} lost")
    assert (burnt, lost, share <= 0.005) == ([], [], True)
