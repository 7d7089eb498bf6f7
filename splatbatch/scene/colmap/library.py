"""pycolmap, without the signal handlers that come with it: the one place where it is imported."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

TAKEN = (signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGBUS)
"""glog's InstallFailureSignalHandler, which pycolmap calls as it is imported: a batch that was told to end would print
a stack trace and die, its attempts with it."""


def load_pycolmap() -> Any:
    """Return pycolmap, with every signal handled as it was before; importing takes half a second."""
    if (known := sys.modules.get("pycolmap")) is not None:
        return known
    handlers = {number: signal.getsignal(number) for number in TAKEN}
    import pycolmap

    if threading.current_thread() is threading.main_thread():  # others may not
        for number, handler in handlers.items():
            if handler is not None:  # one that is not Python's
                signal.signal(number, handler)
    return pycolmap
