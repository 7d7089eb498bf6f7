"""Bytecode of what our programs import, kept in a folder of our own: compiling torch's sources takes two seconds.

Every command and every attempt is a new process. In containers packages often lie there as sources alone:
PYTHONDONTWRITEBYTECODE is set, or their folder cannot be written to, and each process would compile them again.
"""

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path

from splatbatch.caches import cache_home

LARGEST = "torch"


def keep() -> None:
    """Have Python keep bytecode in the user's cache, where there is none beside torch: called before torch is imported.

    PYTHONPYCACHEPREFIX, if set, takes precedence.
    """
    if sys.pycache_prefix is None and _lacks_bytecode():
        with suppress(RuntimeError):  # an account without a home
            sys.pycache_prefix, sys.dont_write_bytecode = str(cache_home() / "splatbatch" / "bytecode"), False


def _lacks_bytecode() -> bool:
    try:
        found = importlib.util.find_spec(LARGEST)
    except ValueError:  # another module stands in its place
        return False
    return found is not None and found.cached is not None and not Path(found.cached).is_file()
