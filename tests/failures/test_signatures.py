"""Signatures: every regular expression has lines that it is meant for, and each is diagnosed wherever it stands."""

import tomllib
from itertools import cycle, islice

import pytest
from harmless import noise

from splatbatch.failures.diagnose import diagnose_log
from splatbatch.failures.signatures import SHIPPED, shipped, words_of
from splatbatch.failures.words import lower

TREE = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
EXAMPLES = [(signature, line) for signature in shipped() for lines in signature.examples for line in lines]
HARMLESS = "\n".join(islice(cycle([line for line in noise() if "\n" not in line]), 150))
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 130, in training\n    loss.backward()\n'
SURROUNDINGS = {
    "alone": "{example}\n",
    "among 300 harmless lines": f"{HARMLESS}\n{{example}}\n{HARMLESS}\n",
    "within a traceback": FRAMES + "{example}\n",
}


def test_every_regular_expression_has_a_line_that_it_is_meant_for():
    groups = {f"{{{name}}}": patterns for name, patterns in TREE["words"].items()}
    meant = {}
    for signature in TREE["signature"]:
        for pattern, *lines in signature["patterns"]:
            for one in groups.get(pattern, [pattern]):
                meant.setdefault(one, []).extend(lines)
    assert [
        one for one, lines in meant.items() if not any(words_of([one], {}).search(lower(line)) for line in lines)
    ] == []


@pytest.mark.all(but="alone")
@pytest.mark.parametrize("where", SURROUNDINGS)
def test_an_example_is_diagnosed(where):
    wrong = []
    for signature, line in EXAMPLES:
        found = diagnose_log(SURROUNDINGS[where].replace("{example}", line), 1)
        if (found.cause, found.action) != (signature.cause, signature.action):
            wrong.append(f"{line!r}: {found.cause} {found.action}, not {signature.cause} {signature.action}")
    assert wrong == []
