"""`python -m splatbatch.training.cuda.warm WHAT`: compile kernels before training; print seconds and error as JSON.

WHAT is `kernels` (those of this package) or `gsplat`.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from splatbatch.training import cuda
from splatbatch.training.rendering.gsplats import build_gsplat


def ours() -> None:
    """Compile this package's kernels for each visible GPU, and run them once there.

    Raises:
        RuntimeError: the kernels cannot be compiled or used on one of the GPUs.
    """
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            cuda.loaded.cache_clear()
            cuda.why_not_here.cache_clear()
            if why := cuda.why_not_here():
                raise RuntimeError(why)


WHAT = {"kernels": ours, "gsplat": build_gsplat}


def main(name: str) -> None:
    """Build the kernels that `name` stands for, a key of `WHAT`; print one JSON object with "seconds" and "error".

    "error" is the last line of an error, which is not raised; empty if all went well.
    """
    started, error = time.monotonic(), ""
    try:
        WHAT[name]()
    except Exception as failure:  # noqa: BLE001 - compilers, drivers and packages fail in ways of their own
        error = (str(failure).strip().splitlines() or [type(failure).__name__])[-1]
    print(json.dumps({"seconds": round(time.monotonic() - started, 1), "error": error}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
