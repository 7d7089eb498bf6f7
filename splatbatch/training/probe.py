"""`python -m splatbatch.training.probe`: print as JSON whether torch and this package's kernels work on the GPUs here.

The probe is a process of its own, since a faulty driver may make it hang.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from splatbatch.errors import first_line
from splatbatch.training import cuda
from splatbatch.training.cuda.compile import CompileError, lacking
from splatbatch.training.rendering import gsplats


def main() -> None:
    """Probe the GPUs that CUDA_VISIBLE_DEVICES names, and print one JSON object on stdout.

    Where the variable is unset or empty, the object has only the version of torch. Failures of torch, driver and
    kernels are entries of the object, not exceptions.
    """
    record: dict[str, Any] = {"torch": str(torch.__version__)}
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        record |= _of_gpus()
    print(json.dumps(record))  # noqa: T201 - it is what we were asked for


def _of_gpus() -> dict[str, Any]:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return {"error": first_line(error)}
    found = {"architectures": torch.cuda.get_arch_list(), "launch_error": _launch(), "has_gsplat": gsplats.is_built()}
    return found if found["launch_error"] else found | _of_kernels()


def _launch() -> str:
    """Return the error of a computation by torch on each visible GPU; an empty string if all succeed."""
    try:
        for index in range(torch.cuda.device_count()):
            (torch.ones(8, device=f"cuda:{index}") + 1).sum().item()
    except RuntimeError as error:
        return first_line(error)
    return ""


def _of_kernels() -> dict[str, Any]:
    """Return which of our kernels are not compiled yet and, if none is missing, why they do not work."""
    capabilities = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    try:
        left = sorted({program for capability in capabilities for program in lacking(capability)})
    except CompileError as error:
        return {"kernels_error": first_line(error)}
    return {"lacking": left, "kernels_error": "" if left else cuda.why_not_here()}


if __name__ == "__main__":
    main()
