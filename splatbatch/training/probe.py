"""`python -m splatbatch.training.probe`: print as JSON what torch and Triton can do here; a driver may hang it."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from splatbatch.files import read_json
from splatbatch.training import cuda
from splatbatch.training.cuda import native
from splatbatch.training.cuda.warm import GROUPS, KERNELS


def main() -> None:
    """Look, and print one JSON object."""
    record: dict[str, Any] = {"torch": str(torch.__version__), "groups": list(GROUPS), "kernels": list(KERNELS)}
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        record |= _of_gpus()
    print(json.dumps(record))  # noqa: T201 - it is what we were asked for


def _of_gpus() -> dict[str, Any]:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return {"error": _line(error)}
    record = {"architectures": torch.cuda.get_arch_list(), "launch_error": _launch(), "has_native": native.is_built()}
    if not record["launch_error"] and importlib.util.find_spec("triton") is not None:
        record |= {"triton_error": cuda.why_not_here(), "cached": sorted(set(_cached()))}
    return record


def _launch() -> str:
    """Return why torch cannot compute on some GPU; empty if it can on each."""
    try:
        for index in range(torch.cuda.device_count()):
            (torch.ones(8, device=f"cuda:{index}") + 1).sum().item()
    except RuntimeError as error:
        return _line(error)
    return ""


def _cached() -> Iterator[str]:
    """Yield the names of our kernels that lie in Triton's cache, compiled for a GPU that is here."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
    capabilities = [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
    here = {10 * major + minor for major, minor in capabilities}
    for name in KERNELS:
        for path in folder.glob(f"*/{name}.json"):
            target = (read_json(path) or {}).get("target")
            if isinstance(target, dict) and target.get("arch") in here:
                yield name


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


if __name__ == "__main__":
    main()
