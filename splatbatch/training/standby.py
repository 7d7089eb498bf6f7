"""Waiting, with everything prepared and CUDA untouched, until the parent says that a GPU is free."""

from __future__ import annotations

import os
import time

from splatbatch.errors import TrainerError
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.training.progress.progress import Progress

STANDBY_VARIABLE = "SPLATBATCH_STANDBY"
"""Set to 1 by whoever starts an attempt ahead of its turn."""
LOOK_S = 0.005


def wait_for_go(folder: AttemptFolder, progress: Progress) -> None:
    """Return when go.json is there, with its environment in force: the GPU it names is the only one CUDA will see.

    Raises:
        TrainerError: the supervisor has died, so that no go can come.
    """
    progress.phase("standby")
    supervisor = os.getppid()
    while (go := folder.read_go()) is None:
        if os.getppid() != supervisor:
            raise TrainerError("standing by for a supervisor that has died")
        time.sleep(LOOK_S)
    os.environ.update(go.env)
    progress.begin()
