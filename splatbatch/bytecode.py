"""Bytecode of imported packages, kept in a cache folder of splatbatch: compiling torch's sources takes two seconds.

Every command and every attempt is a new process. In containers, packages often come without bytecode:
PYTHONDONTWRITEBYTECODE is set, or their folder is read-only, and each process would compile them again.
"""

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path

from splatbatch.caches import own_cache

LARGEST = "torch"


def keep() -> None:
    """Let Python keep compiled bytecode in the user's cache folder, if torch is installed without bytecode.

    Call it before torch is imported. Nothing changes if PYTHONPYCACHEPREFIX is set, if torch is not installed, or if
    there is no such folder and none can be made.
    """
    if sys.pycache_prefix is None:
        with suppress(OSError, ValueError):  # there is no cache folder, or another module stands in place of torch
            found = importlib.util.find_spec(LARGEST)
            if found and found.cached and not Path(found.cached).is_file():
                sys.pycache_prefix, sys.dont_write_bytecode = str(own_cache() / "bytecode"), False
