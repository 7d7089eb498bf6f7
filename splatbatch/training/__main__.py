"""`python -m splatbatch.training <attempt folder>`: train the patch of settings.json into the folder."""

import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

# our matrix products are small; by default cuBLAS reserves 32 MiB per stream on a GPU of compute capability 9
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.training.attempt import STANDBY_VARIABLE, train_attempt
from splatbatch.training.stop_request import exit_code_of, leave


def main(folder: Path) -> int:
    """Train the attempt of a folder; return the exit code: 0, or that of a SplatbatchError, whose message is printed.

    Other exceptions are not caught. With `SPLATBATCH_STANDBY=1` the attempt waits for go.json, the order to begin,
    without a limit.
    """
    stands_by = os.environ.get(STANDBY_VARIABLE) == "1"
    # imported and decoded objects live until the end: a garbage collection over them would delay some training steps
    return exit_code_of(lambda: train_attempt(AttemptFolder(folder), stands_by=stands_by, when_prepared=gc.freeze))


def run() -> NoReturn:
    """Train the attempt whose folder is the first argument of the command line, and end the process; never returns."""
    leave(main(Path(sys.argv[1])))


if __name__ == "__main__":
    run()
