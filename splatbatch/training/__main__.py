"""`python -m splatbatch.training <attempt folder>`: train the patch of settings.json into the folder."""

import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

# before torch is imported: segments that grow leave no gaps behind as the number of Gaussians changes
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
# our products of matrices are small; cuBLAS would keep 32 MiB per stream on a GPU of compute capability 9
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")

from splatbatch.errors import SplatbatchError
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.training.session import STANDBY_VARIABLE, train_attempt


def main(folder: Path) -> int:
    """Train; known causes of failure end in one line that the diagnosis reads, others in a traceback."""
    try:
        # what was imported and read stays: a look through all of it would hold up some steps of the training
        train_attempt(AttemptFolder(folder), stands_by=os.environ.get(STANDBY_VARIABLE) == "1", when_prepared=gc.freeze)
    except SplatbatchError as error:
        print(f"splatbatch: {error.message}", file=sys.stderr)  # noqa: T201 - the log is read by the parent
        return error.exit_code
    return 0


def _leave(code: int) -> NoReturn:
    """End at once: tidying up torch takes an interpreter seconds, and the kernel does it in no time."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(Path(sys.argv[1])))
