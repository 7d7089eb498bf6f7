"""Where programs of this user keep what they can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder that all of them lie in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def extensions_folder() -> Path:
    """Return where torch builds extensions (torch.utils.cpp_extension); to ask torch itself would import it."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_home() / "torch_extensions")
