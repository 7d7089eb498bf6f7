"""Nights with a failure each, and how they must end; for the tests of the scheduler and for bench_reliability."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INVALID = "CUDA error: invalid configuration argument"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has 23.6 GiB, 100.0 MiB is free"


@dataclass(frozen=True)
class Scenario:
    """What the trainer of p5 does, attempt by attempt, and what must come of it; p7 trains well."""

    name: str
    lines: list[str]
    state: str
    attempts: int
    cause: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


SCENARIOS = [
    Scenario("success", ["train"], "trained", 1),
    Scenario(
        "the history this began with: invalid configuration until init_scale is raised",
        [f"needs training.init_scale>=0.3 {INVALID}"],
        "trained",
        3,
        changes={"training.init_scale": 0.3},
        settings={"training": {"init_scale": 0.1}},
    ),
    Scenario("a segfault after the splat is whole", ["train-then-die SIGSEGV"], "trained", 1),
    Scenario("exit 0 with a cut splat, once", ["spoil cut", "train"], "trained", 2),
    Scenario("exit 0 with NaN in the splat, always", ["spoil nan"], "failed", 4, "nan_loss"),
    Scenario("exit 0 with an empty folder, always", ["spoil nothing"], "failed", 2, "incomplete_artifact"),
    Scenario("exit 0 with the splat of an earlier step, once", ["spoil early", "train"], "trained", 2),
    Scenario(
        "out of GPU memory until the images lie on the host",
        [f"needs training.images==host {OOM}"],
        "trained",
        2,
        changes={"training.images": "host"},
    ),
    Scenario(
        "out of GPU memory until the cap is lower",
        [f"needs training.cap_max<=600000 {OOM}"],
        "trained",
        3,
        changes={"training.images": "host", "training.cap_max": 600_000},
        settings={"training": {"cap_max": 1_000_000}},
    ),
    Scenario("host memory used up, always", ["devour"], "failed", 4, "host_oom"),
    Scenario("a random crash", ["die SIGSEGV", "train"], "trained", 2),
    Scenario("the same crash every time", [f"exit 1 {INVALID}"], "failed", 5, "cuda_invalid_configuration"),
    Scenario(
        "a crash only with more than 4 workers",
        ["needs training.workers<=4 SIGSEGV"],
        "trained",
        3,
        changes={"training.workers": 4},
        settings={"training": {"workers": 16}},
    ),
    Scenario("a hang, once", ["hang", "train"], "trained", 2),
    Scenario("a hang with children that ignore SIGTERM, once", ["hang deaf child", "train"], "trained", 2),
    Scenario("a viewer that never exits after the splat is done", ["linger"], "trained", 1),
    Scenario(
        "a corrupt photograph in the middle",
        ["exit 3 splatbatch: images/a.jpg: cannot identify image file, or it is truncated"],
        "failed",
        1,
        "corrupt_image",
    ),
    Scenario(
        "the loss is not a number until the second rung, a lower learning rate",
        ["unhealthy nan_loss: loss nan at step 9", "unhealthy nan_loss: loss nan at step 9", "train"],
        "trained",
        3,
        changes={"training.init_scale": 0.3, "learning_rates.means": 0.00008},
        settings={"training": {"init_scale": 0.1}},
    ),
    Scenario("all gradients are zero", ["unhealthy zero_gradients: nothing is learned"], "failed", 2, "zero_gradients"),
    Scenario(
        "nothing to import",
        ["exit 1 ModuleNotFoundError: No module named 'gsplat'"],
        "failed",
        1,
        "missing_dependency",
    ),
]


# one that hangs does nothing at all; one that starts slowly on a busy machine does: a wall clock cannot tell them apart
