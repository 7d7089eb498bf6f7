"""A script of scripts/ as a module, for tests of its functions."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import pytest
from fake_batch import ROOT


def load_script(name: str) -> Any:
    """Return the script with this name as a module; nothing is written beside it."""
    loader = SourceFileLoader(f"script_{name}", str(ROOT / "scripts" / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # where its dataclasses look for it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        loader.exec_module(module)
    return module
