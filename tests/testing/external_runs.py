"""Attempts and batches of an external trainer, as a config describes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import external_program
from attempted import Attempted

from splatbatch.config import Recipe, Training
from splatbatch.config.trainers.programs import Program

COMMAND = [sys.executable, external_program.__file__, "--steps={steps}", "--output={output}", "--do={setting.do}"]
RUN = {
    "command": COMMAND,
    "settings": {"do": "train"},
    "artifact": {"ply": "point_cloud_*.ply"},
    "metrics": {"evaluate": False},
}
SAYS = {"step": r"step (\d+)/"}
STEPLESS = {"ply": "splat.ply", "step": "", "finished_after_s": 0.3}
"""A splat whose name tells no step; many programs write it again and again, from early on."""

Run = Callable[..., Attempted]


def recipe(**program: Any) -> Recipe:
    return Recipe(
        training=Training(trainer="foreign", max_steps=10, seed=7), program=Program.model_validate(RUN | program)
    )
