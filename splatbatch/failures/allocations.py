"""Tests of the sizes in CUDA's out-of-memory messages, which a regular expression cannot compare.

A signature names such a test as its `judge`, and matches only if the test is true of the matched line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from splatbatch.failures.words import Patterns, places

_POWERS = {"bytes": -3, "kib": -2, "mib": -1, "gib": 0, "tib": 1, "pib": 2, "eib": 3}  # of 1024, in GiB
_SIZE = r"(\d[\d.]*) ?(bytes|[KMGTPE]iB)"
_REQUEST = (rf"Tried to allocate {_SIZE}",)
_CARD = (rf"{_SIZE} total capacity", rf"total capac\w+ of {_SIZE}")
_FREE = (rf"{_SIZE}(?: is)? free",)
_USED = (
    rf"{_SIZE} already allocated",
    rf"{_SIZE} (?:reserved|cached)",
    rf"this process has {_SIZE}",
    rf"{_SIZE} is allocated by PyTorch",  # in a container a process does not know itself by its number
)
_ABSURD_GIB = 1000.0


def _largest_gib(patterns: Patterns, line: str) -> float:
    """Return the largest size that patterns find in a line, in GiB; 0 if they find none."""
    pairs = ([group for group in match.groups() if group] for match in places(patterns, line))
    return max((float(number.rstrip(".")) * 1024.0 ** _POWERS[unit.lower()] for number, unit in pairs), default=0.0)


def asks_absurdly(line: str) -> bool:
    """Return whether an allocation is larger than any need: above 1000 GiB, or above the size of the whole GPU.

    The second counts only while this process uses under a quarter of the GPU. False if the line gives no sizes.
    """
    request, card, used = (_largest_gib(pattern, line) for pattern in (_REQUEST, _CARD, _USED))
    return request > _ABSURD_GIB or (0.0 < card < request and used < 0.25 * card)


def is_crowded_out(line: str) -> bool:
    """Return whether other processes hold more GPU memory than this process does, and more than a quarter of the GPU.

    False if the line does not give the size of the GPU.
    """
    card, free, used = (_largest_gib(pattern, line) for pattern in (_CARD, _FREE, _USED))
    return card - free - used > max(used, 0.25 * card)


JUDGES: Mapping[str, Callable[[str], bool]] = {"asks_absurdly": asks_absurdly, "is_crowded_out": is_crowded_out}
"""The tests of this module by the name under which a signature's `judge` asks for them."""
