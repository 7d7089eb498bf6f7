"""What is looked for in a whole log is found in its lines alone, and lines are cut and chosen without loss."""

import pytest

from splatbatch.failures.log import lines_of
from splatbatch.failures.words import lower, search


@pytest.mark.parametrize(
    ("pattern", "line", "stands"),
    [
        (r"ab+cde{2,3}f", "xabbbcdeef", True),
        (r"colou?r of (sky|sea)s?", "the Color of Sea", True),
        (r"(one|(?:two|three) four)[|]", "three four|", True),
        (r"a\.b\|c", "a.b|c", True),
        (r"(optional )?needed", "needed", True),
        (r"x{0,2}yes", "yes", True),
        (r"no(?!body)", "nobody", False),
        (r"first\s+b", "b", False),
        (r"first[\s:]+b", "b", False),
        (r"first[^:]b", "b", False),
        (r"first\nb", "b", True),
        (r"one\[\s", "one[ ", True),
        (r"[\S]one", "-ONE", True),
    ],
)
def test_a_pattern_is_found_in_any_case(pattern, line, stands):
    assert (search((pattern,), lower(f"first\n{line}\nlast")) is not None) is stands


def test_of_a_long_log_the_lines_that_tell_something_are_read():
    filling = [
        f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)} words of no weight" for n in range(17_000)
    ]
    filling[8_000] = "OSError: disk quota exceeded"
    lines = lines_of("\n".join(filling))
    assert sum(len(line.words) for line in lines) < 100_000
    assert lines[0] == (1, filling[0])
    assert lines[-1] == (17_000, filling[-1])
    assert (8_001, filling[8_000]) in lines
