"""Signatures: every regular expression has lines that it is meant for, and each is diagnosed wherever it stands."""

from itertools import cycle, islice

import pytest
from harmless import noise
from logs import diagnose_log

from splatbatch.failures.signatures import shipped_signatures
from splatbatch.failures.words import lower, search

EXAMPLES = [
    (signature, line) for signature in shipped_signatures() for _, *lines in signature.patterns for line in lines
]
HARMLESS = "\n".join(islice(cycle([line for line in noise() if "\n" not in line]), 150))
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 130, in training\n    loss.backward()\n'
SURROUNDINGS = {
    "alone": "{example}\n",
    "among 300 harmless lines": f"{HARMLESS}\n{{example}}\n{HARMLESS}\n",
    "within a traceback": FRAMES + "{example}\n",
}


def test_every_regular_expression_has_a_line_that_it_is_meant_for():
    meant = {}
    for signature in shipped_signatures():
        for pattern, *lines in signature.patterns:
            meant.setdefault(pattern, []).extend(lines)
    assert [one for one, lines in meant.items() if not any(search((one,), lower(line)) for line in lines)] == []


@pytest.mark.all(but="alone")
@pytest.mark.parametrize("where", SURROUNDINGS)
def test_an_example_is_diagnosed(where):
    wrong = []
    for signature, line in EXAMPLES:
        found = diagnose_log(SURROUNDINGS[where].replace("{example}", line), 1)
        if (found.cause, found.action) != (signature.cause, signature.action):
            wrong.append(f"{line!r}: {found.cause} {found.action}, not {signature.cause} {signature.action}")
    assert wrong == []
