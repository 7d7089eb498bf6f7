"""Settings as evidence: those in which a patch differs from its batch, and the causes that they may explain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from splatbatch.config.recipe import MOST_GAUSSIANS
from splatbatch.failures.causes import cause_of
from splatbatch.text import list_some

RATES = re.compile(r"learning_rates\..*|refinement\.(grow_\w+|prune_\w+|noise_lr)|training\.init_\w+")
FAR = 10.0
"""Factor between a rate of the whole batch and its default, upwards or downwards, from which the rate counts as odd."""
MOST_SHOWN = 6


@dataclass(frozen=True)
class SettingDifference:
    """A setting in which a patch differs from its batch, or a rate in which the whole batch is far from the default."""

    key: str
    """The full name of the setting, as "learning_rates.means"."""
    value: Any
    usual: Any
    """The value in the batch or by default; None: it is none, or the batch lacks this setting."""
    where: str = "in the batch"
    """Where the usual value holds: "in the batch" or "by default"."""

    def in_words(self) -> str:
        """Return the difference as text: "learning_rates.means is 1e+09 (0.00016 in the batch)"."""
        return f"{self.key} is {spelt(self.value)} ({spelt(self.usual)} {self.where})"

    @property
    def is_larger(self) -> bool:
        """Whether the value is larger than the usual one; True where either is no number.

        `auto` of training.cap_max counts as 1,000,000 if it is the usual value.
        """
        usual = MOST_GAUSSIANS if (self.key, self.usual) == ("training.cap_max", "auto") else self.usual
        return not (is_number(self.value) and is_number(usual)) or bool(self.value > usual)


def differences(
    own: Mapping[str, object], batch: Mapping[str, object], default: Mapping[str, object]
) -> tuple[SettingDifference, ...]:
    """Return the settings in which a patch differs from its batch, then rates of the batch far from the default.

    Far is by a factor of `FAR` or more; () if there is no difference.

    Args:
        own: every setting of the patch by its full name.
        batch: the settings of a patch without overrides.
        default: the settings of a YAML that sets nothing.
    """
    of_patch = [
        SettingDifference(key, value, batch.get(key))
        for key, value in own.items()
        if key not in batch or batch[key] != value
    ]
    of_batch = [
        SettingDifference(key, value, default[key], "by default")
        for key, value in batch.items()
        if own.get(key) == value and RATES.fullmatch(key) and is_number(value) and is_number(usual := default.get(key))
        if usual and not 1 / FAR < value / usual < FAR
    ]
    return (*of_patch, *of_batch)


def suspects(found: Sequence[SettingDifference], cause: str) -> tuple[SettingDifference, ...]:
    """Return the differences that may be to blame for a cause, in their order; `cause` is its name, as "cuda_oom"."""
    known = cause_of(cause)
    return tuple(
        one
        for one in found
        if re.fullmatch(known.suspects, one.key) or (one.is_larger and re.fullmatch(known.suspects_if_larger, one.key))
    )


def in_words(found: Sequence[SettingDifference]) -> str:
    """Return differences as one line of text, at most `MOST_SHOWN` of them; empty without any."""
    return list_some((one.in_words() for one in found), MOST_SHOWN, "; ")


def spelt(value: object) -> str:
    """Return the value of a setting as --set takes it; None becomes "none"."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that can be compared; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
