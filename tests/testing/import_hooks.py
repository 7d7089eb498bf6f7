"""What a process imports while threads run: told by a finder that goes before all others and finds nothing itself."""

from __future__ import annotations

import sys
import threading
from typing import Any


class FirstImport:
    """Tells when the import of a module has begun, and has the other threads meet it before it has ended."""

    def __init__(self, name: str) -> None:
        self._name, self.has_begun = name, threading.Event()
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name.startswith(f"{self._name}."):  # the module itself lies in sys.modules by now, and is empty
            self.has_begun.set()


class ImportedInThreads:
    """Notes the modules that another thread than the main one was the first to import."""

    def __init__(self) -> None:
        self.names: list[str] = []
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.names.append(name)
