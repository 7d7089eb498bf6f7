"""Settings as evidence: what a patch sets differently from its batch, and which causes that may explain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatbatch.failures.remedies import spelt
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
    def grew(self) -> bool:
        """Whether the value is larger, or nobody can tell."""
        if is_number(self.value) and is_number(self.usual):
            return bool(self.value > self.usual)
        return True


@dataclass(frozen=True)
class Suspect:
    """Settings that lead to some causes."""

    causes: frozenset[str] | None
    """None: all but those that no setting leads to."""
    keys: re.Pattern[str]
    only_grown: bool = False
    """Only a larger value leads there."""


NUMERICS = frozenset(
    {
        *("zero_gradients", "nan_loss", "zero_gaussians", "no_densification", "cuda_invalid_configuration"),
        *("cuda_absurd_alloc", "cuda_illegal_access"),
    }
)
MEMORY = frozenset({"cuda_oom", "cublas_cudnn_error", "cuda_absurd_alloc", "tensor_limit"})
FROM_OUTSIDE = frozenset({"interrupted", "lost", "disk_full", "gpu_hardware_fault", "cuda_busy_or_unavailable"})
SUSPECTS = (
    Suspect(NUMERICS, re.compile(r"learning_rates\..*|training\.(init_\w+|strategy|max_steps)|refinement\..*")),
    Suspect(MEMORY, re.compile(r"training\.(cap_max|resolution|images|sh_degree|max_steps)"), only_grown=True),
    Suspect(MEMORY, re.compile(r"refinement\.(grow_grad2d|prune_opa|refine_stop_iter)|training\.coarse_to_fine")),
    Suspect(
        frozenset({"host_oom", "shm_bus_error", "dataloader_worker_killed", "process_limit", "fd_limit", "segfault"}),
        re.compile(r"training\.(workers|images|resolution)"),
        only_grown=True,
    ),
    Suspect(frozenset({"time_limit", "hang"}), re.compile(r"training\.(max_steps|cap_max|resolution|device|kernels)")),
    Suspect(frozenset({"cuda_invalid_device"}), re.compile(r"training\.device")),
    Suspect(
        frozenset({"bad_config", "missing_dependency", "not_started", "program_bug", "unknown", "missing_file"}),
        re.compile(r"training\.trainer|evaluation\.holdout_list"),
    ),
    Suspect(None, re.compile(r"setting\..*")),
    Suspect(frozenset({"no_training_cameras"}), re.compile(r"evaluation\.holdout\w*")),
)


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
    return tuple(
        one
        for one in found
        if any(
            (cause not in FROM_OUTSIDE if suspect.causes is None else cause in suspect.causes)
            and suspect.keys.fullmatch(one.key)
            and (one.grew or not suspect.only_grown)
            for suspect in SUSPECTS
        )
    )


def in_words(found: Sequence[SettingDifference]) -> str:
    """Return differences in a line."""
    return list_some((one.in_words() for one in found), MOST_SHOWN, "; ")


def is_number(value: Any) -> bool:
    """Return whether a value is a number that can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_far(value: Any, usual: Any) -> bool:
    if not (is_number(value) and is_number(usual)) or not usual:
        return False
    return not 1 / FAR < value / usual < FAR
