"""A mount that has stalled, as of a file server that is gone: whoever asks it for anything waits without end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def stalled(place: Path) -> Iterator[None]:
    """Mount a file system over a folder whose server (FUSE: us) never answers; skips where we may not."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("/dev/fuse is not to be had here")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if ctypes.CDLL(None, use_errno=True).mount(b"stalled", os.fsencode(place), b"fuse.stalled", 0, options):
        os.close(server)
        pytest.skip("nothing may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=False)
        os.close(server)  # which wakes up all that wait
