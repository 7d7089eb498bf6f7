"""Our own trainer on a machine where more than four workers end in a segmentation fault, for the patches named.

As a program it is splatbatch with this trainer in place of ours. CROWDED names the patches, separated by commas.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from splatbatch import trainers
from splatbatch.files import read_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import Patch
from splatbatch.trainers.builtin import BuiltinTrainer

MOST_WORKERS = 4


class CrowdedTrainer(BuiltinTrainer):
    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        super().command(patch, folder)
        return (sys.executable, __file__, "--attempt", str(folder.path))


def attempt(folder: AttemptFolder) -> int:
    settings = read_json(folder.settings) or {}
    workers = settings["recipe"]["training"]["workers"]
    is_crowded = settings["patch"] in os.environ.get("CROWDED", "").split(",")
    if is_crowded and (workers == "auto" or workers > MOST_WORKERS):
        os.kill(os.getpid(), signal.SIGSEGV)
    from splatbatch.training.__main__ import main

    return main(folder.path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attempt"]:
        sys.exit(attempt(AttemptFolder(Path(sys.argv[2]))))
    trainers.TRAINERS["gsplat"] = CrowdedTrainer
    from splatbatch.cli import main as splatbatch

    splatbatch()
