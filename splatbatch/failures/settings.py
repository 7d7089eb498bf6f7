"""Settings as evidence: what a patch sets differently from its batch, and which causes that may explain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatbatch.failures.causes import cause_of
from splatbatch.text import list_some

RATES = re.compile(r"learning_rates\..*|refinement\.(grow_\w+|prune_\w+|noise_lr)|training\.init_\w+")
FAR = 10.0
"""A rate of the whole batch counts as odd if it is so many times the usual one, or so small a part of it."""
MOST_SHOWN = 6


@dataclass(frozen=True)
class SettingDifference:
    """A setting that a patch has otherwise than its batch or, where the whole batch is far off, than by default."""

    key: str
    """As in "learning_rates.means"."""
    value: Any
    usual: Any
    where: str = "in the batch"
    """Or "by default"."""

    def in_words(self) -> str:
        """Return "learning_rates.means is 1e+09 (0.00016 in the batch)"."""
        return f"{self.key} is {spelt(self.value)} ({spelt(self.usual)} {self.where})"

    @property
    def is_larger(self) -> bool:
        """Whether the value is larger than usual; true where they cannot be compared."""
        return not (is_number(self.value) and is_number(self.usual)) or bool(self.value > self.usual)


def differences(
    own: Mapping[str, Any], batch: Mapping[str, Any], default: Mapping[str, Any]
) -> tuple[SettingDifference, ...]:
    """Return in what a patch's settings differ from its batch's, and rates in which the batch is far from the usual.

    Args:
        own: every setting of the patch by its full name.
        batch: those of a patch for which nothing is set.
        default: those of a YAML that sets nothing.
    """
    of_patch = [
        SettingDifference(key, value, batch.get(key))
        for key, value in own.items()
        if key not in batch or batch[key] != value
    ]
    of_batch = [
        SettingDifference(key, value, default[key], "by default")
        for key, value in batch.items()
        if own.get(key) == value and key in default and RATES.fullmatch(key) and _is_far(value, default[key])
    ]
    return (*of_patch, *of_batch)


def suspects(found: Sequence[SettingDifference], cause: str) -> tuple[SettingDifference, ...]:
    """Return the differences that lead to a cause."""
    known = cause_of(cause)
    return tuple(
        one
        for one in found
        if re.fullmatch(known.suspects, one.key) or (one.is_larger and re.fullmatch(known.suspects_if_larger, one.key))
    )


def in_words(found: Sequence[SettingDifference]) -> str:
    """Return differences in a line."""
    return list_some((one.in_words() for one in found), MOST_SHOWN, "; ")


def spelt(value: Any) -> str:
    """Return the value of a setting as --set takes it."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a number that can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_far(value: Any, usual: Any) -> bool:
    return is_number(value) and is_number(usual) and bool(usual) and not 1 / FAR < value / usual < FAR
