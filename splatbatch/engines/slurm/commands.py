"""The door to Slurm: its commands, run to their end, with their words as they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

PATIENCE_S = 30.0
"""A command waits some seconds for a controller that is down, and says so then."""
OF_GPUS = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    words: str
    """What went wrong, in its own words; empty if nothing did."""


def ask(command: str, *arguments: str) -> Answer:
    """Run a command of Slurm."""
    try:
        ended = subprocess.run(
            [command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=cleaned(os.environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(124, "", f"{command} has not answered for {PATIENCE_S:.0f} s")
    except OSError as error:
        return Answer(127, "", f"{command}: {error.strerror}")
    said = (
        " ".join(ended.stderr.split()) or " ".join(ended.stdout.split()) or f"{command} ended with {ended.returncode}"
    )
    return Answer(ended.returncode, ended.stdout, said if ended.returncode else "")


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that a job may inherit: not the GPUs of this shell, nor the job that we may be part of."""
    is_in_job = "SLURM_JOB_ID" in environment
    return {
        name: value
        for name, value in environment.items()
        if not (name in OF_GPUS or name.startswith("SQUEUE_") or (is_in_job and _is_of_job(name)))
    }


def _is_of_job(name: str) -> bool:
    return name.startswith("SLURM") and name not in ("SLURM_CONF", "SLURM_CLUSTERS")
